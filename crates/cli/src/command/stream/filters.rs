//! `cenote stream decompress`, `recompress`, `drop-record` and `redup`: a stream goes in, another comes out.

use std::path::PathBuf;

use cenote_control::stream::decompress::Decompress as DecompressRequest;
use cenote_control::stream::drop_record::DropRecord as DropRequest;
use cenote_control::stream::recompress::Recompress as RecompressRequest;
use cenote_control::stream::redup::Redup as RedupRequest;
use clap::Args;

use super::{refuse_json, source};
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote stream decompress`
#[derive(Debug, Args)]
#[command(
    after_help = "The stream goes from standard input to standard output. A block that can't be decompressed \
        stays as it is. Types: off (only the record changes), gzip, lz4, lzjb, zle, zstd; without one, the \
        recorded type, or lz4 if the record says that the block is not compressed.\n\n\
        Example: cenote zfs send -c tank/home@monday | cenote stream decompress 128,0,lz4 > home.zs"
)]
pub struct Decompress {
    /// Report each record
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Blocks by object and offset
    #[arg(value_name = "OBJECT,OFFSET[,TYPE]")]
    pub records: Vec<String>,
}

/// `cenote stream recompress`
#[derive(Debug, Args)]
#[command(
    after_help = "The stream goes from standard input to standard output. Blocks that would not become \
        smaller are stored uncompressed; encrypted ones stay as they are. ALGORITHM is a value of the \
        property compression: off, lz4, gzip-9, zstd-19, zstd-fast-10 ...\n\n\
        Example: cenote zfs send -c tank/home@monday | cenote stream recompress zstd-19 > home.zs"
)]
pub struct Recompress {
    /// Level of zstd, 1 to 19 [default: 3]
    #[arg(short = 'l', value_name = "LEVEL")]
    pub level: Option<u8>,
    /// Accepted for scripts: all cores are used
    #[arg(short = 't', value_name = "THREADS", id = "workers", hide = true)]
    pub workers: Option<u32>,
    /// The compression
    pub algorithm: String,
}

/// `cenote stream drop-record`
#[derive(Debug, Args)]
#[command(after_help = "The stream goes from standard input to standard output, without these WRITE and \
        WRITE_EMBEDDED records: the received file has a hole there, or keeps its old block.\n\n\
        Example: cenote zfs send tank/home@monday | cenote stream drop-record 3545761,18446744073709486080")]
pub struct DropRecord {
    /// Report each record
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Blocks by object and offset
    #[arg(value_name = "OBJECT,OFFSET")]
    pub records: Vec<String>,
}

/// `cenote stream redup`
#[derive(Debug, Args)]
#[command(
    after_help = "Blocks that the stream only refers to are written out. The file is read twice; the stream \
        goes to standard output.\n\n\
        Example: cenote stream redup old.zs | cenote zfs receive pool/home"
)]
pub struct Redup {
    /// Report the number of records
    #[arg(short = 'v')]
    pub verbose: bool,
    /// The stream
    pub file: PathBuf,
}

impl Decompress {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        refuse_json(session)?;
        let request = DecompressRequest { records: self.records, verbose: self.verbose };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Recompress {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        refuse_json(session)?;
        let request = RecompressRequest { compression: self.algorithm, level: self.level };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl DropRecord {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        refuse_json(session)?;
        let request = DropRequest { records: self.records, verbose: self.verbose };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Redup {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        refuse_json(session)?;
        let (source, files) = source(Some(&self.file))?;
        let request = RedupRequest { source, verbose: self.verbose };
        Ok(session.control().run_with_files(request, files).await?.outcome)
    }
}

//! `cenote dump`: any on-disk structure, like `zdb`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote dump`
#[derive(Debug, Args)]
pub struct Dump {
    /// Which structure
    #[command(subcommand)]
    pub what: What,
}

/// The structures.
#[derive(Debug, Subcommand)]
pub enum What {
    /// The four labels of a disk or image: configuration, and which are valid
    Label {
        /// File or device
        device: PathBuf,
    },
    /// All uberblocks of a pool's labels, or the one in use
    Uberblock {
        /// Pool
        pool: String,
    },
    /// The pool's configuration as the MOS has it
    Config {
        /// Pool
        pool: String,
    },
    /// Datasets with their DSL structures
    Datasets {
        /// Pool or dataset
        dataset: String,
    },
    /// Objects of a dataset (or, for a pool's name, of the MOS with `--mos`)
    Objects {
        /// The pool's meta object set
        #[arg(long)]
        mos: bool,
        /// Dataset
        dataset: String,
    },
    /// One object: dnode, bonus, block pointers, and what it holds
    Object {
        /// The pool's meta object set
        #[arg(long)]
        mos: bool,
        /// Dataset
        dataset: String,
        /// Object number
        object: u64,
    },
    /// One block: VDEV:OFFSET:SIZE, in hex
    Block {
        /// Pool
        pool: String,
        /// VDEV:OFFSET:SIZE
        address: String,
    },
    /// Intent logs: header, blocks and records
    Zil {
        /// Dataset
        dataset: String,
    },
    /// Metaslabs and their space maps
    Metaslabs {
        /// Pool
        pool: String,
        /// Every segment
        #[arg(long)]
        segments: bool,
    },
    /// Deduplication and block-reference tables
    Ddt {
        /// Pool
        pool: String,
    },
    /// Feature flags and their reference counts
    Features {
        /// Pool
        pool: String,
    },
}

impl Dump {
    /// Runs the command.
    pub async fn run(self, _session: &Session) -> Result<Outcome, CliError> {
        Err(CliError::Usage("not written yet".into()))
    }
}

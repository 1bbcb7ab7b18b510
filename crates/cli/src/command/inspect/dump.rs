//! `cenote dump`: shows any on-disk structure, like `zdb`.
//!
//! The engine reports the fields of a structure; `cenote_shown::inspect::dump` formats them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cenote_dataset::{Dataset, Mos};
use cenote_device::OpenOptions;
use cenote_format::units::ObjectId;
use cenote_inspect::dump::block::{self, Address};
use cenote_inspect::dump::object::{self, Parts};
use cenote_inspect::dump::{Sink, datasets, features, label, metaslabs, nvlist, tables, zil};
use cenote_object::Objset;
use cenote_shown::inspect::dump::{Json, Text};
use clap::{Args, Subcommand};

use crate::outcome::{CliError, Outcome};
use crate::session::{self, Session, Stdout};

/// `cenote dump`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    cenote dump label -u /dev/sdb1\n  \
    cenote dump uberblock tank\n  \
    cenote dump object --json tank/home 1")]
pub struct Dump {
    /// The structure to show
    #[command(subcommand)]
    pub what: What,
}

/// The structures.
#[derive(Debug, Subcommand)]
pub enum What {
    /// The four labels of a disk or image: their configuration and validity
    Label {
        /// Show the ring of uberblocks too
        #[arg(short = 'u', long)]
        uberblocks: bool,
        /// File or device
        device: PathBuf,
    },
    /// All uberblocks in a pool's labels, newest first, or all fields of the active one
    Uberblock {
        /// Show all fields of the active one (see --txg, -F, --checkpoint)
        #[arg(long)]
        used: bool,
        /// Pool
        pool: String,
    },
    /// The pool's configuration as stored in the MOS
    Config {
        /// Pool
        pool: String,
    },
    /// The MOS's object directory
    Directory {
        /// Pool
        pool: String,
    },
    /// Datasets and snapshots with their DSL structures, deadlists and bookmarks
    Datasets {
        /// Pool, dataset or snapshot
        dataset: String,
    },
    /// Objects of a dataset (or, given a pool and `--mos`, of the MOS)
    Objects {
        /// The pool's meta object set
        #[arg(long)]
        mos: bool,
        /// Dataset or snapshot
        dataset: String,
    },
    /// One object: dnode, bonus, content, block pointers
    Object {
        /// The pool's meta object set
        #[arg(long)]
        mos: bool,
        /// Leave out block pointers
        #[arg(long)]
        no_blocks: bool,
        /// Leave out the content
        #[arg(long)]
        no_content: bool,
        /// Dataset or snapshot
        dataset: String,
        /// Object number, or a path from the dataset's root
        object: String,
    },
    /// One block in hex, without verification
    Block {
        /// Write the raw bytes
        #[arg(long)]
        raw: bool,
        /// Decompress, with this algorithm or (without a name) the first that succeeds
        #[arg(
            long,
            value_name = "ALGORITHM",
            num_args = 0..=1,
            default_missing_value = "",
            require_equals = true
        )]
        decompress: Option<String>,
        /// Show the block as block pointers
        #[arg(long, conflicts_with = "raw")]
        pointers: bool,
        /// Pool
        pool: String,
        /// VDEV:OFFSET:SIZE or VDEV:OFFSET:LSIZE/PSIZE, in hex
        address: String,
    },
    /// Intent logs of a dataset and all below it: header, blocks and records
    Zil {
        /// Pool or dataset
        dataset: String,
    },
    /// Metaslabs and their space maps
    Metaslabs {
        /// List every entry of each map
        #[arg(long)]
        segments: bool,
        /// Pool
        pool: String,
    },
    /// Deduplication and block reference tables
    Ddt {
        /// List every entry
        #[arg(long)]
        entries: bool,
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
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if let What::Block { raw: true, decompress, pool, address, .. } = &self.what {
            let mos = session.open_pool_without_asking(pool).await?;
            let (_, _, bytes) = read_block(&mos, address, decompress.as_deref()).await?;
            return session::print_bytes(bytes).map(|()| Outcome::Done);
        }
        if session.json() {
            let mut sink = Json::new(session::stdout());
            show(session, self.what, &mut sink).await?;
            return written(sink.finish());
        }
        let mut sink = Text::new(session::stdout());
        show(session, self.what, &mut sink).await?;
        written(sink.finish())
    }
}

fn written(finished: io::Result<Stdout>) -> Result<Outcome, CliError> {
    finished.and_then(|mut out| out.flush()).map_err(CliError::io("standard output"))?;
    Ok(Outcome::Done)
}

async fn show(session: &Session, what: What, sink: &mut dyn Sink) -> Result<(), CliError> {
    match what {
        What::Label { uberblocks, device } => show_label(session, sink, &device, uberblocks).await?,
        What::Uberblock { used: false, pool } => {
            label::uberblocks(sink, &session.find_in_labels(&pool).await?)
        }
        What::Uberblock { used: true, pool } => {
            label::uberblock(sink, session.open_pool_without_asking(&pool).await?.uberblock());
        }
        What::Config { pool } => nvlist(sink, session.open_pool_without_asking(&pool).await?.config()),
        What::Directory { pool } => {
            datasets::directory(sink, &session.open_pool_without_asking(&pool).await?).await?
        }
        What::Datasets { dataset } => datasets::tree(sink, &open(session, &dataset).await?).await?,
        What::Objects { mos, dataset } => {
            object::objects(sink, &objset(session, mos, &dataset).await?.0).await?;
        }
        What::Object { mos, no_blocks, no_content, dataset, object } => {
            let (objset, mos) = objset(session, mos, &dataset).await?;
            let id = object_number(&objset, &object).await?;
            let parts = Parts { blocks: !no_blocks, content: !no_content };
            object::object(sink, &objset, mos.as_ref(), id, parts).await?;
        }
        What::Block { decompress, pointers, pool, address, .. } => {
            let mos = session.open_pool_without_asking(&pool).await?;
            let (address, unpacked_by, bytes) = read_block(&mos, &address, decompress.as_deref()).await?;
            sink.field("vdev", address.vdev.0.into());
            sink.field("offset", cenote_inspect::dump::Value::Hex(address.offset_bytes));
            sink.field("compression", unpacked_by.into());
            sink.field("bytes", bytes.len().into());
            match pointers {
                true => block::pointers(sink, &bytes),
                false => sink.field("data", cenote_inspect::dump::Value::Raw(bytes.to_vec())),
            }
        }
        What::Zil { dataset } => show_logs(sink, &open(session, &dataset).await?).await?,
        What::Metaslabs { segments, pool } => {
            metaslabs::metaslabs(sink, &session.open_pool_without_asking(&pool).await?, segments).await?;
        }
        What::Ddt { entries, pool } => {
            tables::tables(sink, &session.open_pool_without_asking(&pool).await?, entries).await?;
        }
        What::Features { pool } => {
            features::features(sink, &session.open_pool_without_asking(&pool).await?).await?
        }
    }
    Ok(())
}

async fn open(session: &Session, name: &str) -> Result<Dataset, CliError> {
    session.open_dataset(&name.parse().map_err(CliError::Usage)?).await
}

/// The object set of a dataset, or that of a pool, with its MOS.
async fn objset(session: &Session, is_mos: bool, name: &str) -> Result<(Objset, Option<Mos>), CliError> {
    if is_mos {
        let mos = session.open_pool_without_asking(name).await?;
        return Ok((mos.objset().clone(), Some(mos)));
    }
    // Without the key, the head and the unencrypted parts of all dnodes are still readable.
    Ok((open(session, name).await?.readable_objset().await?, None))
}

async fn object_number(objset: &Objset, text: &str) -> Result<ObjectId, CliError> {
    if let Ok(number) = text.parse() {
        return Ok(ObjectId(number));
    }
    let filesystem = cenote_fs::Filesystem::open(objset.clone()).await?;
    Ok(filesystem.resolve(text.as_bytes(), cenote_fs::LastLink::Keep).await?)
}

async fn show_label(
    session: &Session,
    sink: &mut dyn Sink,
    path: &Path,
    with_ring: bool,
) -> Result<(), CliError> {
    let place = session.caller().place(path)?;
    let opened = session.open_device(&place, OpenOptions::READ_ONLY).await;
    let device = opened.map_err(|error| CliError::NotFound(error.to_string()))?;
    let labels = cenote_pool::label::read_labels(&*device).await;
    if labels.is_empty() {
        let text = format!("{place}: too small for labels (minimum 64 MiB)");
        return Err(CliError::NotFound(text));
    }
    sink.field("path", place.to_string().into());
    label::labels(sink, device.size_bytes(), &labels, with_ring);
    Ok(())
}

/// The address, the algorithm it was decompressed with, and the bytes.
async fn read_block(
    mos: &Mos,
    address: &str,
    decompress: Option<&str>,
) -> Result<(Address, &'static str, bytes::Bytes), CliError> {
    let address: Address = address.parse().map_err(CliError::Usage)?;
    let stored = block::read(mos, &address).await?;
    let Some(algorithm) = decompress else { return Ok((address, "as stored", stored)) };
    let algorithm = (!algorithm.is_empty()).then_some(algorithm);
    let (name, bytes) = block::decompress(&address, &stored, algorithm)?;
    Ok((address, name, bytes))
}

async fn show_logs(sink: &mut dyn Sink, top: &Dataset) -> Result<(), CliError> {
    sink.list("logs");
    for dataset in top.descendants().await? {
        let objset = dataset.readable_objset().await;
        sink.open(dataset.name());
        match objset {
            Ok(objset) => zil::intent_log(sink, dataset.name(), &objset).await,
            Err(error) => sink.field("error", error.to_string().into()),
        }
        sink.close();
    }
    sink.close();
    Ok(())
}

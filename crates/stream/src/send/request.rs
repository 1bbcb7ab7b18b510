//! What `zfs send` is asked for, and the streams that this takes.
//!
//! Idea: a request becomes a [`Plan`]: at most one head, which tells of properties and snapshots, and streams
//! in order. A single stream has a head only with `-p`, `-h` or `-b`; `-R` and `-I` always have one. The plan
//! can be measured and sent; making it reads no data.
//!
//! ```text
//!   request --gather--> file systems, snapshots, properties --order--> streams
//!   plan    BEGIN list END   stream  stream ...   END
//! ```
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`zfs_send_one_cb_impl`, `zfs_send_cb_impl`, `send_prelim_records`).

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::stream::{Begin, DRR_BYTES, End, HeaderType, MAX_NVLIST_BYTES, Record, StreamFeatures};

use super::error::{Result, SendError};
use super::package::{Family, Order, gather};
use super::source::{Resume, SendFlags, SendSource, Since};
use super::{Progress, estimate, send};
use crate::StreamWriter;

/// Which streams are wanted.
#[derive(Debug, Clone)]
pub enum Extent {
    /// One stream, of a snapshot or of a file system or volume as it is on disk.
    One(Since),
    /// `-I`: one of each snapshot after `from`, a snapshot of the same file system or volume, up to this one;
    /// nothing: from the origin of a clone, or from nothing.
    All(Option<String>),
    /// `-R`: the same of all file systems and volumes below.
    Replica(Replica),
}

/// Options of a replication.
#[derive(Debug, Default, Clone)]
pub struct Replica {
    /// The snapshot, without the name of its file system, that the receiver has of all that had it then.
    pub from: Option<String>,
    /// `-I`: snapshots between are sent, too. Without `from` all are.
    pub between: bool,
    /// `-s`: what has not got the snapshot is left out.
    pub skip_missing: bool,
    /// `-X`: file systems and volumes that are left out, with all below.
    pub exclude: Vec<String>,
}

/// What `zfs send` is asked for.
#[derive(Debug, Clone)]
pub struct SendRequest {
    /// The snapshot; for [`Extent::One`], maybe a file system or volume.
    pub dataset: Dataset,
    /// Which streams.
    pub extent: Extent,
    /// What the receiver takes.
    pub flags: SendFlags,
    /// `-p`: properties.
    pub props: bool,
    /// `-b`: received properties rather than those in force.
    pub backup: bool,
    /// `-h`: holds.
    pub holds: bool,
    /// Where a single stream broke off (`-t`).
    pub resume: Resume,
    /// What was received of a snapshot is sent (`-S`).
    pub saved: bool,
}

/// What a sender should hear, although its send goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A file system or volume is younger than the snapshot (told only if details are wanted).
    Younger {
        /// Its name.
        dataset: String,
        /// The snapshot.
        snapshot: String,
    },
    /// A file system or volume has not got the snapshot, and is left out with all below.
    Skipped {
        /// Its name.
        dataset: String,
        /// The snapshot.
        snapshot: String,
    },
    /// A stream could not be made, because its source is missing. The send fails in the end.
    NoSource {
        /// The file system or volume.
        dataset: String,
        /// The snapshot.
        snapshot: String,
        /// The source.
        from: String,
    },
    /// The same, because its source is not earlier.
    NotEarlier {
        /// The file system or volume.
        dataset: String,
        /// The snapshot.
        snapshot: String,
        /// The source.
        from: String,
    },
}

impl Notice {
    /// The send fails in the end.
    pub fn is_failure(&self) -> bool {
        matches!(self, Notice::NoSource { .. } | Notice::NotEarlier { .. })
    }
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Younger { dataset, snapshot } => {
                write!(f, "skipping dataset {dataset}: snapshot {snapshot} does not exist")
            }
            Notice::Skipped { dataset, snapshot } => write!(
                f,
                "WARNING: skipping dataset {dataset} and its children: snapshot {snapshot} does not exist"
            ),
            Notice::NoSource { dataset, snapshot, from } => write!(
                f,
                "WARNING: could not send {dataset}@{snapshot}:\n\
                 incremental source ({dataset}@{from}) does not exist"
            ),
            Notice::NotEarlier { dataset, snapshot, from } => write!(
                f,
                "WARNING: could not send {dataset}@{snapshot}:\n\
                 incremental source ({dataset}@{from}) is not earlier than it"
            ),
        }
    }
}

/// Streams to be made, in order.
#[derive(Debug)]
pub struct Plan {
    head: Option<(Begin, Bytes)>,
    steps: Vec<Step>,
    /// What a sender should hear.
    pub notices: Vec<Notice>,
    request: SendRequest,
}

/// A stream of a plan.
#[derive(Debug, Clone)]
pub struct Step {
    /// The snapshot.
    pub dataset: Dataset,
    /// What the receiver has.
    pub since: Since,
}

impl Plan {
    /// Looks up what a request takes.
    ///
    /// # Errors
    /// A snapshot that was asked for is missing; damage.
    #[boxed]
    pub async fn of(request: SendRequest) -> Result<Plan> {
        let mut notices = Vec::new();
        let (head, steps) = match &request.extent {
            Extent::One(since) => {
                let has_head = request.props || request.holds || request.backup;
                let head = match has_head {
                    true => Some(head(&request, None, &gather(&request, &mut notices).await?)?),
                    false => None,
                };
                (head, vec![Step { dataset: request.dataset.clone(), since: since.clone() }])
            }
            Extent::All(from) => {
                let family = match request.props || request.holds {
                    true => gather(&request, &mut notices).await?,
                    false => Family::default(),
                };
                let head = head(&request, from.as_deref(), &family)?;
                (Some(head), Order::of_one(&request, from.as_deref(), &mut notices).await?)
            }
            Extent::Replica(replica) => {
                let family = gather(&request, &mut notices).await?;
                let head = head(&request, replica.from.as_deref(), &family)?;
                (Some(head), Order::of_family(&request, replica, family, &mut notices).await?)
            }
        };
        Ok(Plan { head, steps, notices, request })
    }

    /// The streams.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How many bytes a stream will have.
    ///
    /// # Errors
    /// Those of [`send`] that metadata can cause.
    #[boxed]
    pub async fn estimate(&self, step: &Step) -> Result<u64> {
        estimate(&self.source(step).await?).await
    }

    /// Bytes besides those of the streams.
    pub fn head_bytes(&self) -> u64 {
        let records = 3 * DRR_BYTES as u64;
        self.head.as_ref().map_or(0, |(_, list)| records + list.len() as u64)
    }

    /// Writes everything.
    ///
    /// # Errors
    /// Those of [`send`].
    #[boxed]
    pub async fn send(&self, writer: &mut StreamWriter, progress: &Progress) -> Result<()> {
        if let Some((begin, list)) = &self.head {
            writer.write(&Record::Begin(begin.clone()), list).await?;
            writer.write(&Record::End(End::default()), &[]).await?;
        }
        for step in &self.steps {
            send(&self.source(step).await?, writer, progress).await?;
        }
        if self.head.is_some() {
            writer.write(&Record::End(End::default()), &[]).await?;
        }
        writer.flush().await?;
        Ok(())
    }

    async fn source(&self, step: &Step) -> Result<SendSource> {
        let source = SendSource::open(&step.dataset, &step.since, self.request.flags).await?;
        let source = source.resumed(self.request.resume).await?;
        if self.request.saved { source.saved().await } else { Ok(source) }
    }
}

/// The head of a package, whose list is empty if it tells of no file system.
fn head(request: &SendRequest, from: Option<&str>, family: &Family) -> Result<(Begin, Bytes)> {
    let name = request.dataset.name();
    let snapshot = request.dataset.snapshot_name().unwrap_or_default();
    let mut list = Nvlist::new();
    let text = |text: &str| NvValue::String(text.as_bytes().to_vec());
    if let Some(from) = from {
        list.insert("fromsnap", text(from));
    }
    list.insert("tosnap", text(snapshot));
    if !matches!(request.extent, Extent::Replica(_)) {
        list.insert("not_recursive", NvValue::Boolean);
    }
    if request.flags.raw {
        list.insert("raw", NvValue::Boolean);
    }
    list.insert("fss", NvValue::Nvlist(family.list()));
    let list = if family.is_empty() { Vec::new() } else { list.encode() };
    if list.len() as u64 > MAX_NVLIST_BYTES {
        return Err(SendError::TooManyProperties { name: name.to_owned() });
    }
    let begin = Begin {
        payload_bytes: list.len() as u32,
        header: HeaderType::Compound,
        features: if request.holds { StreamFeatures::HOLDS } else { StreamFeatures::default() },
        to_name: name.into(),
        ..Begin::default()
    };
    Ok((begin, list.into()))
}

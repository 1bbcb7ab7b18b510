//! The source of a stream: a snapshot, and the receiver's state.
//!
//! Source: OpenZFS `dmu_send.c` (`dmu_send`), `dsl_dataset.c` (`dsl_dataset_is_before`), `dsl_bookmark.c`
//! (`dsl_bookmark_lookup`).

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_dataset::properties::REDACTED_DATASETS;
use cenote_dataset::{Bookmark, Dataset, Dir};
use cenote_format::dsl::names::dataset_field;
use cenote_format::units::{DatasetId, Guid, ObjectId, Txg};
use cenote_object::Objset;
use cenote_tasks::RedactedRun;

use super::error::{Result, SendError};
use super::redaction::RedactionList;
use super::walk::Start;

/// Where an increment is received: `RECV_CLONE_NAME` below the dataset.
const BESIDE: &str = "/%recv";

/// The receiver's abilities, as options of `zfs send`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SendFlags {
    /// `-L`: blocks may be larger than 128 KiB.
    pub large_blocks: bool,
    /// `-e`: embedded blocks stay embedded.
    pub embedded: bool,
    /// `-c`: blocks stay compressed.
    pub compressed: bool,
    /// `-w`: blocks are sent as stored, even encrypted. Implies the other three.
    pub raw: bool,
}

impl SendFlags {
    /// The union of both.
    #[must_use]
    pub fn and(self, other: SendFlags) -> SendFlags {
        SendFlags {
            large_blocks: self.large_blocks || other.large_blocks,
            embedded: self.embedded || other.embedded,
            compressed: self.compressed || other.compressed,
            raw: self.raw || other.raw,
        }
    }
}

/// The receiver's state.
#[derive(Debug, Default, Clone)]
pub enum Since {
    /// Empty: a full stream.
    #[default]
    Nothing,
    /// A snapshot.
    Snapshot(Dataset),
    /// A snapshot of which only the bookmark is here.
    Bookmark(Bookmark),
}

/// The position where a stream broke off.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// The object.
    pub object: ObjectId,
    /// Offset in the object.
    pub offset: u64,
}

/// A stream to be made.
#[derive(Debug, Clone)]
pub struct SendSource {
    pub(super) dataset: Dataset,
    pub(super) objset: Objset,
    pub(super) is_encrypted: bool,
    pub(super) flags: SendFlags,
    pub(super) ancestor: Ancestor,
    pub(super) resume: Resume,
    pub(super) start: Start,
    pub(super) saved: Option<Saved>,
    /// Blocks to leave out.
    pub(super) redaction: Option<RedactionList>,
}

/// The receiver's snapshot; all zeros if none.
#[derive(Debug, Default, Clone)]
pub(super) struct Ancestor {
    pub(super) guid: Guid,
    pub(super) txg: Txg,
    pub(super) ivset_guid: Guid,
    /// It belongs to another dataset.
    pub(super) is_clone: bool,
    pub(super) redact_snaps: Option<Vec<u64>>,
    /// Blocks that the receiver lacks.
    pub(super) lacking: Arc<[RedactedRun]>,
}

/// A partly received snapshot.
#[derive(Debug, Clone)]
pub(super) struct Saved {
    pub(super) to_guid: Guid,
    pub(super) to_name: Vec<u8>,
}

impl SendSource {
    /// A stream of a snapshot, or of a dataset's current state on disk.
    ///
    /// # Errors
    /// `since` is not earlier; the key is missing and the stream is not raw; damage.
    #[boxed]
    pub async fn open(dataset: &Dataset, since: &Since, flags: SendFlags) -> Result<SendSource> {
        let ancestor = Ancestor::find(dataset, since).await?;
        let objset = match flags.raw {
            true => dataset.objset_head().await?,
            false => dataset.objset().await?,
        };
        let is_encrypted = dataset.dir().encryption().await?.is_some();
        let (dataset, resume, start) = (dataset.clone(), Resume::default(), Start::default());
        let (saved, redaction) = (None, None);
        Ok(SendSource { dataset, objset, is_encrypted, flags, ancestor, resume, start, saved, redaction })
    }

    /// Continues at the position where it broke off.
    ///
    /// # Errors
    /// There is no such object.
    #[boxed]
    pub async fn resumed(self, resume: Resume) -> Result<SendSource> {
        if resume == Resume::default() {
            return Ok(self);
        }
        let dnode = self.objset.dnode(resume.object).await?;
        let block = resume.offset / u64::from(dnode.data_block_bytes.max(1));
        Ok(SendSource { start: Start { object: resume.object, block }, resume, ..self })
    }

    /// For a dataset whose receive was interrupted: sends the received part.
    ///
    /// # Errors
    /// No receive was interrupted.
    #[boxed]
    pub async fn saved(self) -> Result<SendSource> {
        let nothing = || SendError::NothingSaved { name: self.dataset.name().to_owned() };
        let to_guid = self.dataset.field(dataset_field::RESUME_TOGUID).await?.ok_or_else(nothing)?;
        let to_name = self.dataset.field(dataset_field::RESUME_TONAME).await?.ok_or_else(nothing)?;
        let to_guid = Guid(to_guid.first().copied().ok_or_else(nothing)?);
        let to_name = to_name.into_iter().map(|byte| byte as u8).take_while(|&byte| byte != 0).collect();
        Ok(SendSource { saved: Some(Saved { to_guid, to_name }), ..self })
    }

    /// Leaves out the blocks on a redaction bookmark's list.
    ///
    /// # Errors
    /// The bookmark has no list, or is of another snapshot.
    #[boxed]
    pub async fn redacted(self, mark: &Bookmark) -> Result<SendSource> {
        if mark.phys.guid != self.dataset.guid() {
            return Err(SendError::NoRedaction { mark: mark.name.clone() });
        }
        let redaction = Some(RedactionList::read(self.dataset.mos(), mark).await?);
        Ok(SendSource { redaction, ..self })
    }

    /// The snapshot's or dataset's name.
    pub fn name(&self) -> &str {
        self.dataset.name()
    }
}

impl Ancestor {
    async fn find(to: &Dataset, since: &Since) -> Result<Ancestor> {
        // A receive beside a dataset belongs to that dataset.
        let to_dir = to.dir().name();
        let to_dir = to_dir.strip_suffix(BESIDE).unwrap_or(to_dir);
        match since {
            Since::Nothing => Ok(Ancestor::default()),
            Since::Snapshot(from) => {
                if !from.is_snapshot() || !is_before(to, from.dir().id(), from.creation_txg()).await? {
                    return Err(not_earlier(to, from.name()));
                }
                let ivset = from.field(dataset_field::IVSET_GUID).await?;
                Ok(Ancestor {
                    guid: from.guid(),
                    txg: from.creation_txg(),
                    ivset_guid: Guid(ivset.and_then(|words| words.first().copied()).unwrap_or(0)),
                    is_clone: from.dir().name() != to_dir,
                    redact_snaps: from.field(REDACTED_DATASETS).await?,
                    lacking: Arc::default(),
                })
            }
            Since::Bookmark(mark) => {
                let (from_dir, _) = mark.name.split_once('#').unwrap_or((&mark.name, ""));
                let dir = to.mos().dataset(from_dir).await?.dir().id();
                let phys = &mark.phys;
                if !is_before(to, dir, phys.creation_txg).await? {
                    return Err(not_earlier(to, &mark.name));
                }
                let list = match phys.redaction_list.0 {
                    0 => None,
                    _ => Some(RedactionList::read(to.mos(), mark).await?),
                };
                Ok(Ancestor {
                    guid: phys.guid,
                    txg: phys.creation_txg,
                    ivset_guid: phys.ivset_guid,
                    is_clone: from_dir != to_dir,
                    lacking: list.as_ref().map(|list| list.runs.clone()).unwrap_or_default(),
                    redact_snaps: list.map(|list| list.snapshots),
                })
            }
        }
    }
}

/// Whether a snapshot (directory and txg) is an ancestor of a dataset, through snapshots and origins.
pub(super) async fn is_before(to: &Dataset, dir: ObjectId, txg: Txg) -> Result<bool> {
    let mos = to.mos();
    let mut at = *to.phys();
    loop {
        if at.is_snapshot() && txg >= at.creation_txg {
            return Ok(false);
        }
        if at.dir == dir {
            return Ok(true);
        }
        let origin = Dir::open_by_id(mos, at.dir).await?.phys().origin;
        if origin.0 == 0 {
            return Ok(false);
        }
        let before = at;
        at = mos.dataset_phys(DatasetId(origin.0)).await?;
        if at.dir == dir && at.creation_txg == txg {
            return Ok(true);
        }
        // Origins are older than their clones, or this would never end.
        if at.creation_txg > before.creation_txg || !at.is_snapshot() {
            return Err(mos.objset().damaged(origin, "is an origin younger than its clone").into());
        }
    }
}

fn not_earlier(to: &Dataset, from: &str) -> SendError {
    SendError::NotEarlier { name: to.name().to_owned(), from: from.to_owned() }
}

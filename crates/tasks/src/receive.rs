//! Begins and aborts receives: the heads that streams fill.
//!
//! ```text
//!   begin   a new file system or volume, empty or a clone: inconsistent until the end
//!           or, for an existing one, a clone of its snapshot, `%recv` below it: the old state stays
//!   ...     the stream's records change that head's objects (cenote-stream)
//!   end     `%recv` and the head are swapped; a snapshot is taken and gets the guid of the sent one
//!   (finish)
//! ```
//!
//! Idea: existing data stay as they are until the end, which is one txg. An interrupted receive is destroyed
//! with its head (`remains`), unless resumable: then its state is kept with the head (`resume`).
//!
//! Source: OpenZFS `dmu_recv.c` (`dmu_recv_begin_check`, `dmu_recv_begin_sync`,
//! `dmu_recv_resume_begin_check`, `dmu_recv_cleanup_ds`), `libzfs_sendrecv.c` (wording).

pub(crate) mod correct;
pub(crate) mod finish;
pub(crate) mod properties;
pub(crate) mod raw;
pub(crate) mod redacted;
pub(crate) mod remains;
pub(crate) mod resume;
mod swap;

use cenote_boxed::boxed;
use cenote_dataset::mos::RECV_CLONE_NAME;
use cenote_dataset::{Dataset, name};
use cenote_engine::history::NO_DETAILS;
use cenote_engine::livelist::make_livelist;
use cenote_engine::logs::without_log;
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_format::dsl::{DS_FLAG_CI_DATASET, DS_FLAG_INCONSISTENT};
use cenote_format::features::{Feature, Since};
use cenote_format::objset::ObjsetType;
use cenote_format::stream::{Begin, BeginFlags, StreamFeatures};
use cenote_format::units::{DatasetId, Guid, ObjectId};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, Result};

use crate::allow::grant_at_creation;
use crate::counts::{Limited, check_count, count_if_others_are};
use crate::create::{empty_origin, parent_of_new, set_at_creation};
use crate::crypt::{NewCrypt, check_encryption, encrypt, plan_encryption, share_key};
use crate::destroy::{destroy_head, unfinished};
use crate::make::{make_dir, make_head};
use crate::new_dataset::Settings;
use crate::receive::raw::{RawKeys, check_base, store_new};
use crate::receive::redacted::RedactedFor;
use crate::receive::resume::{begin_resumable, check_resumed, has_state};
use crate::whole::readable;

/// Pool features that streams require; the dataset activates them.
const FEATURES: [(StreamFeatures, &str); 8] = [
    (StreamFeatures::LZ4, "lz4_compress"),
    (StreamFeatures::ZSTD, "zstd_compress"),
    (StreamFeatures::EMBED_DATA, "embedded_data"),
    (StreamFeatures::LARGE_BLOCKS, "large_blocks"),
    (StreamFeatures::LARGE_DNODE, "large_dnode"),
    (StreamFeatures::LARGE_MICROZAP, "large_microzap"),
    (StreamFeatures::REDACTED, "redacted_datasets"),
    (StreamFeatures::LONGNAME, "longname"),
];
const NEEDS_UPGRADE: &str = "pool must be upgraded to receive this stream.";

/// A receive's stream and target.
#[derive(Debug, Clone)]
pub struct NewReceive {
    /// The file system or volume, `pool/a`.
    pub target: String,
    /// The new snapshot's own name.
    pub snapshot: String,
    /// The stream's BEGIN record.
    pub begin: Begin,
    /// The origin of a new clone.
    pub origin: Option<String>,
    /// Overwrites an existing target (`-F`).
    pub is_forced: bool,
    /// Keeps partial state if interrupted (`-s`).
    pub is_resumable: bool,
    /// Properties of a new dataset.
    pub settings: Settings,
    /// Keys of a raw stream.
    pub raw: Option<RawKeys>,
    /// The stream's redaction snapshots.
    pub redacted: RedactedFor,
}

/// A head being filled by a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiving {
    /// The received file system or volume.
    pub target: String,
    /// The filled head: the target's own, or `%recv` below it.
    pub head: String,
    /// The filled head's number.
    pub id: DatasetId,
}

impl Receiving {
    /// Whether this receive created the target.
    pub fn is_new(&self) -> bool {
        self.head == self.target
    }
}

/// Makes the head for a stream, or finds that of a resumed receive.
///
/// # Errors
/// The pool lacks a feature, the target or its snapshots don't match the stream, or the target is busy.
#[boxed]
pub async fn begin_receive(engine: &Engine, mut new: NewReceive) -> Result<Receiving> {
    name::split_at(&format!("{}@{}", new.target, new.snapshot), '@')?;
    let is_whole = new.begin.from_guid.0 == 0 && new.origin.is_none();
    let crypt = match is_whole && new.raw.is_none() && !new.begin.features.has(StreamFeatures::RESUMING) {
        true => plan_encryption(engine, &new.target, &mut new.settings).await?,
        false => None,
    };
    engine
        .run_when_quiet(SpaceCheck::Normal, || {
            let (new, crypt) = (new.clone(), crypt.clone());
            move |context| {
                // Its head is not mounted before it is complete.
                context.touch_nothing();
                Box::pin(async move { begin_sync(context, &new, crypt).await })
            }
        })
        .await
}

/// Aborts a receive and destroys its head.
///
/// # Errors
/// The head is busy.
#[boxed]
pub async fn abort_receive(engine: &Engine, target: &str) -> Result<()> {
    engine
        .run_when_quiet(SpaceCheck::ExtraReserved, || {
            let target = target.to_owned();
            move |context| {
                context.touch_nothing();
                Box::pin(async move { abort_sync(context, &target).await })
            }
        })
        .await
}

async fn abort_sync(context: &mut SyncContext, target: &str) -> Result<()> {
    if let Some(unfinished) = unfinished(context, target).await? {
        return destroy_head(context, &unfinished).await;
    }
    let head = readable(context.mos().await?.dataset(target).await?).await?;
    match head.phys().is_inconsistent() && !head.is_snapshot() {
        true => destroy_head(context, &head).await,
        false => {
            let why = "does not have any resumable receive state to abort";
            Err(DatasetError::unsuitable(target, why))
        }
    }
}

async fn begin_sync(
    context: &mut SyncContext,
    new: &NewReceive,
    crypt: Option<NewCrypt>,
) -> Result<Receiving> {
    check_features(context, new).await?;
    if new.begin.features.has(StreamFeatures::RESUMING) {
        return resume_sync(context, new).await;
    }
    clear_remains(context, &new.target).await?;
    let target = match context.mos().await?.dataset(&new.target).await {
        Err(DatasetError::NoDataset { .. }) => None,
        found => Some(readable(found?).await?),
    };
    let (head, id) = match target {
        Some(target) => {
            (format!("{}/{RECV_CLONE_NAME}", new.target), begin_below(context, new, &target).await?)
        }
        None => (new.target.clone(), begin_new(context, new, crypt).await?),
    };
    if new.is_resumable {
        begin_resumable(context, id, &new.begin, &new.redacted).await?;
    }
    redacted::note(context, id, new).await?;
    let of_blocks = |asked: StreamFeatures| asked != StreamFeatures::REDACTED;
    let wanted = FEATURES.iter().filter(|(asked, _)| new.begin.features.has(*asked) && of_blocks(*asked));
    context.activate_of_blocks(DatasetId(id.0), &wanted.map(|(_, name)| *name).collect()).await?;
    context.log_of_dataset((&head, id), "receive", NO_DETAILS).await?;
    Ok(Receiving { target: new.target.clone(), head, id: DatasetId(id.0) })
}

/// The pool must have the features that the stream requires.
async fn check_features(context: &SyncContext, new: &NewReceive) -> Result<()> {
    let refuse = |why: &str| Err(DatasetError::unsuitable(&new.target, why));
    let Begin { features, flags, .. } = &new.begin;
    if features.has(StreamFeatures::SA_SPILL) && !context.has(Since::Attributes) {
        return refuse(NEEDS_UPGRADE);
    }
    let edit = context.edit();
    let counts = FeatureCounts::of(&edit);
    for (asked, name) in FEATURES {
        if features.has(asked) && counts.count(name).await?.is_none() {
            return refuse(NEEDS_UPGRADE);
        }
    }
    if features.has(StreamFeatures::REDACTED) && new.redacted.snapshots.is_none() {
        return refuse("invalid backup stream");
    }
    if new.is_resumable && counts.count("extensible_dataset").await?.is_none() {
        return refuse(NEEDS_UPGRADE);
    }
    if features.has(StreamFeatures::RAW) {
        check_encryption(context, &new.target).await?;
        if !flags.has(BeginFlags::SPILL_BLOCK) {
            return refuse(
                "Spill block flag missing for raw send.\n\
                 The zfs software on the sending system must be updated.",
            );
        }
    }
    Ok(())
}

/// Destroys the remains of an interrupted receive, unless it can be resumed.
async fn clear_remains(context: &mut SyncContext, target: &str) -> Result<()> {
    if let Some(unfinished) = unfinished(context, target).await? {
        if has_state(context, ObjectId(unfinished.id().0)).await? {
            let why =
                format!("destination {target} contains partially-complete state from \"zfs receive -s\".");
            return Err(DatasetError::unsuitable(target, why));
        }
        return destroy_head(context, &unfinished).await;
    }
    match context.mos().await?.dataset(target).await {
        Err(DatasetError::NoDataset { .. }) => Ok(()),
        found => {
            let found = readable(found?).await?;
            if !found.phys().is_inconsistent() {
                return Ok(());
            }
            if has_state(context, ObjectId(found.id().0)).await? {
                let why = format!(
                    "destination {target} contains partially-complete state from \"zfs receive -s\"."
                );
                return Err(DatasetError::unsuitable(target, why));
            }
            destroy_head(context, &found).await
        }
    }
}

/// Starts a receive into an existing dataset: makes `%recv`, a clone of one of its snapshots, or empty.
async fn begin_below(context: &mut SyncContext, new: &NewReceive, target: &Dataset) -> Result<ObjectId> {
    let refuse = |why: String| DatasetError::unsuitable(&new.target, why);
    let Begin { flags, from_guid, features, .. } = &new.begin;
    if flags.has(BeginFlags::CLONE) || new.origin.is_some() {
        return Err(refuse("a clone can't be received into a dataset that exists".into()));
    }
    let is_encrypted = target.dir().encryption().await?.is_some();
    let is_raw = features.has(StreamFeatures::RAW);
    if from_guid.0 == 0 {
        refuse_replacing(new, target, is_encrypted || is_raw).await?;
    }
    if target.snapshot(&new.snapshot).await?.is_some() {
        return Err(DatasetError::DatasetExists { name: format!("{}@{}", new.target, new.snapshot).into() });
    }
    let is_volume = kind_of(new)? == ObjsetType::Zvol;
    if let Some(child) = target.children().await?.first().filter(|_| is_volume) {
        let child = child.name();
        return Err(refuse(format!("destination has children (eg. {child})\ncannot overwrite with a ZVOL")));
    }
    check_count(context, Limited::Snapshots, &[(target.dir(), 1)], None).await?;
    if is_encrypted && features.has(StreamFeatures::EMBED_DATA) {
        return Err(refuse("incompatible embedded data stream feature with encrypted receive.".into()));
    }
    if from_guid.0 != 0 && is_raw && !is_encrypted {
        return Err(refuse("cannot perform raw receive on top of existing unencrypted dataset".into()));
    }
    let base = match from_guid.0 {
        0 => None,
        _ => Some(base_of(context, new, target).await?),
    };
    let dir = make_dir(context, Some(target.dir().id()), RECV_CLONE_NAME).await?;
    let origin = match &base {
        Some(base) => Some(ObjectId(base.id().0)),
        None => empty_origin(context).await?,
    };
    let id = make_head(context, dir, origin, flags_of(&new.begin)).await?;
    match base {
        Some(base) => begin_as(context, new, dir, id, &base).await?,
        None => _ = context.make_objset(DatasetId(id.0), kind_of(new)?).await?,
    }
    Ok(id)
}

/// A full stream replaces an existing dataset only with `-F`, and only if that has neither snapshots nor an
/// origin and both are unencrypted.
async fn refuse_replacing(new: &NewReceive, target: &Dataset, is_encrypted: bool) -> Result<()> {
    let name = &new.target;
    let why = if !new.is_forced {
        format!("destination '{name}' exists\nmust specify -F to overwrite it")
    } else if let Some(snapshot) = target.snapshots().await?.first() {
        format!("destination has snapshots (eg. {})\nmust destroy them to overwrite it", snapshot.name())
    } else if target.origin().await?.is_some() {
        format!("destination '{name}' is a clone\nmust destroy it to overwrite it")
    } else if is_encrypted {
        "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one \
         with an encrypted one"
            .into()
    } else {
        return Ok(());
    };
    Err(DatasetError::unsuitable(name, why))
}

/// The snapshot that an increment applies to: its own base, or the last one if nothing has changed since. A
/// raw increment needs its own base.
async fn base_of(context: &SyncContext, new: &NewReceive, target: &Dataset) -> Result<Dataset> {
    let name = &new.target;
    let snapshots = target.snapshots().await?;
    let Some(base) = snapshots.iter().find(|snapshot| snapshot.guid() == new.begin.from_guid) else {
        let why = format!("most recent snapshot of {name} does not\nmatch incremental source");
        return Err(DatasetError::unsuitable(name, why));
    };
    let newest = snapshots.last().filter(|_| !new.is_forced).unwrap_or(base);
    if !new.is_forced
        && (new.raw.is_some() && newest.id() != base.id() || has_changed_since(target, base).await?)
    {
        let why = format!("destination {name} has been modified\nsince most recent snapshot");
        return Err(DatasetError::unsuitable(name, why));
    }
    redacted::check_base(new, base).await?;
    let base = newest;
    refuse_split_blocks(new, base).await?;
    match &new.raw {
        Some(keys) => check_base(context, keys, target, base).await?,
        // The base's key is needed before the first record.
        None => _ = base.key().await?,
    }
    if base.creation_txg() >= context.txg() {
        return Err(DatasetError::NextTxg { name: base.name().into() });
    }
    Ok(base.clone())
}

/// Large blocks received whole cannot be overwritten in parts.
async fn refuse_split_blocks(new: &NewReceive, base: &Dataset) -> Result<()> {
    let Some(large_blocks) = Feature::by_name("large_blocks") else { return Ok(()) };
    if base.field(large_blocks.guid).await?.is_some() && !new.begin.features.has(StreamFeatures::LARGE_BLOCKS)
    {
        let why = "incremental send stream requires -L (--large-block), to match previous receive.";
        return Err(DatasetError::unsuitable(&new.target, why));
    }
    Ok(())
}

/// Whether a head differs from its last snapshot (`dsl_dataset_modified_since_snap`).
async fn has_changed_since(head: &Dataset, snapshot: &Dataset) -> Result<bool> {
    if head.phys().bp.logical_birth() <= snapshot.creation_txg() {
        return Ok(false);
    }
    // A newer birth alone may be due to the log or accounts: compare the objects.
    let (now, then) = (head.objset_head().await?, snapshot.objset_head().await?);
    let raw = |dnode: &Option<cenote_format::dnode::Dnode>| dnode.as_ref().map(|dnode| dnode.raw().to_vec());
    Ok(raw(&now.phys().meta_dnode) != raw(&then.phys().meta_dnode))
}

/// Starts a receive into a new dataset: empty, or a clone.
async fn begin_new(context: &mut SyncContext, new: &NewReceive, crypt: Option<NewCrypt>) -> Result<ObjectId> {
    let name = &new.target;
    let refuse = |why: &str| DatasetError::unsuitable(name, why);
    let Begin { flags, from_guid, features, .. } = &new.begin;
    if (from_guid.0 != 0 || flags.has(BeginFlags::CLONE)) && new.origin.is_none() {
        return Err(refuse(&format!("destination '{name}' does not exist")));
    }
    if from_guid.0 == 0 && new.origin.is_some() && !flags.has(BeginFlags::FREERECORDS) {
        return Err(refuse("a full stream without free records can't be received as a clone"));
    }
    let parent = parent_of_new(context, name).await?;
    check_count(context, Limited::Filesystems, &[(parent.dir(), 1)], None).await?;
    check_count(context, Limited::Snapshots, &[(parent.dir(), 1)], None).await?;
    let origin = match &new.origin {
        Some(origin) => Some(origin_of(context, new, origin).await?),
        None => None,
    };
    if crypt.is_some() {
        check_encryption(context, name).await?;
    }
    let is_encrypted = crypt.is_some() || is_encrypted(origin.as_ref()).await?;
    if is_encrypted && features.has(StreamFeatures::EMBED_DATA) {
        return Err(refuse("incompatible embedded data stream feature with encrypted receive."));
    }
    let (_, own) = name::split_child(name)?;
    let kind = kind_of(new)?;
    let begins_with = match &origin {
        Some(origin) => Some(ObjectId(origin.id().0)),
        None => empty_origin(context).await?,
    };
    let dir = make_dir(context, Some(parent.dir().id()), own).await?;
    let id = make_head(context, dir, begins_with, flags_of(&new.begin)).await?;
    grant_at_creation(context, parent.dir(), dir).await?;
    count_if_others_are(context, &context.mos().await?.dataset(name).await?).await?;
    if let Some(crypt) = &crypt {
        encrypt(context, dir, id, crypt).await?;
    }
    set_at_creation(context, DatasetId(id.0), &new.settings).await?;
    match origin {
        Some(origin) => {
            make_livelist(context, dir).await?;
            begin_as(context, new, dir, id, &origin).await?;
        }
        None => {
            context.make_objset(DatasetId(id.0), kind).await?;
            if let Some(keys) = &new.raw {
                store_new(context, dir, id, keys).await?;
            }
        }
    }
    Ok(id)
}

async fn is_encrypted(origin: Option<&Dataset>) -> Result<bool> {
    match origin {
        Some(origin) => Ok(origin.dir().encryption().await?.is_some()),
        None => Ok(false),
    }
}

async fn origin_of(context: &SyncContext, new: &NewReceive, origin: &str) -> Result<Dataset> {
    name::split_at(origin, '@')?;
    let found = readable(context.mos().await?.dataset(origin).await?).await?;
    let from = new.begin.from_guid;
    if from != Guid(0) && found.guid() != from {
        let why = format!("most recent snapshot of {} does not\nmatch incremental source", new.target);
        return Err(DatasetError::unsuitable(&new.target, why));
    }
    redacted::check_base(new, &found).await?;
    refuse_split_blocks(new, &found).await?;
    if found.creation_txg() >= context.txg() {
        return Err(DatasetError::NextTxg { name: origin.into() });
    }
    match &new.raw {
        Some(keys) => check_base(context, keys, &found, &found).await?,
        None => _ = found.key().await?,
    }
    Ok(found)
}

/// Starts a head from a snapshot.
async fn begin_as(
    context: &mut SyncContext,
    new: &NewReceive,
    dir: ObjectId,
    id: ObjectId,
    base: &Dataset,
) -> Result<()> {
    share_key(context, base.dir(), dir).await?;
    match new.raw {
        // A raw stream rewrites the head, without the key.
        Some(_) => Ok(()),
        None => without_log(context, DatasetId(id.0)).await,
    }
}

fn flags_of(begin: &Begin) -> u64 {
    let ignores_case = begin.flags.has(BeginFlags::CI_DATA);
    DS_FLAG_INCONSISTENT | if ignores_case { DS_FLAG_CI_DATASET } else { 0 }
}

fn kind_of(new: &NewReceive) -> Result<ObjsetType> {
    match new.begin.objset_type {
        2 => Ok(ObjsetType::Zfs),
        3 => Ok(ObjsetType::Zvol),
        other => Err(DatasetError::unsuitable(&new.target, format!("invalid record type: {other:#x}"))),
    }
}

/// Resumes an interrupted receive.
async fn resume_sync(context: &mut SyncContext, new: &NewReceive) -> Result<Receiving> {
    let (head, found) = match unfinished(context, &new.target).await? {
        Some(found) if new.begin.from_guid.0 == 0 && !new.is_forced => {
            let why = format!(
                "Resuming recv on existing destination '{}'\nmust specify -F to overwrite it",
                found.dir().parent().map_or("", |parent| parent.name())
            );
            return Err(DatasetError::unsuitable(&new.target, why));
        }
        Some(found) => (format!("{}/{RECV_CLONE_NAME}", new.target), found),
        None => {
            let found = match context.mos().await?.dataset(&new.target).await {
                Err(DatasetError::NoDataset { .. }) => {
                    let why = format!("destination '{}' does not exist", new.target);
                    return Err(DatasetError::unsuitable(&new.target, why));
                }
                found => readable(found?).await?,
            };
            (new.target.clone(), found)
        }
    };
    check_resumed(&found, &new.begin).await?;
    redacted::check_resumed(new, &found).await?;
    if new.raw.is_none() {
        // The head may still be cached with a key unloaded since.
        found.key().await?;
    }
    context.quiet(&found)?;
    let id = ObjectId(found.id().0);
    context.log_of_dataset((&head, id), "resume receive", NO_DETAILS).await?;
    Ok(Receiving { target: new.target.clone(), head, id: DatasetId(id.0) })
}

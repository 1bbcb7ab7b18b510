//! The beginning of a stream: the identity of its snapshot, and the features that its receiver needs.
//!
//! Source: OpenZFS `dmu_send.c` (`setup_featureflags`, `create_begin_record`, `dmu_send_impl`).

use bytes::Bytes;
use cenote_dataset::FeatureState;
use cenote_dataset::properties::REDACTED_DATASETS;
use cenote_format::dsl::DS_FLAG_CI_DATASET;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::objset::ObjsetType;
use cenote_format::stream::{Begin, BeginFlags, HeaderType, StreamFeatures};
use cenote_format::units::ObjectId;
use cenote_object::Zap;

use super::error::{Result, SendError};
use super::raw::crypt_keydata;
use super::source::SendSource;

/// `MASTER_NODE_OBJ`: the ZAP of a file system's own settings.
const MASTER_NODE_OBJ: ObjectId = ObjectId(1);
/// `ZPL_VERSION_SA`: the first version with attributes in spill blocks.
const ZPL_VERSION_SA: u64 = 5;

/// Features that a dataset has used, by the flag for receivers.
const LARGE_BLOCKS: &str = "org.open-zfs:large_blocks";
const ZSTD: &str = "org.freebsd:zstd_compress";
const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
const LONGNAME: &str = "org.zfsonlinux:longname";
const LARGE_MICROZAP: &str = "com.klarasystems:large_microzap";
/// Features that a pool uses.
const EMBEDDED_DATA: &str = "com.delphix:embedded_data";
const LZ4: &str = "org.illumos:lz4_compress";

pub(super) async fn begin(source: &SendSource) -> Result<(Begin, Bytes)> {
    let features = features(source).await?;
    let payload = payload(source, features).await?;
    let (dataset, phys) = (&source.dataset, source.dataset.phys());
    let mut flags = BeginFlags::FREERECORDS | BeginFlags::SPILL_BLOCK;
    if source.ancestor.is_clone {
        flags = flags | BeginFlags::CLONE;
    }
    if phys.flags & DS_FLAG_CI_DATASET != 0 {
        flags = flags | BeginFlags::CI_DATA;
    }
    let (to_guid, to_name) = match &source.saved {
        Some(saved) => (saved.to_guid, saved.to_name.clone()),
        None if dataset.is_snapshot() => (dataset.guid(), dataset.name().into()),
        None => (dataset.guid(), format!("{}@--head--", dataset.name()).into()),
    };
    let begin = Begin {
        payload_bytes: payload.len() as u32,
        header: HeaderType::Substream,
        features,
        creation_time: phys.creation_time_s,
        objset_type: u64::from(source.objset.phys().objset_type) as u32,
        flags,
        to_guid,
        from_guid: source.ancestor.guid,
        to_name,
    };
    Ok((begin, payload))
}

async fn features(source: &SendSource) -> Result<StreamFeatures> {
    let (flags, is_encrypted) = (source.flags, source.is_encrypted);
    let of_pool = source.dataset.mos().features().await?;
    let is_active = |guid: &str| {
        of_pool.iter().any(|(feature, state)| feature.guid == guid && *state == FeatureState::Active)
    };
    let mut features = StreamFeatures::default();
    if has_spill_blocks(source).await? {
        features = features | StreamFeatures::SA_SPILL;
    }
    if (flags.raw || flags.large_blocks) && uses(source, LARGE_BLOCKS).await? {
        features = features | StreamFeatures::LARGE_BLOCKS;
    }
    if (flags.raw || flags.embedded) && !is_encrypted && is_active(EMBEDDED_DATA) {
        features = features | StreamFeatures::EMBED_DATA;
    }
    if flags.raw || flags.compressed {
        features = features | StreamFeatures::COMPRESSED;
    }
    if flags.raw && is_encrypted {
        features = features | StreamFeatures::RAW;
    }
    let as_stored = StreamFeatures::COMPRESSED.0 | StreamFeatures::RAW.0;
    if features.0 & (as_stored | StreamFeatures::EMBED_DATA.0) != 0 && is_active(LZ4) {
        features = features | StreamFeatures::LZ4;
    }
    if features.0 & as_stored != 0 && uses(source, ZSTD).await? {
        features = features | StreamFeatures::ZSTD;
    }
    if source.resume != Default::default() {
        features = features | StreamFeatures::RESUMING;
    }
    if source.redaction.is_some() {
        features = features | StreamFeatures::REDACTED;
    }
    if uses(source, LARGE_DNODE).await? {
        features = features | StreamFeatures::LARGE_DNODE;
    }
    if uses(source, LONGNAME).await? {
        features = features | StreamFeatures::LONGNAME;
    }
    if uses(source, LARGE_MICROZAP).await? {
        if !features.has(StreamFeatures::LARGE_BLOCKS) {
            return Err(SendError::LargeMicrozap { name: source.name().to_owned() });
        }
        features = features | StreamFeatures::LARGE_MICROZAP;
    }
    Ok(features)
}

async fn uses(source: &SendSource, feature: &str) -> Result<bool> {
    Ok(source.dataset.field(feature).await?.is_some())
}

async fn has_spill_blocks(source: &SendSource) -> Result<bool> {
    if source.objset.phys().objset_type != ObjsetType::Zfs {
        return Ok(false);
    }
    let master = Zap::open_id(&source.objset, MASTER_NODE_OBJ).await?;
    Ok(master.get_u64("VERSION").await?.is_some_and(|version| version >= ZPL_VERSION_SA))
}

async fn payload(source: &SendSource, features: StreamFeatures) -> Result<Bytes> {
    let mut list = Nvlist::new();
    let redacted = match &source.redaction {
        Some(redaction) => Some(redaction.snapshots.clone()),
        None => source.dataset.field(REDACTED_DATASETS).await?,
    };
    if let Some(guids) = redacted {
        list.insert("redact_snaps", NvValue::Uint64Array(guids));
    }
    if let Some(guids) = &source.ancestor.redact_snaps {
        list.insert("redact_from_snaps", NvValue::Uint64Array(guids.clone()));
    }
    if features.has(StreamFeatures::RESUMING) {
        list.insert("resume_object", NvValue::Uint64(source.resume.object.0));
        list.insert("resume_offset", NvValue::Uint64(source.resume.offset));
    }
    if features.has(StreamFeatures::RAW) {
        list.insert("crypt_keydata", NvValue::Nvlist(crypt_keydata(source).await?));
    }
    Ok(if list.is_empty() { Bytes::new() } else { list.encode_native().into() })
}

//! Feature flags: enabling them and counting their users.
//!
//! A dataset whose properties ask for blocks of a feature counts as its user before the first such block is
//! written; OpenZFS waits for the block. Both are correct: at worst, a reader needs a feature too early.
//!
//! Source: OpenZFS `zfeature.c` (`feature_enable_sync`, `feature_sync`).

use std::collections::BTreeSet;

use cenote_boxed::boxed;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_dataset::{Dataset, FeatureState};
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::DMU_POOL_DIRECTORY_OBJECT;
use cenote_format::features::{Feature, Since};
use cenote_format::objset::{
    OBJSET_FLAG_PROJECTQUOTA_COMPLETE, OBJSET_FLAG_USERACCOUNTING_COMPLETE,
    OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE, ObjsetType,
};
use cenote_format::props::SPA_COMPRESSMASK;
use cenote_format::units::{DatasetId, ObjectId, SPA_OLD_MAXBLOCKSIZE};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{NewZap, Result, ZapEdit, ZapValue};

use crate::context::SyncContext;
use crate::engine::Engine;

/// `ZIO_CHECKSUM_MASK`: above it is the flag to verify duplicates.
const CHECKSUM_MASK: u64 = 0xff;
/// Features that count more than bytes by user and group.
const COUNTED: [(&str, u64); 2] = [
    ("userobj_accounting", OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE),
    ("project_quota", OBJSET_FLAG_PROJECTQUOTA_COMPLETE),
];

impl SyncContext {
    /// Makes a ZAP listed in the object directory.
    #[boxed]
    pub async fn make_linked_zap(&mut self, name: &str) -> Result<ObjectId> {
        let edit = self.edit();
        let id = NewZap::of(ObjectType::ZAP_METADATA).create(&edit).await?;
        ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).add(name, id.0).await?;
        Ok(id)
    }

    /// Users of a feature; `None`: it is disabled.
    #[boxed]
    pub async fn count_of(&self, feature: &Feature) -> Result<Option<u64>> {
        FeatureCounts::of(&self.edit()).count(feature.name).await
    }

    /// Makes a dataset a user of a feature (`dsl_dataset_activate_feature`).
    #[boxed]
    pub async fn activate_feature(
        &mut self,
        dataset: ObjectId,
        feature: &'static Feature,
        value: ZapValue,
    ) -> Result<()> {
        self.zapify(dataset).await?;
        ZapEdit::new(&self.edit(), dataset).update(feature.guid, &value).await?;
        self.use_feature(feature.name, 1).await
    }

    /// Turns an object with only a bonus into a ZAP for more fields (`dmu_object_zapify`).
    #[boxed]
    pub async fn zapify(&mut self, object: ObjectId) -> Result<()> {
        let edit = self.edit();
        if edit.view().head(object).await?.object_type.is_zap() {
            return Ok(());
        }
        edit.set_type(object, ObjectType::ZAP_METADATA).await?;
        NewZap::of(ObjectType::ZAP_METADATA).fill(&edit, object).await?;
        self.use_feature("extensible_dataset", 1).await
    }

    /// A nonzero number among a dataset's extra fields.
    #[boxed]
    pub async fn dataset_field(&self, id: ObjectId, field: &str) -> Result<Option<ObjectId>> {
        let edit = self.edit();
        if !edit.view().head(id).await?.object_type.is_zap() {
            return Ok(None);
        }
        let found = ZapEdit::new(&edit, id).get(field).await?.and_then(|value| value.as_u64());
        Ok(found.filter(|&id| id != 0).map(ObjectId))
    }

    /// Adds `delta` users to an enabled feature, by its name after `feature@`.
    #[boxed]
    pub async fn use_feature(&mut self, name: &str, delta: i64) -> Result<()> {
        let count = FeatureCounts::of(&self.edit()).change(name, delta).await?;
        if let Some(feature) = Feature::by_name(name) {
            self.note_in_labels(feature, count);
        }
        Ok(())
    }

    /// Later tasks write according to the new count; labels list active features needed to read the MOS.
    pub fn note_in_labels(&mut self, feature: &'static Feature, count: u64) {
        self.features_changed = true;
        let in_labels = &mut self.engine.config.lock().features_for_read;
        let listed = in_labels.iter().position(|guid| guid == feature.guid);
        match listed {
            Some(index) if count == 0 => _ = in_labels.remove(index),
            None if count > 0 && feature.mos => {
                in_labels.push(feature.guid.to_owned());
                in_labels.sort();
            }
            _ => return,
        }
        self.config_changed = true;
    }

    /// Enlarges gang headers if the last txg's were too small (`zio_write_gang_block`).
    pub(crate) async fn activate_gang_headers(&mut self) -> Result<()> {
        const NAME: &str = "dynamic_gang_header";
        let is_wanted = self.pool().txg_writes().take_cramped() && !self.syncing.features.large_gang_headers;
        if !is_wanted || FeatureCounts::of(&self.edit()).count(NAME).await? != Some(0) {
            return Ok(());
        }
        self.begin_writing().await?;
        self.use_feature(NAME, 1).await
    }

    /// Activates `zilsaxattr` (attribute records) while a file system has a log.
    pub(crate) async fn use_log_feature(&mut self, dataset: ObjectId, has_log: bool) -> Result<()> {
        let Some(feature) = Feature::by_name("zilsaxattr") else { return Ok(()) };
        if self.count_of(feature).await?.is_none() {
            return Ok(());
        }
        let edit = self.edit();
        let fields = ZapEdit::new(&edit, dataset);
        let is_zap = edit.view().head(dataset).await?.object_type.is_zap();
        let uses = is_zap && fields.get(feature.guid).await?.is_some();
        match (uses, has_log) {
            (false, true) => self.activate_feature(dataset, feature, ZapValue::from(0)).await,
            (true, false) => {
                fields.remove(feature.guid).await?;
                self.use_feature(feature.name, -1).await
            }
            _ => Ok(()),
        }
    }

    /// Activates per-owner accounting; returns the objset's flags (`dmu_objset_create_impl`).
    pub(crate) async fn count_owners(&mut self, id: DatasetId, kind: ObjsetType) -> Result<u64> {
        let mut flags = if self.has(Since::Userspace) { OBJSET_FLAG_USERACCOUNTING_COMPLETE } else { 0 };
        if kind != ObjsetType::Zfs {
            return Ok(flags);
        }
        for (name, flag) in COUNTED {
            let Some(feature) = Feature::by_name(name) else { continue };
            if self.count_of(feature).await?.is_some() {
                self.activate_feature(ObjectId(id.0), feature, ZapValue::from(0)).await?;
                flags |= flag;
            }
        }
        Ok(flags)
    }
}

impl Engine {
    pub(crate) async fn activate_missing(&self, name: &str) -> Result<()> {
        let dataset = self.mos().await?.dataset(name).await?;
        if dataset.is_snapshot() || missing(&dataset).await?.is_empty() {
            return Ok(());
        }
        let id = dataset.id();
        self.run(move |context| {
            context.touch_nothing();
            Box::pin(async move { context.activate_missing(id).await })
        })
        .await
    }
}

impl SyncContext {
    pub(crate) async fn activate_missing(&mut self, id: DatasetId) -> Result<()> {
        let dataset = self.mos().await?.dataset_by_id(id).await?;
        self.activate_missing_of(&dataset).await
    }

    pub(crate) async fn activate_missing_of(&mut self, dataset: &Dataset) -> Result<()> {
        self.activate(dataset.id(), missing(dataset).await?).await
    }

    /// Adds the features of shared or received blocks.
    #[boxed]
    pub async fn activate_of_blocks(
        &mut self,
        id: DatasetId,
        features: &BTreeSet<&'static str>,
    ) -> Result<()> {
        if features.is_empty() {
            return Ok(());
        }
        let dataset = self.mos().await?.dataset_by_id(id).await?;
        let wanted: Vec<&str> = features.iter().copied().collect();
        self.activate(id, not_used(&dataset, &wanted).await?).await
    }

    async fn activate(&mut self, id: DatasetId, features: Vec<&'static Feature>) -> Result<()> {
        for feature in features {
            self.activate_feature(ObjectId(id.0), feature, ZapValue::from(0)).await?;
        }
        Ok(())
    }
}

/// Features that the properties need, the pool has, and the dataset does not use yet.
pub(crate) async fn missing(dataset: &Dataset) -> Result<Vec<&'static Feature>> {
    let names = ["checksum", "dedup", "compression", "recordsize", "volblocksize", "dnodesize", "longname"];
    let numbers = dataset.numbers(names).await?;
    let needed = names.iter().zip(numbers).filter_map(|(property, number)| feature_of(property, number));
    not_used(dataset, &needed.collect::<Vec<&str>>()).await
}

async fn not_used(dataset: &Dataset, wanted: &[&str]) -> Result<Vec<&'static Feature>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut missing = Vec::new();
    for (feature, state) in dataset.mos().features().await? {
        let is_wanted =
            feature.per_dataset && wanted.contains(&feature.name) && state != FeatureState::Disabled;
        if is_wanted && dataset.field(feature.guid).await?.is_none() {
            missing.push(feature);
        }
    }
    Ok(missing)
}

pub(crate) fn features_of_block(bp: &Blkptr) -> impl Iterator<Item = &'static str> {
    let asked = [
        ("checksum", u64::from(bp.checksum_id())),
        ("compression", u64::from(bp.compression_id())),
        ("recordsize", bp.lsize().0),
    ];
    let of_birth = bp.is_rewritten().then_some("physical_rewrite");
    asked.into_iter().filter_map(|(property, number)| feature_of(property, number)).chain(of_birth)
}

/// The feature that a property's value needs.
pub fn feature_of(property: &str, number: u64) -> Option<&'static str> {
    match property {
        "checksum" | "dedup" => match Checksum::try_from((number & CHECKSUM_MASK) as u8).ok()? {
            Checksum::Sha512 => Some("sha512"),
            Checksum::Skein => Some("skein"),
            Checksum::EdonR => Some("edonr"),
            Checksum::Blake3 => Some("blake3"),
            _ => None,
        },
        "compression" => match Compression::try_from((number & SPA_COMPRESSMASK) as u8).ok()? {
            Compression::Zstd => Some("zstd_compress"),
            Compression::Lz4 => Some("lz4_compress"),
            _ => None,
        },
        "recordsize" | "volblocksize" if number > SPA_OLD_MAXBLOCKSIZE => Some("large_blocks"),
        "dnodesize" if number != 0 => Some("large_dnode"),
        "longname" if number != 0 => Some("longname"),
        "filesystem_limit" | "snapshot_limit" if number != u64::MAX => Some("filesystem_limits"),
        _ => None,
    }
}

//! Facts about a dataset, as properties.

use std::collections::BTreeMap;

use cenote_format::dsl::names::{dataset_field, dir_field};
use cenote_format::objset::ObjsetType;
use cenote_format::units::ObjectId;
use cenote_object::{DatasetError, Objset, Result, Zap};

use crate::dataset::{Dataset, DatasetKind};
use crate::keys::KeyStatus;
use crate::properties::Value;

/// `MASTER_NODE_OBJ`: ZAP of a file system's settings.
const MASTER_NODE_OBJ: ObjectId = ObjectId(1);
/// `ZVOL_OBJ`: volume content.
const ZVOL_OBJ: ObjectId = ObjectId(1);
/// `ZVOL_ZAP_OBJ`: volume size.
const ZVOL_ZAP_OBJ: ObjectId = ObjectId(2);

/// A redacted dataset's field with the snapshots for which it was redacted, guids.
pub const REDACTED_DATASETS: &str = "com.delphix:redacted_datasets";

/// Properties stored in the content, which read its first blocks.
const OF_CONTENT: [&str; 6] =
    ["volsize", "volblocksize", "version", "utf8only", "normalization", "casesensitivity"];
/// Quotas of users, groups and projects without their own, also stored in the content.
const DEFAULT_QUOTAS: [&str; 6] = [
    "defaultuserquota",
    "defaultgroupquota",
    "defaultprojectquota",
    "defaultuserobjquota",
    "defaultgroupobjquota",
    "defaultprojectobjquota",
];
const OF_ENCRYPTION: [&str; 7] =
    ["keystatus", "encryption", "keyformat", "pbkdf2iters", "pbkdf2salt", "keyguid", "encryptionroot"];
const OF_SPACE: [&str; 12] = [
    "used",
    "referenced",
    "compressratio",
    "refcompressratio",
    "logicalreferenced",
    "written",
    "logicalused",
    "usedbysnapshots",
    "usedbydataset",
    "usedbyrefreservation",
    "usedbychildren",
    "available",
];
const OF_SNAPSHOT: [&str; 5] = ["userrefs", "defer_destroy", "numclones", "clones", "ivsetguid"];

/// Pure facts, without default or source.
pub(super) fn is_fact_only(name: &str) -> bool {
    matches!(name, "version" | "normalization" | "casesensitivity" | "utf8only")
        || DEFAULT_QUOTAS.contains(&name)
}

pub(super) type Wanted<'a> = dyn Fn(&str) -> bool + Sync + 'a;

pub(super) struct Facts {
    pub(super) kind: DatasetKind,
    pub(super) head_kind: DatasetKind,
    values: BTreeMap<&'static str, Value>,
}

impl Facts {
    pub(super) fn get(&self, name: &str) -> Option<Value> {
        self.values.get(name).cloned()
    }

    fn number(&mut self, name: &'static str, number: u64) {
        self.values.insert(name, Value::Number(number));
    }

    fn text(&mut self, name: &'static str, text: impl Into<String>) {
        self.values.insert(name, Value::Text(text.into()));
    }

    pub(super) async fn gather(dataset: &Dataset, is_wanted: &Wanted<'_>) -> Result<Facts> {
        let any_of = |names: &[&str]| names.iter().any(|name| is_wanted(name));
        let head_kind = match dataset.content_type().await? {
            ObjsetType::Zvol => DatasetKind::Volume,
            _ => DatasetKind::Filesystem,
        };
        let kind = if dataset.is_snapshot() { DatasetKind::Snapshot } else { head_kind };
        let mut facts = Facts { kind, head_kind, values: BTreeMap::new() };
        facts.add_identity(dataset);
        if any_of(&OF_SPACE) {
            facts.add_space(dataset).await?;
        }
        match kind {
            DatasetKind::Snapshot if !any_of(&OF_SNAPSHOT) => {}
            DatasetKind::Snapshot => facts.add_snapshot(dataset, is_wanted).await?,
            _ => facts.add_head(dataset, is_wanted).await?,
        }
        if is_wanted("redact_snaps")
            && let Some(guids) = dataset.field(REDACTED_DATASETS).await?
        {
            let guids: Vec<String> = guids.iter().map(u64::to_string).collect();
            facts.text("redact_snaps", guids.join(","));
        }
        if any_of(&OF_ENCRYPTION) {
            facts.add_encryption(dataset).await?;
        }
        // An unfinished receive may lack all of this.
        if !dataset.phys().is_inconsistent() && (any_of(&OF_CONTENT) || any_of(&DEFAULT_QUOTAS)) {
            facts.add_content(&dataset.readable_objset().await?).await?;
        }
        Ok(facts)
    }

    fn add_identity(&mut self, dataset: &Dataset) {
        let phys = dataset.phys();
        self.text("name", dataset.name());
        self.text("type", self.kind.to_string());
        self.number("creation", phys.creation_time_s);
        self.number("createtxg", phys.creation_txg.0);
        self.number("guid", phys.guid.0);
        self.number("objsetid", dataset.id().0);
        self.number("unique", phys.unique_bytes);
        self.number("inconsistent", phys.is_inconsistent().into());
    }

    async fn add_space(&mut self, dataset: &Dataset) -> Result<()> {
        let space = dataset.space().await?;
        self.number("used", space.used);
        self.number("referenced", space.referenced);
        self.number("compressratio", space.compress_ratio_percent);
        self.number("refcompressratio", space.ref_compress_ratio_percent);
        self.number("logicalreferenced", space.logical_referenced);
        // The first version has no predecessor to compare with.
        if dataset.phys().prev_snapshot.0 != 0 {
            self.number("written", space.written);
        }
        if let Some(bytes) = space.logical_used {
            self.number("logicalused", bytes);
        }
        if let Some(parts) = space.breakdown {
            self.number("usedbysnapshots", parts.snapshots_bytes);
            self.number("usedbydataset", parts.head_bytes);
            self.number("usedbyrefreservation", parts.refreservation_bytes);
            let children = parts.children_bytes.saturating_add(parts.children_reservation_bytes);
            self.number("usedbychildren", children);
        }
        if !dataset.is_snapshot() {
            self.number("available", dataset.available().await?);
        }
        Ok(())
    }

    async fn add_snapshot(&mut self, dataset: &Dataset, is_wanted: &Wanted<'_>) -> Result<()> {
        if is_wanted("ivsetguid")
            && let Some(words) = dataset.field(dataset_field::IVSET_GUID).await?
        {
            self.number("ivsetguid", words.first().copied().unwrap_or_default());
        }
        self.number("userrefs", dataset.holds().await?.len() as u64);
        self.number("defer_destroy", dataset.is_deferred_destroy().into());
        let clones: Vec<String> = dataset.clones().await?.iter().map(|c| c.name().to_owned()).collect();
        self.number("numclones", clones.len() as u64);
        if !clones.is_empty() {
            self.text("clones", clones.join(","));
        }
        Ok(())
    }

    async fn add_head(&mut self, dataset: &Dataset, is_wanted: &Wanted<'_>) -> Result<()> {
        let dir = dataset.dir();
        self.number("mounted", 0);
        self.number("quota", dir.phys().quota_bytes);
        self.number("reservation", dir.phys().reserved_bytes);
        if is_wanted("origin")
            && let Some(origin) = dataset.origin().await?
        {
            self.text("origin", origin.name());
        }
        let fields = [
            ("filesystem_count", dir_field::FILESYSTEM_COUNT),
            ("snapshot_count", dir_field::SNAPSHOT_COUNT),
        ];
        for (property, field) in fields {
            if let Some(number) = dir.field(field).await? {
                self.number(property, number);
            }
        }
        // Seconds and nanoseconds.
        let changed = dir.field_words(dir_field::SNAPSHOTS_CHANGED).await?;
        if let [seconds, rest @ ..] = &changed[..] {
            let nanoseconds = rest.first().copied().unwrap_or(0);
            self.number("snapshots_changed", *seconds);
            let all = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
            self.number("snapshots_changed_nsecs", all);
        }
        Ok(())
    }

    async fn add_encryption(&mut self, dataset: &Dataset) -> Result<()> {
        let Some(info) = dataset.dir().encryption().await? else { return Ok(()) };
        let status = match dataset.key_status().await? {
            KeyStatus::None => 0,
            KeyStatus::Unavailable => 1,
            KeyStatus::Available => 2,
        };
        self.number("keystatus", status);
        self.number("encryption", info.suite);
        self.number("keyformat", info.keyformat);
        self.number("pbkdf2iters", info.pbkdf2_iters);
        self.number("pbkdf2salt", info.pbkdf2_salt);
        self.number("keyguid", info.key_guid.0);
        self.text("encryptionroot", info.root);
        Ok(())
    }

    async fn add_content(&mut self, objset: &Objset) -> Result<()> {
        if self.head_kind == DatasetKind::Volume {
            let size = Zap::open_id(objset, ZVOL_ZAP_OBJ).await?.get_u64("size").await?;
            self.number("volsize", size.unwrap_or(0));
            self.number("volblocksize", objset.dnode(ZVOL_OBJ).await?.data_block_bytes.into());
            return Ok(());
        }
        if objset.phys().objset_type != ObjsetType::Zfs {
            return Ok(());
        }
        let master = match Zap::open_id(objset, MASTER_NODE_OBJ).await {
            // A root dataset without a file system, made by `ztest` or a caller of the engine.
            Err(DatasetError::NoObject { .. }) => return Ok(()),
            master => master?,
        };
        for (property, key) in [
            ("version", "VERSION"),
            ("utf8only", "utf8only"),
            ("normalization", "normalization"),
            ("casesensitivity", "casesensitivity"),
        ] {
            self.number(property, master.get_u64(key).await?.unwrap_or(0));
        }
        for property in DEFAULT_QUOTAS {
            self.number(property, master.get_u64(property).await?.unwrap_or(0));
        }
        Ok(())
    }
}

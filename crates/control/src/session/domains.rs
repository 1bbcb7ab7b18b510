//! Key domains: an encryption root and all datasets that inherit its key.

use cenote_dataset::mos::RECV_CLONE_NAME;
use cenote_dataset::name::is_at_or_below;
use cenote_dataset::{Dataset, EncryptionInfo, KeySource, Mos};
use cenote_engine::Engine;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_host::mounts::Mounts;

use crate::error::ControlError;

/// An encryption root and its descendants, clones elsewhere included.
pub struct KeyDomain {
    /// Root.
    pub info: EncryptionInfo,
    heads: Vec<DatasetId>,
    key_objects: Vec<ObjectId>,
}

/// The domains with roots at or below a dataset, or all; by name.
pub async fn key_domains(mos: &Mos, name: Option<&str>) -> Result<Vec<KeyDomain>, ControlError> {
    let mut encrypted: Vec<(Dataset, EncryptionInfo)> = Vec::new();
    for dataset in mos.reachable_datasets().await?.0 {
        if dataset.is_snapshot() {
            continue;
        }
        let Some(info) = dataset.dir().encryption().await? else { continue };
        // An increment being received, or broken off, has the same key.
        if let Some(beside) = dataset.dir().child(RECV_CLONE_NAME).await? {
            encrypted.push((beside.head().await?, info.clone()));
        }
        encrypted.push((dataset, info));
    }
    let is_meant = |root: &str| name.is_none_or(|name| is_at_or_below(root, name));
    let roots =
        encrypted.iter().filter(|(dataset, info)| info.root == dataset.name() && is_meant(&info.root));
    let mut domains: Vec<KeyDomain> = roots
        .map(|(_, info)| {
            let below = || encrypted.iter().filter(|(_, other)| other.root_dir == info.root_dir);
            KeyDomain {
                info: info.clone(),
                heads: below().map(|(dataset, _)| dataset.id()).collect(),
                key_objects: below().map(|(_, info)| info.key_object).collect(),
            }
        })
        .collect();
    domains.sort_by(|one, other| one.info.root.cmp(&other.info.root));
    Ok(domains)
}

impl KeyDomain {
    /// Loads its key into an open pool.
    pub async fn load(&self, engine: &Engine, source: &KeySource) -> Result<(), ControlError> {
        let root = &self.info.root;
        if engine.keys().has(self.info.root_dir).await {
            return Err(ControlError::Refused(format!("Key load error: Key already loaded for '{root}'.")));
        }
        match engine.keys().load(&engine.mos().await?, &self.info, source).await {
            Ok(true) => Ok(()),
            done => Err(not_loaded(root, done)),
        }
    }

    /// Checks the key from `source` without loading it.
    pub async fn check(&self, mos: &Mos, source: &KeySource) -> Result<(), ControlError> {
        match mos.keyring().check(mos, &self.info, source).await {
            Ok(Some(_)) => Ok(()),
            done => Err(not_loaded(&self.info.root, done)),
        }
    }

    /// Removes the key and all derived keys from memory.
    pub async fn unload(&self, engine: &Engine, mounts: &Mounts) -> Result<(), ControlError> {
        let root = &self.info.root;
        let refused = |why: &str| ControlError::Refused(format!("Key unload error: {why}"));
        if !engine.keys().has(self.info.root_dir).await {
            return Err(refused(&format!("Key already unloaded for '{root}'.")));
        }
        let mounted = self.heads.iter().find_map(|id| mounts.mounted_on(*id));
        if let Some(dir) = mounted {
            return Err(refused(&format!("'{root}' is busy: mounted on {}.", dir.display())));
        }
        if engine.close_datasets(self.heads.clone()).await?.is_some() {
            return Err(refused(&format!("'{root}' is busy.")));
        }
        engine.keys().unload(self.info.root_dir, self.key_objects.iter().copied()).await;
        engine.cache().forget_encrypted();
        Ok(())
    }
}

fn not_loaded<T>(root: &str, done: Result<T, cenote_object::DatasetError>) -> ControlError {
    match done {
        Err(cenote_object::DatasetError::WrongKey { why, .. }) => {
            ControlError::Refused(format!("Key load error: Incorrect key provided for '{root}': {why}."))
        }
        Err(error) => error.into(),
        Ok(_) => ControlError::Refused(format!(
            "Key load error: there is no key for '{root}'; give it with --key, -L or through a pipe."
        )),
    }
}

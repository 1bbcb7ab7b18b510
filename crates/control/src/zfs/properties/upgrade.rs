//! `zfs upgrade`: lists file systems of older versions, or raises their version.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_upgrade`), including the wording.

use std::collections::BTreeMap;

use cenote_engine::Engine;
use cenote_format::features::{ZPL_VERSION, spa_version_for};
use cenote_fs::FsError;
use cenote_fs::write::upgrade_filesystem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::select::{Item, Kind, Scope, Selected, select};

/// Raise the version of file systems, or list older ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Upgrade {
    /// File systems, or paths in mounted ones; empty: all. None: list those of other versions.
    #[serde(default)]
    pub names: Option<Vec<String>>,
    /// Include everything below.
    #[serde(default)]
    pub recursive: bool,
    /// Version; none: the newest.
    #[serde(default)]
    pub version: Option<u64>,
}

/// The answer, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Versions {
    /// File systems of other versions.
    Listed(Vec<Versioned>),
    /// Results of the upgrade.
    Upgraded(Vec<Raised>),
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Versioned {
    /// Name.
    pub name: String,
    /// Version.
    pub version: u64,
}

/// A file system to be upgraded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Raised {
    /// Name.
    pub name: String,
    /// Version before.
    pub from: u64,
    /// Result.
    pub fate: Fate,
}

/// The result of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It has the version now.
    Done,
    /// It had the version.
    Same,
    /// It has a newer version.
    Newer,
    /// The pool needs this version first.
    NeedsPool(u64),
    /// It failed, as reported.
    Failed,
}

impl Verb for Upgrade {
    const NAME: &'static str = "zfs upgrade";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Sometimes;
    type Answer = Versions;

    fn only_looks(&self) -> bool {
        self.names.is_none()
    }

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to("list versions");
        let Some(names) = &self.names else { return Ok(permissions) };
        for item in self.selected(session, names).await?.items {
            permissions.and_to(format!("set property for '{}'", item.name));
            let head = dataset(&session.pool_to_ask(&item.name).await?, &item.name).await?;
            permissions.need(&head, &["version"]);
        }
        Ok(permissions)
    }

    /// # Errors
    /// The only named file system is missing. Failed upgrades are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<Versions>, ControlError> {
        let names = self.names.as_deref().unwrap_or_default();
        let wanted = self.version.unwrap_or(ZPL_VERSION);
        if !(1..=ZPL_VERSION).contains(&wanted) {
            return Err(ControlError::Usage(format!("invalid version {wanted}")));
        }
        let Selected { items, mut outcome } = self.selected(session, names).await?;
        let mut all = Vec::new();
        for item in items {
            match version(&item).await? {
                Some(version) => all.push((item, version)),
                None if self.names.is_none() || self.takes_all() => {}
                None => {
                    let why = "operation not applicable to datasets of this type";
                    let error = ControlError::Refused(format!("cannot open '{}': {why}", item.name));
                    outcome = outcome.and(session.caller().tell(&item.name, &error));
                }
            }
        }
        if self.names.is_none() {
            let others = all.into_iter().filter(|(_, version)| *version != ZPL_VERSION);
            let others = others.map(|(item, version)| Versioned { name: item.name, version });
            return Ok(Answered { answer: Versions::Listed(others.collect()), outcome });
        }
        let mut upgraded = Vec::with_capacity(all.len());
        for (item, from) in all {
            let fate = judge(&item, from, wanted);
            upgraded.push(Raised { name: item.name, from, fate });
        }
        let failures = raise_all(session, &upgraded, wanted).await?;
        for one in &mut upgraded {
            if let Some(error) = failures.get(&one.name) {
                one.fate = Fate::Failed;
                session.caller().tell(&one.name, error);
            }
            if !matches!(one.fate, Fate::Done | Fate::Same) {
                outcome = outcome.and(Outcome::Failed);
            }
        }
        Ok(Answered { answer: Versions::Upgraded(upgraded), outcome })
    }
}

impl Upgrade {
    fn takes_all(&self) -> bool {
        self.names.as_ref().is_some_and(Vec::is_empty) || self.recursive
    }

    async fn selected(&self, session: &Session, names: &[String]) -> Result<Selected, ControlError> {
        let depth = if names.is_empty() || self.recursive { None } else { Some(0) };
        select(session, names, Scope { depth, ..Scope::default() }).await
    }
}

/// The version of a file system; `None`: it is something else.
async fn version(item: &Item) -> Result<Option<u64>, ControlError> {
    match item.dataset().filter(|_| item.kind == Kind::Filesystem) {
        Some(dataset) => {
            let version = dataset.property("version").await?;
            Ok(Some(version.and_then(|version| version.number()).unwrap_or(ZPL_VERSION)))
        }
        None => Ok(None),
    }
}

fn judge(item: &Item, from: u64, wanted: u64) -> Fate {
    let spa_version = item.dataset().map_or(0, |dataset| dataset.mos().uberblock().version);
    match spa_version_for(wanted) {
        needed if spa_version < needed => Fate::NeedsPool(needed),
        _ if from < wanted => Fate::Done,
        _ if from > wanted => Fate::Newer,
        _ => Fate::Same,
    }
}

/// Raises those that can be; returns the failures by name.
async fn raise_all(
    session: &Session,
    all: &[Raised],
    wanted: u64,
) -> Result<BTreeMap<String, ControlError>, ControlError> {
    let names: Vec<&str> =
        all.iter().filter(|one| one.fate == Fate::Done).map(|one| one.name.as_str()).collect();
    let mut failures = BTreeMap::new();
    for names in names.chunk_by(|one, next| pool_of(one) == pool_of(next)) {
        let work = async |engine: &Engine| {
            let mut outcome = Outcome::Done;
            for &name in names {
                if let Err(error) = raise(session, engine, name, wanted).await {
                    if matches!(error, ControlError::Stopped(_)) {
                        return Err(error);
                    }
                    failures.insert(name.to_owned(), error);
                    outcome = Outcome::Failed;
                }
            }
            Ok(outcome)
        };
        if let Err(error) = session.change_pool(pool_of(names[0]), work).await {
            if matches!(error, ControlError::Stopped(_)) {
                return Err(error);
            }
            // The pool can't be changed at all.
            session.caller().tell(pool_of(names[0]), &error);
            let why = || ControlError::Refused("the pool was not changed".into());
            failures.extend(names.iter().map(|name| ((*name).to_owned(), why())));
        }
    }
    Ok(failures)
}

/// Raises a file system; a mount of it is taken down meanwhile.
pub(super) async fn raise(
    session: &Session,
    engine: &Engine,
    name: &str,
    wanted: u64,
) -> Result<(), ControlError> {
    let what = format!("set property for '{name}'");
    let raised = session
        .with_unmounted(name, async || {
            let from = upgrade_filesystem(engine, name, wanted).await.map_err(|error| match error {
                FsError::Dataset(error) => cannot(&what)(error),
                other => other.into(),
            })?;
            cenote_tasks::note_upgrade(engine, name, (from, wanted)).await.map_err(cannot(&what))
        })
        .await;
    match raised {
        Err(ControlError::Refused(why)) if !why.starts_with("cannot set") => {
            Err(ControlError::Refused(format!("cannot {what}: {why}")))
        }
        done => done,
    }
}

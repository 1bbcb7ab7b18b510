//! `zpool get`: properties of pools, or of the vdevs of one.
//!
//! Source: OpenZFS `get_callback`, `get_callback_vdev`, `zpool_do_get`.

use cenote_dataset::{Property, Source, Value};
use cenote_format::units::Guid;
use cenote_pool::{FoundPool, VdevKind, VdevState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list::Head;
use super::properties::{Properties, wanted};
use super::vdev_properties::{Vdevs, check, named};
use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show properties and features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Get {
    /// Pools by name or guid; empty: all. Or one pool, then its vdevs by name, path or guid, `root`, or
    /// `all-vdevs`.
    #[serde(default)]
    pub names: Vec<String>,
    /// Properties by name or column; empty: all.
    #[serde(default)]
    pub properties: Option<Vec<String>>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Found {
    /// Pools.
    Pools(Vec<PoolProperties>),
    /// Vdevs of a pool.
    Vdevs {
        /// The pool.
        head: Head,
        /// The vdevs.
        vdevs: Vec<VdevProperties>,
    },
}

/// A pool and its requested properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolProperties {
    /// Pool.
    pub head: Head,
    /// In the requested order.
    pub properties: Vec<Property>,
}

/// A vdev and its requested properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VdevProperties {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: VdevKind,
    /// Guid.
    pub guid: Guid,
    /// State.
    pub state: VdevState,
    /// In the requested order.
    pub properties: Vec<Property>,
}

impl Verb for Get {
    const NAME: &'static str = "zpool get";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Found;

    /// # Errors
    /// An unknown property; none of the named pools found, or a vdev not found.
    async fn carry_out(self, session: &Session) -> Result<Answered<Found>, ControlError> {
        if let Some((pool, vdevs)) = self.vdevs(session).await? {
            return Ok(self.of_vdevs(session, pool, vdevs).await?.into());
        }
        let names = self
            .properties
            .as_ref()
            .map(|names| names.iter().map(|name| wanted(name)).collect::<Result<Vec<String>, _>>());
        let names = names.transpose()?;
        let (all, mut outcome): (_, Outcome) = session.find_pools_to_show(&self.names).await?;
        let mut pools = Vec::new();
        for found in all {
            match of_pool(session, &found, names.as_deref()).await {
                Ok(pool) => pools.push(pool),
                Err(error) => outcome = outcome.and(session.caller().tell(found.name(), &error)),
            }
        }
        Ok(Answered { answer: Found::Pools(pools), outcome })
    }
}

impl Get {
    /// A pool and the names after it, if these are vdevs of it.
    ///
    /// # Errors
    /// A name is neither a pool nor such a vdev.
    async fn vdevs(&self, session: &Session) -> Result<Option<(&str, &[String])>, ControlError> {
        let [pool, others @ ..] = &*self.names else { return Ok(None) };
        if others.is_empty() || session.find_pools(&self.names).await.is_ok() {
            return Ok(None);
        }
        // The listing of pools reports missing ones.
        let Ok(found) = session.find_pool(pool).await else { return Ok(None) };
        let health = found.status();
        match others.iter().find(|name| named(&health, name).is_empty()) {
            None => Ok(Some((pool.as_str(), others))),
            Some(name) => Err(ControlError::NotFound(format!(
                "'{name}' is neither a pool nor a vdev of '{pool}'; `zpool status {pool}` lists its vdevs"
            ))),
        }
    }

    async fn of_vdevs(&self, session: &Session, pool: &str, meant: &[String]) -> Result<Found, ControlError> {
        let names = self.properties.as_deref();
        names.unwrap_or_default().iter().try_for_each(|name| check(name))?;
        let mos = session.open_without_asking(&session.find_pool(pool).await?).await?;
        let (usage, health) = (mos.usage().await?, mos.pool().status());
        let all = Vdevs { mos: &mos, usage: &usage };
        let mut vdevs = Vec::new();
        for vdev in meant.iter().flat_map(|name| named(&health, name)) {
            let (status, properties) = (vdev.status(), all.properties(&vdev, names).await?);
            let (kind, guid, state) = (status.kind.clone(), status.guid, status.state);
            vdevs.push(VdevProperties { name: vdev.name, kind, guid, state, properties });
        }
        Ok(Found::Vdevs { head: Head::of(&mos), vdevs })
    }
}

async fn of_pool(
    session: &Session,
    found: &FoundPool,
    names: Option<&[String]>,
) -> Result<PoolProperties, ControlError> {
    let mos = session.open_without_asking(found).await?;
    let known = Properties::gather(&mos, session.held(found).as_deref()).await?;
    let dash = |name: &String| Property {
        name: name.clone(),
        value: Value::Text("-".into()),
        source: if name.contains(':') { Source::Default } else { Source::None },
        received: None,
    };
    let properties = match names {
        None => known.all().cloned().collect(),
        Some(names) => {
            names.iter().map(|name| known.get(name).cloned().unwrap_or_else(|| dash(name))).collect()
        }
    };
    Ok(PoolProperties { head: Head::of(&mos), properties })
}

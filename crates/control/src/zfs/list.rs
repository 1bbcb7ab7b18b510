//! `zfs list`: datasets with some of their properties.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::select::Scope;
use super::shown::{Datasets, show};
use super::wanted::Wanted;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// List datasets, snapshots, bookmarks and their sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct List {
    /// Pools, datasets, snapshots, bookmarks, or paths in mounted file systems; empty: all pools.
    #[serde(default)]
    pub names: Vec<String>,
    /// Types and depth.
    #[serde(default)]
    pub scope: Scope,
    /// Properties by name or column.
    pub properties: Vec<String>,
}

impl Verb for List {
    const NAME: &'static str = "zfs list";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Datasets;

    /// # Errors
    /// An unknown property; the only named dataset is missing.
    async fn carry_out(self, session: &Session) -> Result<Answered<Datasets>, ControlError> {
        let wanted = Wanted::parse_all(&self.properties)?;
        show(session, &self.names, self.scope, Some(&wanted)).await
    }
}

//! `zfs list`: datasets with some of their properties.

use serde::{Deserialize, Serialize};

use super::select::Scope;
use super::shown::{Datasets, show};
use super::wanted::Wanted;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// What is to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Pools, datasets, snapshots, bookmarks, or paths in mounted file systems; none: all pools.
    #[serde(default)]
    pub names: Vec<String>,
    /// Types, and how far below the names.
    pub scope: Scope,
    /// Properties by name, or by column.
    pub properties: Vec<String>,
}

impl Verb for List {
    const NAME: &'static str = "zfs list";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Datasets;

    /// # Errors
    /// A property has another name; the only dataset that is named is not there.
    async fn carry_out(self, session: &Session) -> Result<Answered<Datasets>, ControlError> {
        let wanted = Wanted::parse_all(&self.properties)?;
        show(session, &self.names, self.scope, Some(&wanted)).await
    }
}

//! `zfs get`: properties of datasets, with the source of each value.

use cenote_dataset::{Property, Source, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::select::Scope;
use super::shown::{Datasets, Shown, show};
use super::wanted::Wanted;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show properties and the source of each value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Get {
    /// Pools, datasets, snapshots, bookmarks, or paths in mounted file systems; empty: all pools.
    #[serde(default)]
    pub names: Vec<String>,
    /// Types and depth.
    #[serde(default)]
    pub scope: Scope,
    /// Properties by name or column; empty: all.
    #[serde(default)]
    pub properties: Option<Vec<String>>,
    /// Sources of values; empty: any.
    #[serde(default)]
    pub sources: Option<Vec<SourceKind>>,
}

impl Verb for Get {
    const NAME: &'static str = "zfs get";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Datasets;

    /// # Errors
    /// An unknown property; the only named dataset is missing.
    async fn carry_out(self, session: &Session) -> Result<Answered<Datasets>, ControlError> {
        let wanted = self.properties.as_deref().map(Wanted::parse_all).transpose()?;
        let mut shown = show(session, &self.names, self.scope, wanted.as_deref()).await?;
        if let (Some(wanted), datasets) = (&wanted, &mut shown.answer.datasets) {
            datasets.iter_mut().for_each(|dataset| fill(dataset, wanted));
        }
        if let (Some(sources), datasets) = (&self.sources, &mut shown.answer.datasets) {
            let is_meant = |property: &Property| sources.contains(&SourceKind::of(&property.source));
            datasets.iter_mut().for_each(|dataset| dataset.properties.retain(is_meant));
        }
        Ok(shown)
    }
}

/// The source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Set here.
    Local,
    /// OpenZFS's default.
    Default,
    /// Set on an ancestor.
    Inherited,
    /// Set for the current mount.
    Temporary,
    /// Received.
    Received,
    /// A fact, without a source.
    None,
}

impl SourceKind {
    /// All, as typed.
    pub const ALL: [(&str, SourceKind); 6] = [
        ("local", SourceKind::Local),
        ("default", SourceKind::Default),
        ("inherited", SourceKind::Inherited),
        ("temporary", SourceKind::Temporary),
        ("received", SourceKind::Received),
        ("none", SourceKind::None),
    ];

    fn of(source: &Source) -> SourceKind {
        match source {
            Source::None => SourceKind::None,
            Source::Default => SourceKind::Default,
            Source::Local => SourceKind::Local,
            Source::Inherited(_) => SourceKind::Inherited,
            Source::Received => SourceKind::Received,
            Source::Temporary => SourceKind::Temporary,
        }
    }
}

/// Properties requested by name have a line even if absent.
fn fill(dataset: &mut Shown, wanted: &[Wanted]) {
    let property = |wanted: &Wanted| {
        let name = wanted.name();
        let lacking = || Property {
            name: name.clone(),
            value: Value::Text("-".into()),
            source: Source::None,
            received: None,
        };
        dataset.property(&name).cloned().unwrap_or_else(lacking)
    };
    dataset.properties = wanted.iter().map(property).collect();
}

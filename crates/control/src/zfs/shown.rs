//! Datasets and their properties, as `zfs list` and `zfs get` answer them.

use std::collections::HashSet;

use cenote_dataset::{Property, Source, Value};
use cenote_format::props::Prop;
use cenote_format::units::Txg;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::select::{Item, Kind, Scope, select};
use super::wanted::Wanted;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::Answered;

/// A dataset, snapshot or bookmark with its requested properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// Full name.
    pub name: String,
    /// Type.
    pub kind: Kind,
    /// Creation txg.
    pub createtxg: u64,
    /// Its properties in the requested order; those it lacks are absent.
    pub properties: Vec<Property>,
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Datasets {
    /// By name, each before its snapshots, which are ordered by age.
    pub datasets: Vec<Shown>,
    /// The daemon has no pool at all.
    pub is_without_pools: bool,
}

impl Shown {
    /// A property by its name.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| property.name == name)
    }

    /// The pool's name.
    pub fn pool(&self) -> &str {
        crate::session::pool_of(&self.name)
    }

    /// For [`super::select::by_name`].
    pub fn order(&self) -> (&str, Txg) {
        (&self.name, Txg(self.createtxg))
    }
}

/// The named datasets and their descendants, with these properties, or all. Unreadable ones are reported and
/// left out.
pub(super) async fn show(
    session: &Session,
    names: &[String],
    scope: Scope,
    wanted: Option<&[Wanted]>,
) -> Result<Answered<Datasets>, ControlError> {
    let selected = select(session, names, scope).await?;
    let is_without_pools = session.pools().is_some_and(|pools| pools.all().is_empty());
    let (mut datasets, mut outcome) = (Vec::with_capacity(selected.items.len()), selected.outcome);
    for item in selected.items {
        let properties = match wanted {
            None => item.properties().await,
            Some(wanted) => properties_of(&item, wanted).await,
        };
        match properties {
            Ok(properties) => {
                let Item { name, kind, createtxg: Txg(createtxg), .. } = item;
                datasets.push(Shown { name, kind, createtxg, properties });
            }
            Err(error) => outcome = outcome.and(session.caller().tell(&item.name, &error)),
        }
    }
    Ok(Answered { answer: Datasets { datasets, is_without_pools }, outcome })
}

/// The requested properties only: for thousands of datasets, the others would take most of the time.
async fn properties_of(item: &Item, wanted: &[Wanted]) -> Result<Vec<Property>, ControlError> {
    let names: HashSet<String> = wanted.iter().map(Wanted::name).collect();
    let is_name_alone = names.iter().all(|name| name == "name");
    let known = match is_name_alone {
        true => Vec::new(),
        false => item.properties_of(&|name| names.contains(name)).await?,
    };
    let mut properties = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        let name = wanted.name();
        let own = |value, source| Property { name: name.clone(), value, source, received: None };
        let number = |number: Option<u64>| number.map(|number| own(Value::Number(number), Source::Local));
        properties.extend(match wanted {
            Wanted::WrittenSince(since) => number(item.written_since(since).await?),
            Wanted::OfOwner(of_owner) => number(item.of_owner(of_owner).await?),
            _ if name == "name" => Some(own(Value::Text(item.name.clone()), Source::None)),
            // Shown only if asked for by name.
            _ if Prop::zfs(&name).is_some_and(|prop| !prop.visible) => match item.dataset() {
                Some(dataset) => dataset.property(&name).await?,
                None => None,
            },
            _ => known.iter().find(|property| property.name == name).cloned(),
        });
    }
    Ok(properties)
}

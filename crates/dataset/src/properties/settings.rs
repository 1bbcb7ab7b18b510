//! Settings of a dataset and its ancestors.

use std::collections::BTreeMap;

use cenote_format::props::{ZPROP_INHERIT_SUFFIX, ZPROP_RECVD_SUFFIX};
use cenote_object::{Result, Zap, ZapValue};

use crate::dataset::Dataset;
use crate::properties::{Property, Source, Value};

/// `ZPROP_IUV_SUFFIX`: value unknown to older versions.
const ZPROP_IUV_SUFFIX: &str = "$iuv";

/// Property ZAPs of a dataset, then of its directories up to the root.
pub(super) struct Settings {
    levels: Vec<Level>,
}

struct Level {
    name: String,
    entries: BTreeMap<String, Value>,
}

impl Settings {
    pub(super) async fn load(dataset: &Dataset) -> Result<Settings> {
        let mut levels = Vec::new();
        if dataset.is_snapshot() {
            let props = dataset.dir().zap(dataset.phys().props_zap).await?;
            levels.push(Level::load(dataset.name(), props).await?);
        }
        let mut dir = Some(dataset.dir());
        while let Some(here) = dir {
            levels.push(Level::load(here.name(), here.props().await?).await?);
            dir = here.parent();
        }
        Ok(Settings { levels })
    }

    pub(super) fn find(&self, name: &str, inheritable: bool) -> Option<(Value, Source)> {
        let reach = if inheritable { self.levels.len() } else { 1 };
        for (distance, level) in self.levels.iter().take(reach).enumerate() {
            let above = || Source::Inherited(level.name.clone());
            // A value unknown to older versions is stored beside a known one.
            let newer = level.entries.get(&format!("{name}{ZPROP_IUV_SUFFIX}"));
            if let Some(value) = newer.or_else(|| level.entries.get(name)) {
                return Some((value.clone(), if distance == 0 { Source::Local } else { above() }));
            }
            if level.entries.contains_key(&format!("{name}{ZPROP_INHERIT_SUFFIX}")) {
                continue;
            }
            if let Some(value) = level.entries.get(&format!("{name}{ZPROP_RECVD_SUFFIX}")) {
                return Some((value.clone(), if distance == 0 { Source::Received } else { above() }));
            }
        }
        None
    }

    pub(super) fn received(&self, name: &str) -> Option<Value> {
        self.levels.first()?.entries.get(&format!("{name}{ZPROP_RECVD_SUFFIX}")).cloned()
    }

    /// User properties (with a colon) by name.
    pub(super) fn user_properties(&self) -> Vec<Property> {
        let mut names: Vec<&str> = self
            .levels
            .iter()
            .flat_map(|level| level.entries.keys())
            .filter(|name| name.contains(':'))
            .map(|name| name.split('$').next().unwrap_or(name))
            .collect();
        names.sort_unstable();
        names.dedup();
        let found = |name: &str| {
            let (value, source) = self.find(name, true)?;
            Some(Property { name: name.into(), value, source, received: self.received(name) })
        };
        names.into_iter().filter_map(found).collect()
    }
}

impl Level {
    async fn load(name: &str, zap: Option<Zap>) -> Result<Level> {
        let mut entries = BTreeMap::new();
        if let Some(zap) = zap {
            for entry in zap.to_vec().await? {
                if let Some(value) = value_of(&entry.value) {
                    entries.insert(entry.name_text(), value);
                }
            }
        }
        Ok(Level { name: name.into(), entries })
    }
}

fn value_of(value: &ZapValue) -> Option<Value> {
    match value.as_text() {
        Some(text) => Some(Value::Text(text)),
        None => value.as_u64().map(Value::Number),
    }
}

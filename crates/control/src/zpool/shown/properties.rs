//! A pool's properties with their sources, as `zpool get all` shows them.
//!
//! Idea: set values come from the MOS; space and state are computed; `altroot` comes from the daemon; values
//! of a running kernel only (`load_guid`, `cachefile`) are a dash.
//!
//! Source: OpenZFS `spa_prop_get`, `spa_prop_get_config`, `zpool_get_prop`.

use std::collections::BTreeMap;

use cenote_dataset::mos::LEAK_DIR_NAME;
use cenote_dataset::usage::{ClassUsage, PoolUsage, VdevUsage};
use cenote_dataset::{Mos, Property, Source, Value};
use cenote_format::dsl::names::pool::LAST_SCRUBBED_TXG;
use cenote_format::features::Feature;
use cenote_format::props::{Prop, PropType, ZPOOL_PROPS};
use cenote_format::units::DatasetId;
use cenote_host::pools::OpenPool;
use cenote_pool::PoolHealth;
use cenote_pool::alloc::AllocClass;

use crate::error::ControlError;

/// A pool's properties.
pub struct Properties {
    /// In the order of `zpool get all`, after its name.
    pub list: Vec<Property>,
}

impl Properties {
    /// Collects all properties; reads space maps for the sizes. `held`: the daemon's pool, if any.
    pub async fn gather(mos: &Mos, held: Option<&OpenPool>) -> Result<Properties, ControlError> {
        let usage = mos.usage().await?;
        Properties::with_usage(mos, &mos.pool().status(), &usage, held).await
    }

    /// The same, given the space usage.
    pub async fn with_usage(
        mos: &Mos,
        health: &PoolHealth,
        usage: &[VdevUsage],
        held: Option<&OpenPool>,
    ) -> Result<Properties, ControlError> {
        let set = were_set(mos).await?;
        let mut facts = facts(mos, health, usage, &set).await?;
        // Without a daemon, a verb opens the pool for reading.
        facts.insert("readonly", Value::Number(held.is_none().into()));
        let mut list = Vec::new();
        for prop in ZPOOL_PROPS.iter().filter(|prop| prop.visible || prop.name == "name") {
            let (value, source) = match (facts.get(prop.name), set.get(prop.name)) {
                (Some(value), _) => (value.clone(), fact_source(prop, value)),
                (None, Some(value)) => {
                    let is_default = default(prop).as_ref() == Some(value);
                    (value.clone(), if is_default { Source::Default } else { Source::Local })
                }
                (None, None) => (default(prop).unwrap_or(Value::Text("-".into())), Source::Default),
            };
            list.push(property(prop.name, value, source));
        }
        for (feature, state) in mos.features().await? {
            list.push(property(
                &format!("feature@{}", feature.name),
                Value::Text(state.to_string()),
                Source::Local,
            ));
        }
        let user = set.into_iter().filter(|(name, _)| name.contains(':'));
        list.extend(user.map(|(name, value)| property(&name, value, Source::Local)));
        let mut properties = Properties { list };
        properties.note_root(held);
        Ok(properties)
    }

    /// Records the daemon's alternate root for the pool, if any.
    fn note_root(&mut self, held: Option<&OpenPool>) {
        if let Some(root) = held.and_then(|pool| pool.mounts.root())
            && let Some(altroot) = self.list.iter_mut().find(|property| property.name == "altroot")
        {
            *altroot = property("altroot", Value::Text(root.display().to_string()), Source::Local);
        }
    }

    /// All properties, in the order of `zpool get all`.
    pub fn all(&self) -> impl Iterator<Item = &Property> {
        self.list.iter().filter(|property| property.name != "name")
    }

    /// The property with this name.
    pub fn get(&self, name: &str) -> Option<&Property> {
        self.list.iter().find(|property| property.name == name)
    }
}

/// Resolves a name or column heading; features and user properties need their full name.
pub fn wanted(name: &str) -> Result<String, ControlError> {
    if let Some(prop) = ZPOOL_PROPS.iter().find(|prop| prop.is_named(name)) {
        return Ok(prop.name.into());
    }
    let is_feature = name.strip_prefix("feature@").is_some_and(|name| Feature::by_name(name).is_some());
    if is_feature || name.contains(':') {
        return Ok(name.into());
    }
    Err(ControlError::Usage(format!("invalid property '{name}'; `zpool get all` lists them")))
}

fn property(name: &str, value: Value, source: Source) -> Property {
    Property { name: name.into(), value, source, received: None }
}

fn default(prop: &Prop) -> Option<Value> {
    match prop.value {
        PropType::Number { default } | PropType::Index { default, .. } => Some(Value::Number(default)),
        PropType::String { default } => default.map(|text| Value::Text(text.into())),
    }
}

fn fact_source(prop: &Prop, value: &Value) -> Source {
    match prop.name {
        "version" | "ashift" if default(prop).as_ref() == Some(value) => Source::Default,
        "version" | "bootfs" | "comment" | "compatibility" => Source::Local,
        _ => Source::None,
    }
}

async fn were_set(mos: &Mos) -> Result<BTreeMap<String, Value>, ControlError> {
    let mut set = BTreeMap::new();
    for entry in mos.pool_properties().await? {
        let value = match entry.value.as_text() {
            Some(text) => Value::Text(text),
            None => Value::Number(entry.value.as_u64().unwrap_or(0)),
        };
        set.insert(entry.name_text(), value);
    }
    Ok(set)
}

/// Computed values.
async fn facts(
    mos: &Mos,
    health: &PoolHealth,
    usage: &[VdevUsage],
    set: &BTreeMap<String, Value>,
) -> Result<BTreeMap<&'static str, Value>, ControlError> {
    let (pool, sum) = (mos.pool(), PoolUsage::sum(usage));
    let number = Value::Number;
    let text = |text: &str| Value::Text(text.to_owned());
    let (cloned, dedup) = (mos.cloned_summary().await?, mos.dedup_summary().await?);
    let classes = mos.class_usage(usage).await?;
    let net = ClassUsage::of_pool(&classes);
    let mut facts = BTreeMap::from([
        ("name", text(pool.name())),
        ("size", number(sum.size_bytes)),
        ("capacity", number(sum.capacity_percent())),
        ("health", text(health.shown_state())),
        ("guid", number(pool.tree().guid().0)),
        ("version", number(pool.uberblock().version)),
        ("dedupratio", number(dedup.ratio_percent())),
        ("dedupused", number(dedup.stored_bytes)),
        ("dedupsaved", number(dedup.saved_bytes())),
        ("free", number(sum.free_bytes())),
        ("allocated", number(sum.allocated_bytes)),
        ("available", number(net.available_bytes())),
        ("usable", number(net.usable_bytes)),
        ("used", number(net.used_bytes)),
        ("expandsize", number(growth(health, AllocClass::Normal))),
        ("freeing", number(mos.freeing_bytes().await?)),
        ("leaked", number(used_by(mos, LEAK_DIR_NAME).await?)),
        ("fragmentation", sum.fragmentation_percent.map_or_else(|| text("-"), number)),
        ("checkpoint", number(sum.checkpoint_bytes)),
        ("load_guid", text("-")),
        ("bcloneused", number(cloned.used_bytes)),
        ("bclonesaved", number(cloned.saved_bytes)),
        ("bcloneratio", number(cloned.ratio_percent())),
        ("dedup_table_size", number(mos.dedup_table_bytes().await?)),
        ("last_scrubbed_txg", number(mos.directory_u64(LAST_SCRUBBED_TXG).await?.unwrap_or(0))),
    ]);
    for prop in &ZPOOL_PROPS {
        if let Some(value) = of_class(prop.name, &classes, health) {
            facts.insert(prop.name, value);
        }
    }
    if let Some(comment) = &pool.tree().config().comment {
        facts.insert("comment", text(comment));
    }
    if let Some(compatibility) = &pool.tree().config().compatibility {
        facts.insert("compatibility", text(compatibility));
    }
    if let Some(Value::Number(id)) = set.get("bootfs").filter(|id| **id != Value::Number(0)) {
        // The dataset may have been destroyed meanwhile.
        let name = mos.dataset_by_id(DatasetId(*id)).await.map(|dataset| dataset.name().to_owned());
        facts.insert("bootfs", Value::Text(name.unwrap_or_else(|_| "-".into())));
    }
    Ok(facts)
}

/// A figure of an allocation class, `class_CLASS_FIGURE`. Special vdevs set nothing aside for logs here, so
/// that class is empty.
fn of_class(name: &str, classes: &BTreeMap<AllocClass, ClassUsage>, health: &PoolHealth) -> Option<Value> {
    let (class, figure) = name.strip_prefix("class_")?.rsplit_once('_')?;
    let class = match class {
        "normal" => Some(AllocClass::Normal),
        "special" => Some(AllocClass::Special),
        "dedup" => Some(AllocClass::Dedup),
        "log" => Some(AllocClass::Log),
        "elog" => Some(AllocClass::EmbeddedLog),
        _ => None,
    };
    let usage = class.and_then(|class| classes.get(&class)).copied().unwrap_or_default();
    Some(Value::Number(match figure {
        "size" => usage.size_bytes,
        "capacity" => usage.capacity_percent(),
        "free" => usage.free_bytes(),
        "allocated" => usage.allocated_bytes,
        "available" => usage.available_bytes(),
        "usable" => usage.usable_bytes,
        "used" => usage.used_bytes,
        "expandsize" => class.map_or(0, |class| growth(health, class)),
        _ => match usage.fragmentation_percent {
            Some(percent) => percent,
            None => return Some(Value::Text("-".into())),
        },
    }))
}

/// Bytes by which the vdevs of a class could grow.
fn growth(health: &PoolHealth, class: AllocClass) -> u64 {
    let tops = health.root.children.iter().filter(|top| AllocClass::from(top.class) == class);
    tops.map(|top| top.expandable_bytes).sum()
}

/// Space used by one of OpenZFS's internal directories below the root.
async fn used_by(mos: &Mos, dir: &str) -> Result<u64, ControlError> {
    Ok(mos.root_dir().await?.child(dir).await?.map_or(0, |dir| dir.phys().used_bytes))
}

//! Vdevs in `zpool list -jv`: the columns are the properties of each. In the pool's object, data vdevs are in
//! one section and each other class in its own.
//!
//! Source: OpenZFS `collect_list_stats`.

use cenote_control::answers::{Source, VdevClass, VdevStatus};
use cenote_control::zpool::shown::list::Vdevs as Known;
use serde_json::{Map, Value};

use super::figures::figures;
use crate::json::property;
use crate::numbers::Numbers;
use crate::zpool::tree::{HEADED_CLASSES, Names, Style, name};
use crate::zpool::vdevs::{identity, is_told};

/// Properties of every vdev, for any selection of columns.
const PROPERTIES: [&str; 9] = [
    "size",
    "allocated",
    "free",
    "checkpoint",
    "expandsize",
    "fragmentation",
    "capacity",
    "dedupratio",
    "health",
];

struct Vdevs<'a> {
    all: &'a Known,
    style: Style,
    numbers: Numbers,
}

/// All vdevs of a pool.
pub fn json(all: &Known, names: Names, numbers: Numbers) -> Value {
    let vdevs = Vdevs { all, style: Style { counters: true, names, ..Style::default() }, numbers };
    let health = &all.health;
    let of_class = |class: VdevClass| health.root.children.iter().filter(move |top| top.class == class);
    let mut sections = vdevs.entries(of_class(VdevClass::Normal), VdevClass::Normal.name(), 2);
    let mut section = |heading: &str, entries: Map<String, Value>| {
        if !entries.is_empty() {
            sections.insert(heading.into(), entries.into());
        }
    };
    for (class, heading) in HEADED_CLASSES {
        section(heading, vdevs.entries(of_class(class), class.name(), 2));
    }
    section("l2cache", vdevs.entries(health.l2cache.iter(), "l2cache", 2));
    section("spares", vdevs.entries(health.spares.iter(), SPARE, 2));
    sections.into()
}

const SPARE: &str = "spare";

impl Vdevs<'_> {
    fn entries<'v>(
        &self,
        vdevs: impl Iterator<Item = &'v VdevStatus>,
        class: &str,
        depth: usize,
    ) -> Map<String, Value> {
        let told = vdevs.filter(|vdev| is_told(vdev));
        told.map(|vdev| (name(vdev, self.style), self.entry(vdev, class, depth))).collect()
    }

    fn entry(&self, vdev: &VdevStatus, class: &str, depth: usize) -> Value {
        let numbers = self.numbers;
        let figures = figures(self.all, vdev, depth);
        let cell = |column: &str| match column {
            "health" => vdev.shown_state(class == SPARE).into(),
            column => figures.cell(column, numbers),
        };
        let properties =
            PROPERTIES.map(|column| (column.to_owned(), property(&cell(column), &Source::None, numbers)));
        let mut entry = identity(vdev, &name(vdev, self.style), class, numbers);
        entry.insert("properties".into(), Map::from_iter(properties).into());
        let below = self.entries(vdev.children.iter(), class, depth + 2);
        if !below.is_empty() {
            entry.insert("vdevs".into(), below.into());
        }
        entry.into()
    }
}

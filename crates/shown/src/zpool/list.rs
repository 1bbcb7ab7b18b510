//! `zpool list`: size and usage of pools and, with `-v`, of their vdevs.
//!
//! Source: OpenZFS `list_callback`, `collect_list_stats`.

mod figures;
mod vdevs;

use cenote_control::answers::{Property, Source, VdevClass, VdevKind, VdevStatus};
use cenote_control::zpool::shown::list::{Listed, Pools, Vdevs};
use cenote_format::props::{Prop, PropType};
use serde_json::{Map, Value};

use super::head::{Keys, head};
use super::properties::text;
use super::tree::{HEADED_CLASSES, Names, Style, name};
use super::waiting;
use crate::json::{document, property};
use crate::numbers::Numbers;
use crate::table::{Align, Table};
use figures::figures;

/// Content and form of the output.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Properties to show, `name` among them.
    pub columns: Vec<String>,
    /// Each device.
    pub verbose: bool,
    /// No header, tabs between columns.
    pub script: bool,
    /// How devices are named.
    pub names: Names,
    /// How numbers are printed.
    pub numbers: Numbers,
    /// The key of each pool in JSON.
    pub keys: Keys,
}

impl Layout {
    /// As text. `is_first`: nothing was printed before. Like zpool: one header for all rounds, or with
    /// devices one for each.
    pub fn text(&self, Pools { pools, waiting, is_empty }: &Pools, is_first: bool) -> String {
        if *is_empty && !self.script {
            return "no pools available\n".into();
        }
        let mut table = self.table(pools);
        for waiting in waiting {
            table.row(self.columns.iter().map(|column| match column.as_str() {
                "name" => waiting.name.clone(),
                "guid" => waiting.guid.to_string(),
                "health" => waiting::STATE.into(),
                _ => "-".into(),
            }));
        }
        match self.script || is_first || self.verbose {
            true => table.text(self.script),
            false => table.aligned_rows(),
        }
    }

    fn table(&self, pools: &[Listed]) -> Table {
        let columns = &self.columns;
        let mut table = Table::new(columns.iter().map(|column| heading(column)));
        for (i, column) in columns.iter().enumerate() {
            table.widen(i, least_width(column, self.verbose));
        }
        for pool in pools {
            table.row(columns.iter().map(|column| cell(&pool.properties, column, self.numbers.exact)));
            if let Some(vdevs) = &pool.vdevs {
                let mut rows = Rows { layout: self, vdevs, table: &mut table };
                rows.all();
            }
        }
        table
    }

    /// As JSON.
    pub fn json(&self, Pools { pools, waiting, .. }: &Pools) -> Value {
        let numbers = self.numbers;
        let mut entries = Map::new();
        for pool in pools {
            let mut values = Map::new();
            for column in self.columns.iter().filter(|column| *column != "name") {
                let found = find(&pool.properties, column);
                let source = found.map_or(&Source::None, |found| &found.source);
                let value = cell(&pool.properties, column, numbers.exact);
                values.insert(column.clone(), property(&value, source, numbers));
            }
            let mut entry = head(&pool.head, numbers);
            entry.insert("properties".into(), values.into());
            if let Some(all) = &pool.vdevs {
                entry.insert("vdevs".into(), vdevs::json(all, self.names, numbers));
            }
            entries.insert(self.keys.key(&pool.head.name, pool.head.guid), entry.into());
        }
        for waiting in waiting {
            let (key, entry) = waiting::entry(waiting, self.keys, numbers);
            entries.entry(key).or_insert(entry.into());
        }
        document("zpool list", "pools", entries)
    }
}

fn heading(column: &str) -> (String, Align) {
    match Prop::zpool(column) {
        Some(prop) => {
            let align =
                if matches!(prop.value, PropType::Number { .. }) { Align::Right } else { Align::Left };
            (prop.column.to_owned(), align)
        }
        None => (column.to_uppercase(), Align::Left),
    }
}

/// The minimum width that `zpool` gives a column, which fits most values.
fn least_width(column: &str, verbose: bool) -> usize {
    match Prop::zpool(column).map(|prop| prop.value) {
        _ if column == "name" && verbose => 9,
        _ if column == "health" => 8,
        Some(PropType::Number { .. }) => 5,
        _ => 0,
    }
}

fn find<'p>(properties: &'p [Property], name: &str) -> Option<&'p Property> {
    properties.iter().find(|property| property.name == name)
}

fn cell(properties: &[Property], column: &str, exact: bool) -> String {
    find(properties, column).map_or_else(|| "-".into(), |property| text(property, exact))
}

/// The rows of a pool's vdevs.
struct Rows<'a> {
    layout: &'a Layout,
    vdevs: &'a Vdevs,
    table: &'a mut Table,
}

impl Rows<'_> {
    fn all(&mut self) {
        let health = &self.vdevs.health;
        let of_class = |class| health.root.children.iter().filter(move |top| top.class == class);
        of_class(VdevClass::Normal).for_each(|top| self.vdev(top, 2, false));
        for (class, heading) in HEADED_CLASSES {
            self.section(heading, of_class(class).filter(|top| top.kind != VdevKind::Indirect), false);
        }
        self.section("cache", health.l2cache.iter(), false);
        self.section("spare", health.spares.iter(), true);
    }

    fn section<'v>(&mut self, heading: &str, vdevs: impl Iterator<Item = &'v VdevStatus>, spare: bool) {
        let mut vdevs = vdevs.peekable();
        if vdevs.peek().is_some() {
            self.row(
                heading.to_owned(),
                |column| if column == "altroot" { String::new() } else { "-".into() },
            );
        }
        vdevs.for_each(|vdev| self.vdev(vdev, 2, spare));
    }

    fn vdev(&mut self, vdev: &VdevStatus, depth: usize, spare: bool) {
        if vdev.kind == VdevKind::Hole {
            return;
        }
        let style = Style { counters: true, names: self.layout.names, ..Style::default() };
        // For scripts, a tab distinguishes vdevs from pools and headings.
        let name = match self.layout.script {
            true => format!("\t{}", name(vdev, style)),
            false => format!("{:depth$}{}", "", name(vdev, style)),
        };
        let figures = figures(self.vdevs, vdev, depth);
        let numbers = self.layout.numbers;
        self.row(name, |column| match column {
            "health" => vdev.shown_state(spare).into(),
            "altroot" => String::new(),
            column => figures.cell(column, numbers),
        });
        for child in &vdev.children {
            self.vdev(child, depth + 2, spare);
        }
    }

    /// For scripts, columns that only pools have are omitted.
    fn row(&mut self, name: String, cell: impl Fn(&str) -> String) {
        let script = self.layout.script;
        let columns = self.layout.columns.iter().filter(|column| !script || *column != "altroot");
        let cells = columns.map(|column| if column == "name" { name.clone() } else { cell(column) });
        self.table.row(cells.collect::<Vec<String>>());
    }
}

//! `zpool list`: size and usage of pools and, with `-v`, of their vdevs.
//!
//! Source: OpenZFS `list_callback`, `collect_list_stats`.

mod vdevs;

use cenote_control::answers::{Property, Source, VdevClass, VdevKind, VdevStatus};
use cenote_control::zpool::shown::list::{List as Request, Listed, Pools, Vdevs};
use cenote_control::zpool::shown::properties::wanted;
use cenote_control::zpool::shown::waits::Waits;
use cenote_format::label::VDEV_LABELS_BYTES;
use cenote_format::props::{Prop, PropType, ZPOOL_PROPS};
use cenote_format::units::VdevId;
use serde_json::{Map, Value};

use super::properties::text;
use super::repeat::Round;
use super::tree::{HEADED_CLASSES, Style, name};
use super::waiting;
use crate::command::json::{document, property};
use crate::command::zpool::{List, head};
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, nice_number};
use crate::session::{Session, print, print_json};

/// The numbers of a vdev.
fn figures(all: &Vdevs, vdev: &VdevStatus, depth: usize) -> Figures {
    let is_top = depth == 2 && all.health.root.children.iter().any(|top| std::ptr::eq(top, vdev));
    let usage = all.usage.iter().find(|usage| is_top && usage.vdev == VdevId(vdev.id)).copied();
    let is_cache = all.health.l2cache.iter().any(|cache| std::ptr::eq(cache, vdev));
    let size = vdev.size_bytes.or(usage.map(|usage| usage.size_bytes));
    match (usage, size) {
        // The content of a cache device is not part of the pool.
        (_, Some(size)) if is_cache => {
            let used = all.cache.iter().find(|cache| cache.vdev == vdev.guid);
            let unused = (size.saturating_sub(VDEV_LABELS_BYTES), 0);
            let space = used.map_or(unused, |cache| (cache.capacity_bytes, cache.used_bytes));
            Figures { size: Some(size), space: Some(space), ..Figures::default() }
        }
        (Some(usage), size) => Figures {
            size,
            space: Some((usage.size_bytes, usage.allocated_bytes)),
            checkpoint: usage.checkpoint_bytes,
            expandable: vdev.expandable_bytes,
            fragmentation: usage.fragmentation_percent,
        },
        (None, size) => Figures { size, ..Figures::default() },
    }
}

impl List {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = self.wanted_columns()?;
        let show = async |names: &[String], round| self.show(session, names, &columns, round).await;
        self.repeat.run(session, &self.pools, show).await
    }

    /// `all` is the properties of pools, without features.
    fn wanted_columns(&self) -> Result<Vec<String>, CliError> {
        let name = ["name".to_owned()];
        match self.columns.as_str() {
            "all" => {
                let all = ZPOOL_PROPS.iter().filter(|prop| prop.visible && prop.name != "name");
                Ok(name.into_iter().chain(all.map(|prop| prop.name.into())).collect())
            }
            columns => columns.split(',').map(wanted).collect(),
        }
    }

    async fn show(
        &self,
        session: &Session,
        names: &[String],
        columns: &[String],
        round: Round,
    ) -> Result<Outcome, CliError> {
        let request = Request { pools: names.to_vec(), vdevs: self.verbose };
        let answered = session.control().run(request).await?;
        let (Pools { pools, waiting, is_empty }, outcome) = (answered.answer, answered.outcome);
        if is_empty && !session.json() && !self.form.script {
            return print("no pools available\n").map(|()| outcome);
        }
        let mut table = self.as_table(&pools, columns);
        for waiting in &waiting {
            table.row(columns.iter().map(|column| match column.as_str() {
                "name" => waiting.name.clone(),
                "guid" => waiting.guid.to_string(),
                "health" => waiting::STATE.into(),
                _ => "-".into(),
            }));
        }
        match () {
            () if session.json() => print_json(&round.stamp(self.as_json(&pools, &waiting, columns)))?,
            // Like zpool: one header for all rounds, or with -v one for each.
            () if self.form.script || round.is_first || self.verbose => print(table.text(self.form.script))?,
            () => print(table.aligned_rows())?,
        }
        Ok(outcome)
    }

    fn as_table(&self, pools: &[Listed], columns: &[String]) -> Table {
        let mut table = Table::new(columns.iter().map(|column| heading(column)));
        for (i, column) in columns.iter().enumerate() {
            table.widen(i, least_width(column, self.verbose));
        }
        let exact = self.form.values.exact();
        for pool in pools {
            table.row(columns.iter().map(|column| cell(&pool.properties, column, exact)));
            if let Some(vdevs) = &pool.vdevs {
                let mut rows = Rows { list: self, vdevs, columns, table: &mut table };
                rows.all();
            }
        }
        table
    }

    fn as_json(&self, pools: &[Listed], waiting: &[Waits], columns: &[String]) -> Value {
        let (exact, numbers) = (self.form.values.exact(), self.form.values.numbers());
        let mut entries = Map::new();
        for pool in pools {
            let mut values = Map::new();
            for column in columns.iter().filter(|column| *column != "name") {
                let found = find(&pool.properties, column);
                let source = found.map_or(&Source::None, |found| &found.source);
                let value = cell(&pool.properties, column, exact);
                values.insert(column.clone(), property(&value, source, numbers));
            }
            let mut entry = head(&pool.head, numbers);
            entry.insert("properties".into(), values.into());
            if let Some(all) = &pool.vdevs {
                entry.insert("vdevs".into(), vdevs::json(all, self.names, &self.form.values));
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
    list: &'a List,
    vdevs: &'a Vdevs,
    columns: &'a [String],
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
        let style = Style { counters: true, names: self.list.names, ..Style::default() };
        // For scripts, a tab distinguishes vdevs from pools and headings.
        let name = match self.list.form.script {
            true => format!("\t{}", name(vdev, style)),
            false => format!("{:depth$}{}", "", name(vdev, style)),
        };
        let figures = figures(self.vdevs, vdev, depth);
        let exact = self.list.form.values.exact();
        self.row(name, |column| match column {
            "health" => vdev.shown_state(spare).into(),
            "altroot" => String::new(),
            column => figures.cell(column, exact),
        });
        for child in &vdev.children {
            self.vdev(child, depth + 2, spare);
        }
    }

    /// For scripts, columns that only pools have are omitted.
    fn row(&mut self, name: String, cell: impl Fn(&str) -> String) {
        let script = self.list.form.script;
        let columns = self.columns.iter().filter(|column| !script || *column != "altroot");
        let cells = columns.map(|column| if column == "name" { name.clone() } else { cell(column) });
        self.table.row(cells.collect::<Vec<String>>());
    }
}

/// The numbers of a vdev; missing ones print as a dash.
#[derive(Default)]
struct Figures {
    size: Option<u64>,
    /// Total and allocated bytes.
    space: Option<(u64, u64)>,
    checkpoint: u64,
    expandable: u64,
    fragmentation: Option<u64>,
}

impl Figures {
    fn cell(&self, column: &str, exact: bool) -> String {
        let bytes = |bytes: u64| if exact { bytes.to_string() } else { nice_number(bytes) };
        let percent = |text: String| if exact { text } else { text + "%" };
        let shown = match (column, self.space) {
            ("size", _) => self.size.map(bytes),
            ("allocated", Some((_, allocated))) => Some(bytes(allocated)),
            ("free", Some((all, allocated))) => Some(bytes(all.saturating_sub(allocated))),
            ("checkpoint", _) if self.checkpoint > 0 => Some(bytes(self.checkpoint)),
            ("expandsize", _) if self.expandable > 0 => Some(bytes(self.expandable)),
            ("fragmentation", Some(_)) => {
                // A cache device or a log counts as unfragmented.
                Some(percent(self.fragmentation.unwrap_or(0).to_string()))
            }
            ("capacity", Some((all, allocated))) => {
                let hundredths = (u128::from(allocated) * 10_000 / u128::from(all.max(1))) as u64;
                let percents = hundredths as f64 / 100.0;
                Some(match hundredths {
                    _ if exact => (hundredths / 100).to_string(),
                    0..1000 => format!("{percents:.2}%"),
                    1000..10_000 => format!("{percents:.1}%"),
                    _ => format!("{percents:.0}%"),
                })
            }
            _ => None,
        };
        shown.unwrap_or_else(|| "-".into())
    }
}

//! `features`: feature flags as a table, and for a pool the versions of OpenZFS that can use it.

use std::fmt::Write as _;

use cenote_control::inspect::features::{Ability, Flag, Known, Reach, State};

use crate::table::{Align, Table};

const LEFT: Align = Align::Left;

/// As text. `verbose`: with guids, dependencies and descriptions. `script`: tabs, no header, no summary.
pub fn text(known: &Known, verbose: bool, script: bool) -> String {
    let of_pool = [("STATE", LEFT), ("USES", Align::Right), ("TXG", Align::Right)];
    let of_pool = of_pool.into_iter().filter(|_| known.pool.is_some());
    let usual = [("NEEDED TO", LEFT), ("OPENZFS", LEFT), ("CENOTE", LEFT), ("NEW POOLS", LEFT)];
    let more = [("GUID", LEFT), ("DEPENDS ON", LEFT), ("DESCRIPTION", LEFT)];
    let head = [("FEATURE", LEFT)].into_iter().chain(of_pool).chain(usual);
    let head = head.chain([("ACTIVE FROM THE FIRST", LEFT)]).chain(more.into_iter().filter(|_| verbose));
    let mut table = Table::new(head);
    for flag in &known.features {
        let mut cells = vec![flag.name.clone().unwrap_or_else(|| flag.guid.clone())];
        cells.extend(flag.state.map(state).into_iter().flatten());
        cells.push(if flag.read_only_compatible { "write" } else { "read" }.into());
        cells.push(or_dash(flag.since.as_deref()));
        cells.push(ability(flag.support).into());
        cells.push(if flag.in_new_pools { "enabled" } else { "-" }.into());
        cells.push(or_dash(flag.active_from_first.as_deref()));
        if verbose {
            cells.extend(details(flag));
        }
        table.row(cells);
    }
    let summary = known.pool.iter().filter(|_| !script).map(reach);
    table.text(script) + &summary.collect::<String>()
}

fn state(state: State) -> [String; 3] {
    let (name, uses, txg) = match state {
        State::Disabled => ("disabled", None, None),
        State::Enabled { txg } => ("enabled", None, txg),
        State::Active { uses, txg } => ("active", Some(uses), txg),
    };
    let number = |number: Option<u64>| or_dash(number.map(|number| number.to_string()).as_deref());
    [name.into(), number(uses), number(txg)]
}

fn ability(support: Ability) -> &'static str {
    match support {
        Ability::ReadsAndWrites => "reads, writes",
        Ability::Reads => "reads",
        Ability::Refuses => "refuses",
    }
}

fn details(flag: &Flag) -> [String; 3] {
    let depends = flag.depends_on.join(",");
    [flag.guid.clone(), or_dash(Some(&depends)), or_dash(flag.description.as_deref())]
}

fn or_dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

/// By active features: others that are enabled count once they are in use.
fn reach(reach: &Reach) -> String {
    let Reach { pool, readable_since, writable_since } = reach;
    let mut out = format!("\nBy its active features, pool '{pool}' ");
    let _ = match (readable_since, writable_since) {
        (Some(reads), Some(writes)) if reads == writes => {
            writeln!(out, "can be used by OpenZFS {writes} and later.")
        }
        (Some(reads), Some(writes)) => {
            writeln!(out, "can be read by OpenZFS {reads} and later, and written by {writes} and later.")
        }
        (Some(reads), None) => {
            writeln!(out, "can be read by OpenZFS {reads} and later, and written by none.")
        }
        (None, _) => writeln!(out, "can be used by no version of OpenZFS up to 2.4."),
    };
    out
}

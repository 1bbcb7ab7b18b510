//! A pool's object in `zpool status -j`: its numbers and strings; and the text output of OpenZFS before 2.3,
//! converted to the same shape.
//!
//! ```text
//!   pool: tank                          paragraphs: a key at the start, continuation lines after a tab
//!  state: ONLINE
//! config:
//!
//!         NAME            STATE     READ WRITE CKSUM
//!         tank            ONLINE       0     0     0      two more spaces per level
//!           mirror-0      ONLINE       0     0     0
//!             /dev/sda1   ONLINE       0     0     0
//!         logs                                           a class: a single word at the pool's level
//!           /dev/sdc1     ONLINE       0     0     0
//! ```
//!
//! Source: OpenZFS cmd/zpool/zpool_main.c (`print_status_config`, `vdev_stats_nvlist`).

use serde_json::{Map, Value, json};

use super::super::date;

/// A number in a JSON object, whether written as a number (`--json-int`) or a string.
pub fn number(value: &Value, key: &str) -> Option<u64> {
    let value = value.get(key)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

pub fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

/// Class headings in the text, and their names in JSON.
const CLASSES: [(&str, &str); 5] = [
    ("special", "special"),
    ("dedup", "dedup"),
    ("logs", "logs"),
    ("cache", "l2cache"),
    ("spares", "spares"),
];

/// Prefixes of continuation lines and of names of damaged files.
const CONTINUED: [&str; 2] = ["\t", "    "];

struct Row<'a> {
    level: usize,
    name: &'a str,
    rest: Vec<&'a str>,
}

/// A pool in the form of `zpool status -j`, from its `zpool status -P -p` and `zpool list -Hpv`.
pub fn from_text(status: &str, list: &str) -> Value {
    let mut pool = Map::new();
    for (key, value) in paragraphs(status) {
        match key {
            "pool" => _ = pool.insert("name".into(), value.into()),
            "state" | "status" | "action" => _ = pool.insert(key.into(), value.into()),
            "scan" => _ = pool.insert("scan_stats".into(), scan(&value)),
            "errors" => _ = pool.insert("error_count".into(), errors(&value).into()),
            _ => {}
        }
    }
    let rows: Vec<Row<'_>> = status.lines().filter_map(row).collect();
    let mut at = 0;
    while let Some(row) = rows.get(at) {
        let class = CLASSES.iter().find(|class| class.0 == row.name && row.rest.is_empty());
        let (key, inside) = match class {
            Some(class) => {
                at += 1;
                (class.1, vdevs(&rows, &mut at, 1, list))
            }
            None => ("vdevs", vdevs(&rows, &mut at, 0, list)),
        };
        pool.insert(key.into(), inside);
    }
    Value::Object(pool)
}

/// Keys with their values, each joined to one line.
fn paragraphs(status: &str) -> Vec<(&str, String)> {
    let mut all: Vec<(&str, String)> = Vec::new();
    for line in status.lines() {
        match line.split_once(": ").or(line.split_once(':')) {
            Some((key, value))
                if !CONTINUED.iter().any(|with| line.starts_with(with)) && !key.trim().contains(' ') =>
            {
                all.push((key.trim(), value.trim().to_owned()));
            }
            _ => {
                if let Some((_, value)) = all.last_mut() {
                    value.push('\n');
                    value.push_str(line.trim());
                }
            }
        }
    }
    all
}

fn row(line: &str) -> Option<Row<'_>> {
    let line = line.strip_prefix('\t')?;
    let content = line.trim_start_matches(' ');
    let mut words = content.split_whitespace();
    let name = words.next()?;
    let rest: Vec<&str> = words.collect();
    let is_class = rest.is_empty() && CLASSES.iter().any(|class| class.0 == name);
    // State and three error counts; a spare has only its state.
    let is_vdev =
        rest.first().is_some_and(|state| *state != "STATE" && state.chars().all(|c| c.is_ascii_uppercase()))
            && rest.iter().skip(1).take(3).all(|n| n.parse::<u64>().is_ok());
    let known = is_class || (is_vdev && (rest.len() >= 4 || matches!(rest[..], ["AVAIL" | "INUSE", ..])));
    known.then_some(Row { level: (line.len() - content.len()) / 2, name, rest })
}

fn vdevs(rows: &[Row<'_>], at: &mut usize, level: usize, list: &str) -> Value {
    let mut all = Map::new();
    while let Some(row) = rows.get(*at).filter(|row| row.level == level && !row.rest.is_empty()) {
        *at += 1;
        let short = row.name.rsplit('/').next().unwrap_or(row.name);
        let error = |index: usize| row.rest.get(index).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        let mut vdev = json!({
            "name": short, "vdev_type": vdev_type(short, level), "state": row.rest[0],
            "read_errors": error(1), "write_errors": error(2), "checksum_errors": error(3),
        });
        if row.name.starts_with('/') {
            vdev["path"] = row.name.into();
        }
        if let Some((size, allocated)) = space(list, short) {
            (vdev["total_space"], vdev["alloc_space"]) = (size.into(), allocated.into());
        }
        let inside = vdevs(rows, at, level + 1, list);
        if inside.as_object().is_some_and(|inside| !inside.is_empty()) {
            vdev["vdevs"] = inside;
        }
        all.insert(short.to_owned(), vdev);
    }
    Value::Object(all)
}

fn vdev_type(name: &str, level: usize) -> &'static str {
    const TYPES: [&str; 5] = ["mirror", "raidz", "draid", "replacing", "spare"];
    let named = |kind: &&&str| {
        name.strip_prefix(**kind)
            .is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
    };
    match TYPES.iter().find(named) {
        Some(kind) => kind,
        None if level == 0 => "root",
        None => "disk",
    }
}

/// Size and allocated bytes of a vdev, if `zpool list -v` has both.
fn space(list: &str, name: &str) -> Option<(u64, u64)> {
    let cells = |line: &str| line.trim_start().split('\t').map(str::to_owned).collect::<Vec<_>>();
    let line = list
        .lines()
        .map(cells)
        .find(|cells| cells.first().is_some_and(|first| first.rsplit('/').next() == Some(name)))?;
    // For leaves the size column shows the whole disk, including space that ZFS cannot use.
    let number = |column: usize| line.get(column)?.parse::<u64>().ok();
    let (allocated, free) = (number(2)?, number(3)?);
    Some((allocated.saturating_add(free), allocated))
}

/// `scrub repaired 0B in 00:00:12 with 0 errors on Sun Nov 22 02:57:33 2026`, `resilver in progress since
/// ...`.
fn scan(text: &str) -> Value {
    let function = match text.split_whitespace().next() {
        Some("scrub") => "SCRUB",
        Some("resilver" | "resilvered") => "RESILVER",
        _ => "NONE",
    };
    let state = match text {
        _ if text.contains("in progress") => "SCANNING",
        _ if text.contains("canceled") => "CANCELED",
        _ if function == "NONE" => "NONE",
        _ => "FINISHED",
    };
    let when = text.lines().next().and_then(|line| line.rsplit_once(" on ").or(line.rsplit_once(" since ")));
    let when = when.and_then(|(_, date)| date::of_ctime(date)).unwrap_or(0);
    let errors = text.split_once(" with ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
    json!({
        "function": function, "state": state, "errors": errors.unwrap_or(0),
        "start_time": if state == "SCANNING" { when } else { 0 },
        "end_time": if state == "SCANNING" { 0 } else { when },
    })
}

/// Number of data errors: `No known data errors`, `3 data errors, use '-v' for a list`, or a list of files.
fn errors(text: &str) -> u64 {
    match text.split_whitespace().next() {
        None | Some("No") => 0,
        Some("Permanent") => text.lines().skip(1).filter(|line| !line.is_empty()).count() as u64,
        Some(first) => first.parse().unwrap_or(1),
    }
}

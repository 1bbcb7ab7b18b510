//! `scan`: totals by folder, owner, age, size and vdev class.

use cenote_control::inspect::scan::{AGE_STEPS_DAYS, SIZE_STEPS, Summary, Totals};
use cenote_control::text::{counted, json_name, nice_bytes, quoted};
use serde_json::{Value, json};

use crate::table::{Align, Table};

/// Maximum rows of the folder and owner tables; the largest are shown.
const MOST_LINES: usize = 40;

/// Tables as text.
pub fn text(summary: &Summary, targets: usize) -> String {
    let all = summary.all;
    let mut out = format!(
        "{} in {}, {} of content, {} on disk\n",
        counted(all.files, "file"),
        counted(targets as u64, "dataset"),
        nice_bytes(all.size_bytes),
        nice_bytes(all.allocated_bytes),
    );
    section(&mut out, "TYPE", summary.by_type.iter().map(|(letter, totals)| (kind(*letter).into(), *totals)));
    let folders = summary.by_folder.iter().map(|(folder, totals)| (quoted(folder), *totals));
    largest(&mut out, "FOLDER", folders.collect());
    if summary.folders_cut {
        out.push_str("(too many folders to count separately; lower --top)\n");
    }
    largest(
        &mut out,
        "OWNER",
        summary.by_owner.iter().map(|(uid, totals)| (uid.to_string(), *totals)).collect(),
    );
    section(&mut out, "SIZE OF FILES", steps(&SIZE_STEPS, &summary.by_size, nice_bytes));
    section(&mut out, "AGE OF CONTENT", steps(&AGE_STEPS_DAYS, &summary.by_age, age));
    section(
        &mut out,
        "METADATA ON",
        summary.by_class.iter().map(|(class, totals)| (class.to_string(), *totals)),
    );
    out
}

fn kind(letter: char) -> &'static str {
    match letter {
        'f' => "files",
        'd' => "folders",
        'l' => "symbolic links",
        'p' => "fifos",
        's' => "sockets",
        'b' => "block devices",
        'c' => "character devices",
        _ => "other",
    }
}

fn age(days: u64) -> String {
    match days {
        0..30 => format!("{days} d"),
        30..365 => format!("{} months", days / 30),
        _ => format!("{} y", days / 365),
    }
}

/// Labels and totals of a histogram's buckets, without the empty ones at both ends.
fn steps(bounds: &[u64], totals: &[Totals], label: impl Fn(u64) -> String) -> Vec<(String, Totals)> {
    let used = |totals: &Totals| totals.files > 0;
    let Some(first) = totals.iter().position(used) else { return Vec::new() };
    let last = totals.iter().rposition(used).unwrap_or(first);
    (first..=last)
        .map(|i| {
            let text = match bounds.get(i + 1) {
                Some(&end) => format!("{} to {}", label(bounds[i]), label(end)),
                None => format!("{} and more", label(bounds[i])),
            };
            (text, totals[i])
        })
        .collect()
}

fn largest(out: &mut String, title: &str, mut rows: Vec<(String, Totals)>) {
    let left_out = rows.len().saturating_sub(MOST_LINES);
    if left_out > 0 {
        rows.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.allocated_bytes));
        rows.truncate(MOST_LINES);
    }
    section(out, title, rows);
    if left_out > 0 {
        out.push_str(&format!("(and {left_out} smaller; --json has all)\n"));
    }
}

fn section(out: &mut String, title: &str, rows: impl IntoIterator<Item = (String, Totals)>) {
    let right = ["FILES", "SIZE", "ON DISK"].map(|name| (name, Align::Right));
    let mut table = Table::new([(title, Align::Left)].into_iter().chain(right));
    for (label, Totals { files, size_bytes, allocated_bytes }) in rows {
        table.row([label, files.to_string(), nice_bytes(size_bytes), nice_bytes(allocated_bytes)]);
    }
    if !table.is_empty() {
        out.push('\n');
        out.push_str(&table.aligned());
    }
}

/// The summary as JSON.
pub fn json(summary: &Summary) -> Value {
    fn list<K: Into<Value>>(rows: impl IntoIterator<Item = (K, Totals)>) -> Value {
        let row = |(key, t): (K, Totals)| {
            let key: Value = key.into();
            let (files, size, allocated) = (t.files, t.size_bytes, t.allocated_bytes);
            json!({"key": key, "files": files, "size_bytes": size, "allocated_bytes": allocated})
        };
        rows.into_iter().map(row).collect()
    }
    json!({
        "all": summary.all,
        "by_type": list(summary.by_type.iter().map(|(k, t)| (k.to_string(), *t))),
        "by_folder": list(summary.by_folder.iter().map(|(k, t)| (json_name(k), *t))),
        "folders_cut": summary.folders_cut,
        "by_owner": list(summary.by_owner.iter().map(|(k, t)| (*k, *t))),
        "by_size_from_bytes": list(SIZE_STEPS.into_iter().zip(summary.by_size)),
        "by_age_from_days": list(AGE_STEPS_DAYS.into_iter().zip(summary.by_age)),
        "by_class": list(summary.by_class.iter().map(|(k, t)| (&**k, *t))),
        "problems": summary.problems,
    })
}

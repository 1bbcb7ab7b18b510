//! `rescue`: datasets that can be copied, and the outcome of a copy.

use cenote_control::text::{counted, counted_as, nice_bytes};
use cenote_inspect::rescue::{DatasetState, Planned, Summary};
use serde_json::{Value, json};

use crate::table::{Align, Table};

/// A dataset before it is copied.
struct Row<'a> {
    name: &'a str,
    kind: Option<String>,
    referenced_bytes: Option<u64>,
    txg: Option<u64>,
    note: Option<String>,
}

impl Row<'_> {
    fn of(planned: &Planned) -> Row<'_> {
        let none = Row { name: &planned.name, kind: None, referenced_bytes: None, txg: None, note: None };
        match &planned.state {
            DatasetState::Opens { txg, kind, referenced_bytes } => {
                let older = planned.newest_failed.as_ref().map(|why| format!("an older txg: {why}"));
                let note = older.or_else(|| planned.inferred.clone());
                let (kind, txg) = (kind.map(|kind| kind.to_string()), Some(txg.0));
                Row { kind, referenced_bytes: Some(*referenced_bytes), txg, note, ..none }
            }
            DatasetState::Locked(why) => Row { note: Some(format!("locked: {why}")), ..none },
            DatasetState::Lost(why) => Row { note: Some(format!("lost: {why}")), ..none },
        }
    }
}

/// The plan as text.
pub fn plan(plan: &[Planned]) -> String {
    let mut table = Table::new([
        ("NAME", Align::Left),
        ("TYPE", Align::Left),
        ("REFER", Align::Right),
        ("TXG", Align::Right),
        ("", Align::Left),
    ]);
    for Row { name, kind, referenced_bytes, txg, note } in plan.iter().map(Row::of) {
        table.row([
            name.to_owned(),
            kind.unwrap_or_else(|| "-".into()),
            referenced_bytes.map_or("-".into(), nice_bytes),
            txg.map_or("-".into(), |txg| txg.to_string()),
            note.unwrap_or_default(),
        ]);
    }
    table.aligned()
}

/// The plan as JSON.
pub fn plan_json(plan: &[Planned]) -> Value {
    let row = |row: Row<'_>| {
        let (bytes, note) = (row.referenced_bytes, row.note);
        json!({"name": row.name, "type": row.kind, "referenced": bytes, "txg": row.txg, "note": note})
    };
    plan.iter().map(Row::of).map(row).collect()
}

/// Counts of rescued files, then losses, worst first, then the path of their list.
pub fn text(summary: &Summary, plan: &[Planned], report: &str) -> String {
    let (copied, missing) = (summary.copied, summary.missing);
    let opened =
        plan.iter().filter(|planned| matches!(planned.state, DatasetState::Opens { .. })).count() as u64;
    let verdict = match summary.is_damaged() {
        true => "not everything could be rescued",
        false if missing.datasets_locked > 0 => "everything except the locked datasets was rescued",
        false => "everything is rescued",
    };
    let links = copied.others + copied.hard_links;
    let mut lines = vec![
        verdict.to_owned(),
        format!(
            "  copied: {} of {}, {}, {}",
            counted(copied.files, "file"),
            counted(opened, "dataset"),
            counted(copied.folders, "folder"),
            counted_as(links, "link or special file", "links and special files"),
        ) + &format!(", {}", nice_bytes(copied.bytes)),
    ];
    for (count, one, many) in [
        (missing.datasets_lost, "dataset is lost", "datasets are lost"),
        (
            missing.lost,
            "file or folder is lost entirely or in part",
            "files or folders are lost entirely or in part",
        ),
        (
            missing.datasets_older,
            "dataset is from an older txg; later changes are lost",
            "datasets are from older txgs; later changes are lost",
        ),
        (missing.recovered, "file or folder is from an older txg", "files or folders are from older txgs"),
        (
            missing.datasets_inferred,
            "dataset was read without some of its tables",
            "datasets were read without some of their tables",
        ),
        (
            missing.datasets_locked,
            "dataset is locked; give its key with --key and continue with --resume",
            "datasets are locked; give their keys with --key and continue with --resume",
        ),
        (
            missing.renamed,
            "name that Linux can't store was replaced",
            "names that Linux can't store were replaced",
        ),
        (
            missing.nodes,
            "device node, fifo or socket could not be made (device nodes need root)",
            "device nodes, fifos or sockets could not be made (device nodes need root)",
        ),
        (
            missing.undressed,
            "owner, mode, time or other attribute could not be set",
            "owners, modes, times or other attributes could not be set",
        ),
        (summary.already_there, "file was already there", "files were already there"),
    ] {
        if count > 0 {
            lines.push(format!("  {}", counted_as(count, one, many)));
        }
    }
    lines.push(format!("report: {report}\n"));
    lines.join("\n")
}

/// The outcome as JSON.
pub fn json(summary: &Summary) -> Value {
    let (copied, missing) = (summary.copied, summary.missing);
    json!({
        "files": copied.files,
        "folders": copied.folders,
        "hard_links": copied.hard_links,
        "others": copied.others,
        "bytes": copied.bytes,
        "already_there": summary.already_there,
        "recovered": missing.recovered,
        "lost": missing.lost,
        "renamed": missing.renamed,
        "nodes_not_made": missing.nodes,
        "datasets_lost": missing.datasets_lost,
        "datasets_older": missing.datasets_older,
        "datasets_inferred": missing.datasets_inferred,
        "datasets_locked": missing.datasets_locked,
        "not_kept": missing.undressed,
    })
}

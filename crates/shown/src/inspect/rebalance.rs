//! `rebalance`: what a rewrite would change or has changed, and how full vdevs are.

use cenote_control::inspect::rebalance::{Aim, Fill, Rebalanced};
use cenote_control::text::{counted, nice_bytes};

use crate::table::{Align, Table};

/// The answer as text. `shared`: blocks of snapshots and clones are rewritten, too.
pub fn text(answer: &Rebalanced, shared: bool) -> String {
    let survey = &answer.survey;
    let mut out = String::new();
    let todo: u64 =
        survey.gains.iter().map(|gain| gain.bytes - if shared { 0 } else { gain.held_bytes }).sum();
    match &answer.done {
        None if todo == 0 => out.push_str("Nothing to rewrite.\n"),
        None => out.push_str(&format!("Would rewrite {}.\n", nice_bytes(todo))),
        Some(done) => out.push_str(&format!("Rewrote {}.\n", nice_bytes(done.rewritten_bytes))),
    }
    let mut gains = Table::new([
        ("AIM", Align::Left),
        ("BLOCKS", Align::Right),
        ("STORED", Align::Right),
        ("SHARED", Align::Right),
        ("SAVES", Align::Right),
    ]);
    for gain in survey.gains.iter().filter(|gain| gain.blocks > 0) {
        let saves = match gain.aim {
            Aim::NewWidth => nice_bytes(gain.saved_bytes),
            Aim::Compression => format!("~{}", nice_bytes(gain.saved_bytes)),
            Aim::Special | Aim::NewVdevs => "-".into(),
        };
        gains.row([
            gain.aim.name().to_owned(),
            gain.blocks.to_string(),
            nice_bytes(gain.bytes),
            nice_bytes(gain.held_bytes),
            saves,
        ]);
    }
    if !gains.is_empty() {
        out.push_str(&format!("\n{}", gains.aligned()));
    }
    out.push_str(&format!("\n{}", vdevs(answer)));
    let mut notes = Vec::new();
    if survey.gains.iter().any(|gain| gain.held_bytes > 0) {
        notes.push(match shared {
            true => "Shared blocks stay in snapshots and clones, and take up space twice.".to_owned(),
            false => {
                "Shared blocks belong to snapshots or clones, too, and are left alone (--shared).".into()
            }
        });
    }
    if !survey.without_key.is_empty() {
        notes.push(format!("Without their keys, these are left alone: {}.", survey.without_key.join(", ")));
    }
    if survey.other_record_sizes > 0 {
        notes.push(format!(
            "{} another block size than the present recordsize; only copies of them get it.",
            match survey.other_record_sizes {
                1 => "1 file has".to_owned(),
                files => format!("{files} files have"),
            }
        ));
    }
    if let Some(done) = answer.done.as_ref().filter(|done| done.left > 0) {
        notes.push(format!("{} immutable or unreadable: left alone.", counted(done.left, "object")));
    }
    if !notes.is_empty() {
        out.push_str(&format!("\n{}\n", notes.join("\n")));
    }
    out
}

fn vdevs(answer: &Rebalanced) -> String {
    let mut columns = vec![
        ("VDEV", Align::Left),
        ("CLASS", Align::Left),
        ("SIZE", Align::Right),
        ("ALLOC", Align::Right),
        ("CAP", Align::Right),
    ];
    if answer.done.is_some() {
        columns.push(("BEFORE", Align::Right));
    }
    let mut table = Table::new(columns);
    let now = answer.done.as_ref().map_or(&answer.survey.vdevs, |done| &done.vdevs);
    for fill in now {
        let mut cells = vec![
            fill.name.clone(),
            fill.class.name().to_owned(),
            nice_bytes(fill.size_bytes),
            nice_bytes(fill.allocated_bytes),
            percent(fill),
        ];
        if answer.done.is_some() {
            let before = answer.survey.vdevs.iter().find(|before| before.vdev == fill.vdev);
            cells.push(before.map_or_else(|| "-".into(), percent));
        }
        table.row(cells);
    }
    table.aligned()
}

fn percent(fill: &Fill) -> String {
    let percent = fill.allocated_bytes as f64 * 100.0 / fill.size_bytes.max(1) as f64;
    format!("{percent:.1}%")
}

#[cfg(test)]
mod tests {
    use cenote_control::inspect::rebalance::{Done, Gain, Survey};

    use super::*;

    #[test]
    fn a_dry_run_says_what_it_would_do_and_what_stays() {
        let gain =
            |aim, bytes, held_bytes, saved_bytes| Gain { aim, blocks: 3, bytes, held_bytes, saved_bytes };
        let survey = Survey {
            gains: vec![gain(Aim::Special, 3 << 20, 0, 0), gain(Aim::Compression, 1 << 30, 1 << 29, 1 << 28)],
            other_record_sizes: 1,
            ..Survey::default()
        };
        let shown = text(&Rebalanced { survey: survey.clone(), done: None }, false);
        for part in ["Would rewrite 515M.", "~256M", "left alone (--shared)", "1 file has another block size"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let done = Done { rewritten_bytes: 1 << 20, left: 2, vdevs: Vec::new() };
        let shown = text(&Rebalanced { survey, done: Some(done) }, true);
        for part in ["Rewrote 1M.", "2 objects immutable", "take up space twice"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(text(&Rebalanced { survey: Survey::default(), done: None }, false).starts_with("Nothing"));
    }
}

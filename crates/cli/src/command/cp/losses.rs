//! What a copy could not keep, gathered while it runs and said at its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cenote_inspect::copy::{Copied, Loss, LossKind, Reason};
use rustix::io::Errno;
use serde::Serialize;
use tokio::sync::Notify;

use crate::outcome::Outcome;
use crate::render::{escape_terminal, nice_bytes};
use crate::session::Progress;

/// Losses of one kind that are listed; all are counted.
const LISTED: usize = 5;
/// Files with lost content that are listed.
const LISTED_CONTENT: usize = 1000;

/// Gathers losses from many tasks.
#[derive(Clone, Default)]
pub struct Losses {
    gathered: Arc<Mutex<Gathered>>,
    full: Arc<Notify>,
}

#[derive(Default)]
struct Gathered {
    content: Vec<Loss>,
    content_counts: BTreeMap<&'static str, u64>,
    others: BTreeMap<&'static str, (u64, Vec<Loss>)>,
    outcome: Option<Outcome>,
}

/// For programs.
#[derive(Serialize)]
pub struct Summary {
    files: u64,
    folders: u64,
    hard_links: u64,
    others: u64,
    bytes: u64,
    lost: BTreeMap<&'static str, u64>,
    losses: Vec<LossJson>,
}

#[derive(Serialize)]
struct LossJson {
    path: String,
    lost: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<(u64, u64)>,
    reason: String,
}

impl Losses {
    /// Takes one.
    pub fn add(&self, loss: Loss) {
        // Of attributes the same error only says that one file has no room for more of them.
        if loss.is_content() && matches!(loss.reason, Reason::System(Errno::NOSPC | Errno::DQUOT)) {
            self.full.notify_one();
        }
        let mut gathered = self.lock();
        let outcome = match (loss.is_damage(), loss.is_content()) {
            (true, _) => Outcome::Damaged,
            (false, true) => Outcome::Failed,
            (false, false) => Outcome::Done,
        };
        gathered.outcome = Some(gathered.outcome.map_or(outcome, |so_far| so_far.and(outcome)));
        if loss.is_content() {
            *gathered.content_counts.entry(loss.kind.words()).or_default() += 1;
            if gathered.content.len() < LISTED_CONTENT {
                gathered.content.push(loss);
            }
            return;
        }
        let (count, first) = gathered.others.entry(loss.kind.words()).or_default();
        *count += 1;
        if first.len() < LISTED {
            first.push(loss);
        }
    }

    /// Waits until the destination has no room: to go on would only lose more.
    pub async fn full(&self) {
        self.full.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        // Nothing is left half done under the lock.
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the copy ended: lost content fails it, damage on the pool is said, other losses are only listed.
    pub fn outcome(&self) -> Outcome {
        self.lock().outcome.unwrap_or(Outcome::Done)
    }

    /// Says everything on standard error.
    pub fn say(&self) {
        let gathered = self.lock();
        for loss in &gathered.content {
            eprintln!("cenote: {}", line(loss));
        }
        let more = gathered.content_counts.values().sum::<u64>() - gathered.content.len() as u64;
        if more > 0 {
            eprintln!("cenote: and {more} more files that are not, or not whole, in the copy");
        }
        for (words, (count, first)) in &gathered.others {
            if *words == LossKind::Owner.words() && !rustix::process::geteuid().is_root() {
                eprintln!("cenote: {count} owners could not be kept: only root may give files away");
                continue;
            }
            eprintln!("cenote: could not be kept: {count} {words}");
            for loss in first {
                eprintln!("cenote:   {}", line(loss));
            }
        }
    }

    /// The same for programs.
    pub fn summary(&self, copied: Copied) -> Summary {
        let gathered = self.lock();
        let mut lost = gathered.content_counts.clone();
        lost.extend(gathered.others.iter().map(|(words, (count, _))| (*words, *count)));
        let listed = gathered.content.iter().chain(gathered.others.values().flat_map(|(_, first)| first));
        Summary {
            files: copied.files,
            folders: copied.folders,
            hard_links: copied.hard_links,
            others: copied.others,
            bytes: copied.bytes,
            lost,
            losses: listed.map(json).collect(),
        }
    }
}

fn json(loss: &Loss) -> LossJson {
    let ranges = match &loss.kind {
        LossKind::Content(ranges) => {
            ranges.iter().map(|range| (range.start, range.end - range.start)).collect()
        }
        _ => Vec::new(),
    };
    LossJson {
        path: escape_terminal(&loss.path),
        lost: loss.kind.words(),
        ranges,
        reason: loss.reason.to_string(),
    }
}

/// A loss as one line; unreadable ranges as `OFFSET+LENGTH`.
fn line(loss: &Loss) -> String {
    let path = escape_terminal(&loss.path);
    let reason = match &loss.reason {
        Reason::System(Errno::EXIST) => "exists already; -f replaces it".to_string(),
        reason => reason.to_string(),
    };
    match &loss.kind {
        LossKind::File => format!("{path}: not copied: {reason}"),
        LossKind::Content(ranges) => {
            let ranges: Vec<String> =
                ranges.iter().map(|range| format!("{}+{}", range.start, range.end - range.start)).collect();
            format!("{path}: zeros at {}: {reason}", ranges.join(", "))
        }
        LossKind::Entries => format!("{path}: some entries can't be read: {reason}"),
        LossKind::Xattr(name) => format!("{path}: {}: {reason}", escape_terminal(name)),
        _ => format!("{path}: {reason}"),
    }
}

/// Shows how far a copy is.
pub fn show_progress(progress: &Progress, copied: Copied, seconds: f64) {
    let rate = if seconds > 0.0 { copied.bytes as f64 / seconds } else { 0.0 };
    progress.message(format!("{} copied, {}/s,", nice_bytes(copied.bytes), nice_bytes(rate as u64)));
    progress.set(copied.files);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_losses_are_counted_and_the_first_listed() {
        let losses = Losses::default();
        let many = LISTED_CONTENT as u64 + 7;
        for kind in [LossKind::File, LossKind::Entries, LossKind::Owner] {
            for i in 0..many {
                let path = format!("/{i}").into_bytes();
                losses.add(Loss { path, kind: kind.clone(), reason: Reason::System(Errno::ACCESS) });
            }
        }
        let summary = losses.summary(Copied::default());
        assert_eq!(summary.lost.values().copied().collect::<Vec<_>>(), [many; 3]);
        assert_eq!(summary.losses.len(), LISTED_CONTENT + LISTED);
        assert_eq!(losses.outcome(), Outcome::Failed);
    }
}

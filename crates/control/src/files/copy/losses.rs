//! Losses of a copy: collected while it runs, reported at its end.
//!
//! Locking: any task may add losses; one mutex guards the collection and is held for one entry or one report,
//! never across an await. `full` has one waiter, the copy itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cenote_format::text_or_bytes;
use cenote_inspect::copy::{Copied, Loss, LossKind, Reason};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::caller::Caller;
use crate::error::Outcome;
use crate::remote::Failure;
use crate::text::quoted;

/// Losses listed per kind; all are counted.
const LISTED: usize = 5;
/// Files listed with lost content.
const LISTED_CONTENT: usize = 1000;

/// Collects losses from many tasks.
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

/// Counts of copied files, and all losses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Regular files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Links, devices, fifos, sockets.
    pub others: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Number of losses by kind.
    pub lost: BTreeMap<String, u64>,
    /// First losses.
    pub losses: Vec<Lost>,
    /// Why the copy ended early, if it did.
    pub ended: Option<Failure>,
}

/// A loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// File.
    #[serde(with = "text_or_bytes")]
    #[schemars(with = "text_or_bytes::TextOrBytes")]
    pub path: Vec<u8>,
    /// Kind, in words.
    pub lost: String,
    /// Offsets and lengths in bytes that are zeros in the copy.
    pub ranges: Vec<(u64, u64)>,
    /// Why.
    pub reason: String,
}

impl Losses {
    /// Records a loss.
    pub fn add(&self, loss: Loss) {
        // For an attribute this error only means that the file has no room for more attributes.
        if loss.is_content() && matches!(loss.reason, Reason::System(Errno::NOSPC | Errno::DQUOT)) {
            self.full.notify_one();
        }
        let mut gathered = self.lock();
        let outcome = match (loss.is_damage(), loss.is_content() || loss.is_access()) {
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

    /// Waits until the destination is full: continuing would only lose more.
    pub async fn full(&self) {
        self.full.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        // No code under the lock can panic halfway through an update.
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lost content and ACLs fail the copy, damage on the pool takes precedence, other losses are only
    /// listed.
    pub fn outcome(&self) -> Outcome {
        self.lock().outcome.unwrap_or(Outcome::Done)
    }

    /// Reports all losses.
    pub fn tell(&self, caller: &Caller) {
        let gathered = self.lock();
        for loss in &gathered.content {
            caller.note(line(loss));
        }
        let more = gathered.content_counts.values().sum::<u64>() - gathered.content.len() as u64;
        if more > 0 {
            caller.note(format!("and {more} more files that are missing from the copy or incomplete"));
        }
        for (words, (count, first)) in &gathered.others {
            if *words == LossKind::Owner.words() && !rustix::process::geteuid().is_root() {
                caller.note(format!("{count} owners could not be set: only root can change owners"));
                continue;
            }
            let what = first.first().map_or(format!("{count} {words}"), |loss| loss.kind.counted(*count));
            caller.note(format!("not preserved: {what}"));
            for loss in first {
                caller.note(format!("  {}", line(loss)));
            }
        }
        if gathered.outcome == Some(Outcome::Damaged) {
            caller
                .note("`cenote verify` lists what is damaged, `cenote rescue` copies what can still be read");
        }
    }

    /// Counts and losses of a copy.
    pub fn summary(&self, copied: Copied) -> Summary {
        let gathered = self.lock();
        let others = gathered.others.iter().map(|(words, (count, _))| (words, count));
        let lost = gathered.content_counts.iter().chain(others);
        let listed = gathered.content.iter().chain(gathered.others.values().flat_map(|(_, first)| first));
        Summary {
            files: copied.files,
            folders: copied.folders,
            hard_links: copied.hard_links,
            others: copied.others,
            bytes: copied.bytes,
            lost: lost.map(|(words, count)| ((*words).to_owned(), *count)).collect(),
            losses: listed.map(lost_of).collect(),
            ended: None,
        }
    }
}

fn lost_of(loss: &Loss) -> Lost {
    let ranges = match &loss.kind {
        LossKind::Content(ranges) => {
            ranges.iter().map(|range| (range.start, range.end - range.start)).collect()
        }
        _ => Vec::new(),
    };
    let (path, lost) = (loss.path.clone(), loss.kind.words().to_owned());
    Lost { path, lost, ranges, reason: loss.reason.to_string() }
}

/// One line per loss; unreadable ranges as `OFFSET+LENGTH`.
fn line(loss: &Loss) -> String {
    let path = quoted(&loss.path);
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
        LossKind::Xattr(name) => format!("{path}: {}: {reason}", quoted(name)),
        _ => format!("{path}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_acls_fail_a_copy_and_other_attributes_do_not() {
        for (kind, outcome) in [
            (LossKind::Xattr(b"user.note".to_vec()), Outcome::Done),
            (LossKind::Owner, Outcome::Done),
            (LossKind::Xattr(b"system.posix_acl_access".to_vec()), Outcome::Failed),
            (LossKind::Acl, Outcome::Failed),
        ] {
            let losses = Losses::default();
            let reason = Reason::Because("the file system has acltype=off");
            losses.add(Loss { path: b"/f".to_vec(), kind: kind.clone(), reason });
            assert_eq!(losses.outcome(), outcome, "{kind:?}");
        }
    }

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

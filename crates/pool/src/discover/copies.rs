//! Devices with the same guid: images of one device, taken at different times.
//!
//! Idea: the image with the newer label txg counts, then the one with the newer uberblock. If two images are
//! equally new, or a copy was written independently, the right one is unknown: the pool can be read but not
//! changed.

use super::group::{Candidates, Member, Members};
use cenote_format::units::Txg;
use std::cmp::Reverse;
use std::fmt;

/// A device left out in favour of another copy of the same vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// The device left out.
    pub left_out: String,
    /// The device used.
    pub used: String,
    /// Reason for the choice.
    pub reason: Preference,
}

/// Why one of two copies is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preference {
    /// It is newer.
    Newer {
        /// Last txg of the device left out.
        left_out: Txg,
        /// Last txg of the device used.
        used: Txg,
    },
    /// Both have the same last txg.
    Equal(Txg),
    /// Both were changed after the copy was made.
    Diverged,
}

impl Duplicate {
    /// Whether the device left out may equally be the right one.
    pub fn is_undecided(&self) -> bool {
        !matches!(self.reason, Preference::Newer { .. })
    }
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Duplicate { left_out, used, reason } = self;
        match reason {
            Preference::Newer { left_out: old, used: new } => {
                write!(f, "{left_out} is an older copy of {used} (txg {old}, not {new}) and is left out")
            }
            Preference::Equal(txg) => {
                write!(f, "{left_out} and {used} are copies of one device, both of txg {txg}: {used} is read")
            }
            Preference::Diverged => write!(
                f,
                "{left_out} and {used} are copies of one device, and each was changed on its own: {used} is \
                 read"
            ),
        }
    }
}

pub(super) fn choose(candidates: Candidates) -> (Members, Vec<Duplicate>) {
    let (mut members, mut duplicates) = (Members::new(), Vec::new());
    for (guid, mut copies) in candidates {
        copies.sort_by_cached_key(|copy| {
            let (label, uberblock) = age(copy);
            let device = &copy.found;
            Reverse((
                label,
                uberblock,
                device.good_labels,
                device.device.size_bytes(),
                Reverse(device.path.clone()),
            ))
        });
        let mut copies = copies.into_iter();
        let Some(used) = copies.next() else { continue };
        duplicates.extend(copies.map(|left_out| Duplicate {
            reason: prefer(&used, &left_out),
            left_out: left_out.found.path,
            used: used.found.path.clone(),
        }));
        members.insert(guid, used);
    }
    (members, duplicates)
}

fn age(copy: &Member) -> (Txg, Txg) {
    let newest = copy.uberblocks.iter().map(|uberblock| uberblock.txg).max();
    (copy.found.label_txg, newest.unwrap_or_default())
}

fn prefer(used: &Member, left_out: &Member) -> Preference {
    let ((label, uberblock), (old_label, old_uberblock)) = (age(used), age(left_out));
    let disagree = used.uberblocks.iter().any(|one| {
        let same_group = left_out.uberblocks.iter().filter(|other| other.txg == one.txg);
        let mut same_group = same_group.peekable();
        same_group.peek().is_some() && !same_group.any(|other| other.rootbp == one.rootbp)
    });
    match () {
        // Labels and uberblocks of one device only ever become newer.
        () if disagree || old_uberblock > uberblock => Preference::Diverged,
        () if (label, uberblock) == (old_label, old_uberblock) => Preference::Equal(label.max(uberblock)),
        () => Preference::Newer { left_out: old_label.max(old_uberblock), used: label.max(uberblock) },
    }
}

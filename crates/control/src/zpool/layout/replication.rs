//! Checks that a pool's vdevs have the same redundancy (`zpool create`, `zpool add`).
//!
//! Idea: each vdev has a replication level (kind, parity, width). New vdevs must agree with each other, and
//! with the pool's unless those already differ. Logs are exempt.
//!
//! Source: OpenZFS `zpool_vdev.c` (`get_replication`, `check_replication`), wording included.

use cenote_pool::{VdevClass, VdevKind};

use super::Group;

/// A larger size difference within one vdev is probably a mistake, `ZPOOL_FUZZ`.
const FUZZ_BYTES: u64 = 16 << 20;

#[derive(Clone, Copy)]
struct Level {
    kind: &'static str,
    parity: usize,
    width: usize,
}

/// The mismatch of new vdevs, among themselves or with present ones. `sizes`: each device's size, and whether
/// it is a file.
pub fn mismatch(present: &[Group], new: &[Group], sizes: &[Vec<(u64, bool)>]) -> Option<String> {
    let (present, levels_of_new) = (levels(present), levels(new));
    let differs = |pair: &[Level]| pair[0].is_like(pair[1]).err();
    if present.windows(2).any(|pair| differs(pair).is_some()) || levels_of_new.is_empty() {
        return None;
    }
    let mut all = new.iter().zip(sizes).filter(|(group, _)| group.class != VdevClass::Log);
    let within = all.find_map(|(group, sizes)| mismatch_within(level(group).kind, sizes));
    let among_new = || levels_of_new.windows(2).find_map(differs).map(|why| why.of_new());
    let beside = || present.last()?.is_like(*levels_of_new.last()?).err().map(|why| why.of_pool_and_new());
    within.or_else(|| Some(format!("mismatched replication level: {}", among_new().or_else(beside)?)))
}

fn mismatch_within(kind: &str, sizes: &[(u64, bool)]) -> Option<String> {
    if sizes.iter().any(|(_, is_file)| *is_file != sizes[0].1) {
        return Some(format!("mismatched replication level: {kind} contains both files and devices"));
    }
    let smallest = sizes.iter().map(|(bytes, _)| *bytes).min().unwrap_or(0);
    let differs = sizes.iter().any(|(bytes, _)| *bytes > smallest + FUZZ_BYTES);
    differs.then(|| format!("{kind} contains devices of different sizes"))
}

fn levels(groups: &[Group]) -> Vec<Level> {
    groups.iter().filter(|group| group.class != VdevClass::Log).map(level).collect()
}

fn level(group: &Group) -> Level {
    let kind = match group.kind {
        VdevKind::Mirror => "mirror",
        VdevKind::Raidz => "raidz",
        VdevKind::Draid => "draid",
        _ => "disk",
    };
    Level { kind, parity: group.parity, width: group.devices.len() }
}

enum Difference {
    /// Different numbers of tolerated losses. RAID-Z and dRAID come before a mirror.
    Losses(Level, Level),
    Kind(Level, Level),
    Parity(Level, Level),
    Width(Level, Level),
}

impl Level {
    fn is_like(self, other: Level) -> Result<(), Difference> {
        let is_redundant = |one: Level| one.kind != "disk";
        if self.kind != other.kind && is_redundant(self) && is_redundant(other) {
            // Different kinds are fine if they survive as many losses.
            let (one, other) = if self.kind == "mirror" { (other, self) } else { (self, other) };
            return if one.losses() == other.losses() { Ok(()) } else { Err(Difference::Losses(one, other)) };
        }
        match () {
            () if self.kind != other.kind => Err(Difference::Kind(self, other)),
            () if self.parity != other.parity => Err(Difference::Parity(self, other)),
            () if self.width != other.width => Err(Difference::Width(self, other)),
            () => Ok(()),
        }
    }

    /// Tolerated device losses.
    fn losses(self) -> usize {
        if self.kind == "mirror" { self.width - 1 } else { self.parity }
    }
}

impl Difference {
    fn of_new(&self) -> String {
        match self {
            Difference::Losses(one, other) => {
                let (kinds, losses) = kinds_and_losses(*one, *other);
                format!("{kinds} with different redundancy, {losses} are present")
            }
            Difference::Kind(one, other) => {
                format!("both {} and {} vdevs are present", one.kind, other.kind)
            }
            Difference::Parity(one, other) => {
                let (parity, others) = (one.parity, other.parity);
                format!("both {parity} and {others} device parity {} vdevs are present", other.kind)
            }
            Difference::Width(one, other) => {
                format!("both {}-way and {}-way {} vdevs are present", one.width, other.width, other.kind)
            }
        }
    }

    fn of_pool_and_new(&self) -> String {
        match self {
            Difference::Losses(one, other) => {
                let (kinds, losses) = kinds_and_losses(*one, *other);
                format!("pool and new vdev with different redundancy, {kinds}, {losses}")
            }
            Difference::Kind(one, other) => {
                format!("pool uses {} and new vdev is {}", one.kind, other.kind)
            }
            Difference::Parity(one, other) => {
                format!("pool uses {} device parity and new vdev uses {}", one.parity, other.parity)
            }
            Difference::Width(one, other) => {
                let pool = format!("pool uses {}-way {}", one.width, one.kind);
                format!("{pool} and new vdev uses {}-way {}", other.width, other.kind)
            }
        }
    }
}

fn kinds_and_losses(one: Level, other: Level) -> (String, String) {
    let way = if other.kind == "mirror" { format!(" ({}-way)", other.width) } else { String::new() };
    let kinds = format!("{} and {} vdevs", one.kind, other.kind);
    (kinds, format!("{} vs. {}{way}", one.losses(), other.losses()))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn groups(line: &str) -> Vec<Group> {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        parse(&words).unwrap().groups
    }

    fn said(present: &str, new: &str) -> Option<String> {
        let present = if present.is_empty() { Vec::new() } else { groups(present) };
        let new = if new.is_empty() { Vec::new() } else { groups(new) };
        let sizes: Vec<_> = new.iter().map(|group| vec![(1 << 30, true); group.devices.len()]).collect();
        mismatch(&present, &new, &sizes)
    }

    #[test]
    fn vdevs_that_protect_differently_are_noticed() {
        for (new, why) in [
            ("mirror a b mirror c d", ""),
            ("a b c", ""),
            ("raidz a b c raidz d e f", ""),
            ("raidz a b c mirror d e", ""),
            ("raidz a b c special mirror d e", ""),
            ("mirror a b log c", ""),
            ("a mirror b c", "both disk and mirror vdevs are present"),
            ("raidz a b c raidz2 d e f", "both 1 and 2 device parity raidz vdevs are present"),
            ("raidz a b c raidz d e f g", "both 3-way and 4-way raidz vdevs are present"),
            ("mirror a b special c", "both mirror and disk vdevs are present"),
            (
                "mirror d e raidz2 a b c",
                "raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present",
            ),
        ] {
            let expected = (!why.is_empty()).then(|| format!("mismatched replication level: {why}"));
            assert_eq!(said("", new), expected, "{new}");
        }
        let new = groups("mirror a b");
        assert!(mismatch(&[], &new, &[vec![(64 << 20, true), (128 << 20, true)]]).is_some());
        assert!(mismatch(&[], &new, &[vec![(64 << 20, true), (64 << 20, false)]]).is_some());
    }

    #[test]
    fn what_is_new_protects_like_the_pool_unless_that_is_mixed() {
        for (present, new, why) in [
            ("mirror a b", "mirror c d", ""),
            ("mirror a b", "log c", ""),
            ("mirror a b", "", ""),
            ("mirror a b c raidz d e f", "g", ""),
            ("draid1:2d:6c:1s a b c d e f special mirror g h i", "", ""),
            ("mirror a b", "c", "pool uses mirror and new vdev is disk"),
            ("mirror a b", "mirror c d e", "pool uses 2-way mirror and new vdev uses 3-way mirror"),
            ("raidz a b c", "raidz2 d e f", "pool uses 1 device parity and new vdev uses 2"),
            (
                "draid2:2d:6c:1s a b c d e f",
                "mirror g h",
                "pool and new vdev with different redundancy, draid and mirror vdevs, 2 vs. 1 (2-way)",
            ),
        ] {
            let expected = (!why.is_empty()).then(|| format!("mismatched replication level: {why}"));
            assert_eq!(said(present, new), expected, "{present} + {new}");
        }
    }
}

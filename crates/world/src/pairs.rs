//! Pairs of verbs that ran at once: which ones, and in which phase of the txg.
//!
//! ```text
//!   call a   |-----------|               at once: from the beginning of b to the end of a
//!   call b         |-----------|
//!   txg 7    |--open--|closing|--being written--|
//! ```
//!
//! Idea: a pair of verbs that never ran at once is untested, however many worlds were right. A world can aim
//! at a pair: its clients and administrators then mostly choose these two.
//!
//! Two verbs on devices never run at once, since each may use up the budget of guilty disks
//! ([`crate::client::devices`]).

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::layout::Layout;
use crate::model::verb::{DEVICE_VERBS, FIRST_OF_ADMINISTRATORS, FIRST_OF_VOLUMES, VERBS};
use crate::record::{Life, Made, Record};

/// Pairs shown as the rarest.
const RAREST: usize = 12;

/// How often a pair ran at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // as their names say
pub struct Count {
    pub times: u64,
    /// A txg was about to close.
    pub closing: u64,
    /// A txg was being written.
    pub written: u64,
    /// Both concerned the same dataset.
    pub of_one_dataset: u64,
}

/// Pairs of verbs, each in the order of [`VERBS`].
#[derive(Debug, Clone, Default)]
pub struct Pairs(BTreeMap<(usize, usize), Count>);

fn index(verb: &str) -> usize {
    VERBS.iter().position(|known| *known == verb).expect("all verbs are listed")
}

fn is_of_devices(verb: usize) -> bool {
    verb >= VERBS.len() - DEVICE_VERBS
}

/// All pairs that may run at once.
fn possible() -> impl Iterator<Item = (usize, usize)> {
    let all = (0..VERBS.len()).flat_map(|one| (one..VERBS.len()).map(move |other| (one, other)));
    all.filter(|(one, other)| !(is_of_devices(*one) && is_of_devices(*other)))
}

impl Pairs {
    /// Counts the pairs of a world.
    pub fn count(&mut self, record: &Record) {
        record.lives.iter().for_each(|life| self.count_life(life));
    }

    fn count_life(&mut self, life: &Life) {
        let end_ns = life.end_ns();
        let end_of = |made: &Made| made.end.as_ref().map_or(end_ns, |(at, _)| *at);
        // In the order of their beginnings, which is that of their numbers but in scripts.
        let mut calls: Vec<&Made> = life.calls.values().collect();
        calls.sort_by_key(|made| made.begin_ns);
        let mut under_way: Vec<&Made> = Vec::new();
        for later in calls {
            under_way.retain(|made| end_of(made) >= later.begin_ns);
            for earlier in &under_way {
                let at_once = (later.begin_ns, end_of(earlier).min(end_of(later)));
                self.add(life, earlier, later, at_once);
            }
            under_way.push(later);
        }
    }

    fn add(&mut self, life: &Life, one: &Made, other: &Made, (from, to): (u64, u64)) {
        let (one_verb, other_verb) = (index(one.verb), index(other.verb));
        let pair = (one_verb.min(other_verb), one_verb.max(other_verb));
        let count = self.0.entry(pair).or_default();
        let meets = |start: u64, end: u64| start <= to && from <= end;
        let txgs = || life.txgs.values().skip_while(|txg| txg.written_ns < from);
        count.times += 1;
        count.closing += u64::from(txgs().any(|txg| meets(txg.closing_ns, txg.closed_ns)));
        count.written += u64::from(txgs().any(|txg| meets(txg.closed_ns, txg.written_ns)));
        count.of_one_dataset += u64::from(one.dataset.is_some() && one.dataset == other.dataset);
    }
}

impl Display for Pairs {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let count_of = |pair: &(usize, usize)| self.0.get(pair).copied().unwrap_or_default();
        let all: Vec<_> = possible().map(|pair| (pair, count_of(&pair))).collect();
        let with = |of: fn(&Count) -> u64| all.iter().filter(|(_, count)| of(count) > 0).count();
        writeln!(
            f,
            "pairs: {} of {} at once; {} while a txg closed, {} while one was written, {} on one dataset",
            with(|count| count.times),
            all.len(),
            with(|count| count.closing),
            with(|count| count.written),
            with(|count| count.of_one_dataset),
        )?;
        let mut rare: Vec<_> = all.iter().filter(|(_, count)| count.times > 0).collect();
        rare.sort_by_key(|(_, count)| count.times);
        for ((one, other), count) in rare.into_iter().take(RAREST) {
            let Count { times, written, of_one_dataset, .. } = count;
            let (one, other) = (VERBS[*one], VERBS[*other]);
            writeln!(
                f,
                "  {one} x {other}: {times}, {written} while written, {of_one_dataset} on one dataset"
            )?;
        }
        let mut never: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for ((one, other), _) in all.iter().filter(|(_, count)| count.times == 0) {
            never.entry(*one).or_default().push(VERBS[*other]);
        }
        for (one, others) in never {
            writeln!(f, "  never: {} x {}", VERBS[one], others.join(", "))?;
        }
        Ok(())
    }
}

/// Two verbs that a world aims at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim(pub &'static str, pub &'static str);

impl Aim {
    /// The aim of a seed: successive seeds go through all pairs.
    pub fn of(seed: u64) -> Aim {
        let count = possible().count() as u64;
        // Coprime to the count, so that neighbours differ in both verbs.
        let at = seed.wrapping_mul(577) % count;
        let (one, other) = possible().nth(at as usize).unwrap_or_default();
        Aim(VERBS[one], VERBS[other])
    }

    /// Whether a verb is one of the two.
    pub fn has(&self, verb: &str) -> bool {
        [self.0, self.1].contains(&verb)
    }

    /// How many of the two are verbs of files.
    pub fn count_of_files(&self) -> usize {
        self.count(|verb| verb < FIRST_OF_VOLUMES)
    }

    /// How many are verbs of volumes.
    pub fn count_of_volumes(&self) -> usize {
        self.count(|verb| (FIRST_OF_VOLUMES..FIRST_OF_ADMINISTRATORS).contains(&verb))
    }

    /// How many are verbs of administrators, and of these on devices.
    pub fn count_of_administrators(&self) -> (usize, usize) {
        (self.count(|verb| verb >= FIRST_OF_ADMINISTRATORS), self.count(is_of_devices))
    }

    fn count(&self, is_meant: impl Fn(usize) -> bool) -> usize {
        [self.0, self.1].iter().filter(|verb| is_meant(index(verb))).count()
    }

    /// A layout that the verbs need, if they need one.
    pub fn layout(&self, drawn: Layout) -> Layout {
        let words = [self.0, self.1].iter().find_map(|verb| match *verb {
            "expand" => Some("raidz1 0 1 2"),
            "attach" | "detach" | "replace" | "offline" | "online" => Some("mirror 0 1 2"),
            "remove" | "stop removal" => Some("mirror 0 1 mirror 2 3"),
            _ => None,
        });
        Layout { words: words.map_or(drawn.words, str::to_owned), ..drawn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(verb: &'static str, begin_ns: u64, end_ns: Option<u64>) -> Made {
        let (text, end) = (String::new(), end_ns.map(|at| (at, String::new())));
        Made { client: 0, verb, dataset: Some(1), text, begin_ns, end }
    }

    #[test]
    fn calls_are_a_pair_while_both_are_under_way() {
        let mut life = Life::default();
        let calls = [made("write", 0, Some(10)), made("snapshot", 5, None), made("read", 20, Some(30))];
        life.calls.extend((1..).zip(calls));
        let times = [(0, 0, 2, 4), (2, 7, 8, 12)];
        life.txgs.extend((1..).zip(times).map(|(number, (opened_ns, closing_ns, closed_ns, written_ns))| {
            (number, crate::record::Txg { number, opened_ns, closing_ns, closed_ns, written_ns })
        }));
        let mut pairs = Pairs::default();
        pairs.count(&Record { lives: vec![life] });
        let count = |one, other| {
            let pair = (index(one), index(other));
            pairs.0.get(&(pair.0.min(pair.1), pair.0.max(pair.1))).copied().unwrap_or_default()
        };
        let all = Count { times: 1, closing: 1, written: 1, of_one_dataset: 1 };
        assert_eq!(count("write", "snapshot"), all);
        assert_eq!(count("snapshot", "read"), Count { closing: 0, written: 0, ..all });
        assert_eq!(count("write", "read"), Count::default());
        assert!(pairs.to_string().contains("never: open x open"));
    }

    #[test]
    fn seeds_aim_at_all_pairs() {
        let count = possible().count();
        let aims: std::collections::BTreeSet<_> =
            (1..=count as u64).map(|seed| (Aim::of(seed).0, Aim::of(seed).1)).collect();
        assert_eq!(aims.len(), count);
        assert!(!aims.contains(&("offline", "online")) && aims.contains(&("flush volume", "rollback")));
    }
}

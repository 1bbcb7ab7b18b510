//! What of the machine's description the analysis needs: how full a target is, on what kind of disks, which disks rotate.

use std::collections::BTreeMap;

use serde_json::Value;

/// What is known of a target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetFacts {
    /// How full its pool or file system was, in percent.
    pub fill_percent: Option<f64>,
    /// What kind of disks is below it: only targets on the same kind are compared by fill.
    pub medium: Option<String>,
    /// How these are put together: `mirror`, `raidz1`.
    pub layout: Option<String>,
}

/// What is known of the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Setting {
    /// Of each target, by name.
    pub targets: BTreeMap<String, TargetFacts>,
    /// Which disks rotate, by name.
    pub rotates: BTreeMap<String, bool>,
}

impl Setting {
    /// Whether a disk, or the one that a partition is on, rotates.
    pub fn rotates(&self, disk: &str) -> Option<bool> {
        let whole = disk.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('p');
        self.rotates.get(disk).or_else(|| self.rotates.get(whole)).copied()
    }

    /// From `machine.json`. What it does not tell stays unknown.
    pub fn from_machine(_machine: &Value, targets: &[&str]) -> Setting {
        let unknown = |name: &&str| ((*name).to_owned(), TargetFacts::default());
        Setting { targets: targets.iter().map(unknown).collect(), rotates: BTreeMap::new() }
    }
}

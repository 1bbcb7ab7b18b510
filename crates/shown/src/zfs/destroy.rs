//! `zfs destroy`: datasets and space, `-v` for people, `-p` for scripts, or JSON.

use cenote_control::text::nice_bytes;
use cenote_control::zfs::tree::destroy::Planned;
use serde_json::{Value, json};

use crate::json::version;

/// How the datasets to destroy are reported.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Nothing is destroyed.
    pub dry_run: bool,
    /// In a form for scripts.
    pub parsable: bool,
}

impl Report {
    /// As JSON.
    pub fn json(&self, planned: &Planned) -> Value {
        json!({
            "output_version": version("zfs destroy"),
            "dry_run": self.dry_run,
            "destroy": planned.names.iter().chain(self.clones(planned)).collect::<Vec<_>>(),
            "reclaim_bytes": planned.reclaim_bytes,
        })
    }

    /// As text.
    pub fn text(&self, planned: &Planned) -> String {
        let when = if self.dry_run { "would" } else { "will" };
        let destroys = |name: &String| match self.parsable {
            true => format!("destroy\t{name}\n"),
            false => format!("{when} destroy {name}\n"),
        };
        let reclaims = |bytes: u64| match self.parsable {
            true => format!("reclaim\t{bytes}\n"),
            false => format!("{when} reclaim {}\n", nice_bytes(bytes)),
        };
        let (names, clones) = (planned.names.iter().map(destroys), self.clones(planned).iter().map(destroys));
        names.chain(planned.reclaim_bytes.map(reclaims)).chain(clones).collect()
    }

    /// Like OpenZFS, which finds clones only when it destroys.
    fn clones<'p>(&self, planned: &'p Planned) -> &'p [String] {
        if self.dry_run { &[] } else { &planned.clones }
    }
}

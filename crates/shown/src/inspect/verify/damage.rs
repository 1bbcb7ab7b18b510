//! Findings as text: damaged blocks grouped by file, other findings as they are.

use std::collections::HashMap;
use std::ops::Range;

use cenote_control::inspect::verify::{BadBlock, Finding, Owner, Part};
use cenote_control::text::{counted, nice_bytes};

/// How many ranges of a file are listed; of the rest only the count is shown.
const MOST_RANGES: usize = 3;

/// The damage to a file or to some other structure.
struct Damage<'a> {
    owner: &'a Owner,
    subject: String,
    lost: u64,
    repairable: u64,
    lost_bytes: u64,
    /// Ranges of lost content.
    ranges: Vec<Range<u64>>,
}

enum Line<'a> {
    File(usize),
    Other(&'a Finding),
}

/// One line for each file, or with `verbose` for each block, in the order of the findings.
pub fn text(findings: &[Finding], verbose: bool) -> String {
    let mut files: Vec<Damage<'_>> = Vec::new();
    let mut known: HashMap<(&Option<String>, String), usize> = HashMap::new();
    let mut lines = Vec::new();
    for finding in findings {
        let Finding::Block(block) = finding else {
            lines.push(Line::Other(finding));
            continue;
        };
        if verbose {
            lines.push(Line::Other(finding));
            continue;
        }
        let subject = subject(&block.owner);
        let index = *known.entry((&block.owner.dataset, subject.clone())).or_insert_with(|| {
            let owner = &block.owner;
            files.push(Damage { owner, subject, lost: 0, repairable: 0, lost_bytes: 0, ranges: Vec::new() });
            lines.push(Line::File(files.len() - 1));
            files.len() - 1
        });
        files[index].add(block);
    }
    let mut out = String::new();
    for line in lines {
        out.push_str(&match line {
            Line::File(index) => format!("  {}\n", files[index].line()),
            Line::Other(finding) => format!("  {finding}\n"),
        });
    }
    out
}

/// The damaged part of the dataset.
fn subject(owner: &Owner) -> String {
    match (&owner.path, &owner.part) {
        (Some(path), _) => format!("/{path}"),
        (None, Part::ObjectSet | Part::Dnodes { .. } | Part::IntentLog) => {
            // In the owner's words, without the dataset.
            let text =
                Owner { dataset: Some(String::new()), also_in: Vec::new(), ..owner.clone() }.to_string();
            text.trim_start_matches(": ").to_owned()
        }
        (None, _) => format!("object {} ({})", owner.object, owner.object_type),
    }
}

impl Damage<'_> {
    fn add(&mut self, block: &BadBlock) {
        if !block.lost {
            self.repairable += 1;
            return;
        }
        self.lost += 1;
        let range = match block.owner.part {
            Part::Data { offset_bytes, len_bytes } => Some((offset_bytes, len_bytes)),
            Part::Indirect { offset_bytes: Some(offset), len_bytes: Some(len), .. } => Some((offset, len)),
            _ => None,
        };
        if let Some((offset, len)) = range {
            self.lost_bytes = self.lost_bytes.saturating_add(len);
            self.ranges.push(offset..offset.saturating_add(len));
        }
    }

    fn line(&self) -> String {
        let mut parts = Vec::new();
        if self.lost > 0 {
            let bytes =
                if self.lost_bytes > 0 { format!(" ({})", nice_bytes(self.lost_bytes)) } else { "".into() };
            parts.push(format!("{} lost{bytes}{}", counted(self.lost, "block"), self.places()));
        }
        if self.repairable > 0 {
            parts.push(format!("{} repairable", counted(self.repairable, "block")));
        }
        let dataset = self.owner.dataset.as_deref().unwrap_or("pool metadata");
        let also = match &self.owner.also_in[..] {
            [] => String::new(),
            [one] => format!(" (also in {one})"),
            [first, more @ ..] => format!(" (also in {first} and {} more)", more.len()),
        };
        format!("{dataset}: {}: {}{also}", self.subject, parts.join(", "))
    }

    /// The position in the file.
    fn places(&self) -> String {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut sorted = self.ranges.clone();
        sorted.sort_unstable_by_key(|range| range.start);
        for range in sorted {
            match ranges.last_mut().filter(|last| last.end >= range.start) {
                Some(last) => last.end = last.end.max(range.end),
                None => ranges.push(range),
            }
        }
        let shown: Vec<String> = ranges
            .iter()
            .take(MOST_RANGES)
            .map(|range| format!("{} to {}", range.start, range.end))
            .collect();
        match ranges.len() {
            0 => String::new(),
            few if few <= MOST_RANGES => format!(", bytes {}", shown.join(" and ")),
            many => format!(", bytes {} and {} more ranges", shown.join(", "), many - MOST_RANGES),
        }
    }
}

//! The report's rows: one for each difference between destination and pool.
//!
//! The tab-separated form, `rescue-report.tsv`, has the columns `fate dataset path what ranges elsewhere
//! why`. Bytes of names and paths outside printable ASCII, and the backslash, are written as `\xNN`; ranges
//! are `offset+length`, comma-separated. The JSON form, `rescue-report.jsonl`, has one object per line.

use cenote_format::units::Txg;
use cenote_fs::manifest::escape_path;
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::copy::{Loss, LossKind, Reason};

/// The first line of the tab-separated form.
const HEADER: &str = "fate\tdataset\tpath\twhat\tranges\telsewhere\twhy";
/// The value of `what` in a row about a whole dataset.
const DATASET: &str = "dataset";
const CONTENT: &str = "content";
const ENTRIES: &str = "entries of the folder";
const FILE: &str = "file or folder";
const NODE: &str = "device node, fifo or socket";
/// Another file has the name: the destination treats two names of the pool as one.
const NAME_TAKEN: &str = "name taken";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Tsv,
    Json,
}

impl Form {
    pub const ALL: [Form; 2] = [Form::Tsv, Form::Json];

    /// Its file name at the destination.
    pub fn file_name(self) -> &'static str {
        match self {
            Form::Tsv => "rescue-report.tsv",
            Form::Json => "rescue-report.jsonl",
        }
    }

    /// Its first line.
    pub fn header(self) -> String {
        match self {
            Form::Tsv => format!("{HEADER}\n"),
            Form::Json => String::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// No tree tried has it.
    Lost,
    /// It came from the tree of this txg, which is not the newest.
    FromTxg(Txg),
    /// Encrypted, and no key was given.
    Locked,
    /// Copied under another name.
    Renamed,
    /// Copied without this; or a file without content that the destination can't store.
    NotKept,
    /// Copied, although the tables that describe how to read it are lost.
    Inferred,
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fate::Lost => f.write_str("lost"),
            Fate::FromTxg(txg) => write!(f, "from txg {txg}"),
            Fate::Locked => f.write_str("locked"),
            Fate::Renamed => f.write_str("renamed"),
            Fate::NotKept => f.write_str("not kept"),
            Fate::Inferred => f.write_str("inferred"),
        }
    }
}

impl Fate {
    fn parse(text: &str) -> Option<Fate> {
        Some(match text {
            "lost" => Fate::Lost,
            "locked" => Fate::Locked,
            "renamed" => Fate::Renamed,
            "not kept" => Fate::NotKept,
            "inferred" => Fate::Inferred,
            _ => Fate::FromTxg(Txg(text.strip_prefix("from txg ")?.parse().ok()?)),
        })
    }
}

/// A row of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Row {
    fate: String,
    pub dataset: String,
    /// Escaped; empty if the row is about the whole dataset.
    pub path: String,
    pub what: String,
    /// Offset and length.
    ranges: Vec<(u64, u64)>,
    /// The destination's name of a snapshot with the complete file.
    elsewhere: Option<String>,
    why: String,
}

impl Row {
    /// About a whole dataset.
    pub fn of_dataset(dataset: &str, fate: Fate, why: String) -> Row {
        let what = if fate == Fate::Inferred { "tables" } else { DATASET };
        Row {
            fate: fate.to_string(),
            dataset: escaped(dataset.as_bytes()),
            path: String::new(),
            what: what.into(),
            ranges: Vec::new(),
            elsewhere: None,
            why,
        }
    }

    pub fn of_loss(dataset: &str, loss: &Loss, fate: Fate) -> Row {
        let (mut ranges, mut elsewhere) = (Vec::new(), None);
        let what = match &loss.kind {
            LossKind::File if is_there_already(loss) => NAME_TAKEN,
            LossKind::File => FILE,
            LossKind::Entries => ENTRIES,
            LossKind::Content(lost) => {
                ranges = lost.iter().map(|range| (range.start, range.end - range.start)).collect();
                CONTENT
            }
            LossKind::Name(name) => {
                elsewhere = Some(escaped(name.as_os().as_encoded_bytes()));
                "name"
            }
            LossKind::Node => NODE,
            kind => kind.words(),
        };
        Row {
            fate: fate.to_string(),
            dataset: escaped(dataset.as_bytes()),
            path: escaped(&loss.path),
            what: what.into(),
            ranges,
            elsewhere,
            why: loss.reason.to_string(),
        }
    }

    /// The same, for a file complete in a snapshot.
    pub fn in_snapshot(mut self, snapshot: &str) -> Row {
        self.elsewhere = Some(escaped(snapshot.as_bytes()));
        self
    }

    /// The same, with details added to the reason.
    pub fn because(mut self, details: &str) -> Row {
        self.why = format!("{}; {details}", self.why);
        self
    }

    pub fn fate(&self) -> Option<Fate> {
        Fate::parse(&self.fate)
    }

    /// Whether the whole dataset is missing or older than in the newest tree.
    pub fn is_of_dataset(&self) -> bool {
        self.what == DATASET
    }

    /// Whether something at or below its path is missing or older than in the newest tree.
    pub fn is_of_tree(&self) -> bool {
        self.what == FILE || self.what == ENTRIES
    }

    /// Whether it is about a file without content that the destination can't store.
    pub fn is_of_node(&self) -> bool {
        self.what == NODE
    }

    /// Whether a complete copy makes it obsolete.
    pub fn ends_when_whole(&self) -> bool {
        [FILE, ENTRIES, CONTENT, NODE, NAME_TAKEN, DATASET].contains(&&self.what[..])
    }

    /// Bytes that are zeros in the copy.
    pub fn content_bytes(&self) -> Option<u64> {
        (self.what == CONTENT)
            .then(|| self.ranges.iter().fold(0u64, |sum, (_, len)| sum.saturating_add(*len)))
    }

    /// As a line of the report.
    pub fn to_line(&self, form: Form) -> std::io::Result<String> {
        if form == Form::Json {
            return Ok(serde_json::to_string(self)? + "\n");
        }
        let ranges: Vec<String> = self.ranges.iter().map(|(at, len)| format!("{at}+{len}")).collect();
        let ranges = if ranges.is_empty() { "-".into() } else { ranges.join(",") };
        let elsewhere = self.elsewhere.as_deref().unwrap_or("-");
        let why = self.why.replace(|c: char| c.is_control(), " ");
        let path = if self.path.is_empty() { "-" } else { &self.path };
        let (fate, dataset, what) = (&self.fate, &self.dataset, &self.what);
        Ok(format!("{fate}\t{dataset}\t{path}\t{what}\t{ranges}\t{elsewhere}\t{why}\n"))
    }

    /// Parses a line without its terminator; `None` if not a row.
    pub fn of_line(line: &str, form: Form) -> Option<Row> {
        if form == Form::Json {
            return serde_json::from_str(line).ok().filter(|row: &Row| row.fate().is_some());
        }
        let parts: Vec<&str> = line.splitn(7, '\t').collect();
        let [fate, dataset, path, what, ranges, elsewhere, why] = parts.try_into().ok()?;
        Fate::parse(fate)?;
        let given = |text: &str| (text != "-").then(|| text.to_owned());
        let range = |text: &str| {
            let (at, len) = text.split_once('+')?;
            Some((at.parse().ok()?, len.parse().ok()?))
        };
        Some(Row {
            fate: fate.into(),
            dataset: dataset.into(),
            path: given(path).unwrap_or_default(),
            what: what.into(),
            ranges: given(ranges).iter().flat_map(|all| all.split(',')).map(range).collect::<Option<_>>()?,
            elsewhere: given(elsewhere),
            why: why.into(),
        })
    }
}

/// In the report's notation for paths and names.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    escape_path(bytes, &mut text);
    text
}

/// Whether the file is at the destination: made by an earlier rescue, or by an older tree's copy of the
/// folder.
pub(super) fn is_there_already(loss: &Loss) -> bool {
    matches!((&loss.kind, &loss.reason), (LossKind::File, Reason::System(Errno::EXIST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let path = b"/a\tb\xff/-".to_vec();
        let reason = Reason::Because("no\tway");
        let kinds = [LossKind::File, LossKind::Content(vec![0..7, 4096..8192]), LossKind::Owner];
        let loss = |kind| Loss { path: path.clone(), kind, reason: reason.clone() };
        let rows = kinds.map(|kind| Row::of_loss("p/a", &loss(kind), Fate::FromTxg(Txg(7))));
        let whole = Row::of_dataset("p/a", Fate::Lost, "no way".into());
        for row in rows.into_iter().map(|row| row.in_snapshot("p/a@s")).chain([whole]) {
            for form in Form::ALL {
                let line = row.to_line(form).unwrap();
                let again = Row::of_line(line.strip_suffix('\n').unwrap(), form).unwrap();
                assert_eq!(again.to_line(form).unwrap(), line);
                assert_eq!((again.fate(), again.content_bytes()), (row.fate(), row.content_bytes()));
            }
        }
        assert_eq!(Row::of_line("lost\tp\t/a\tcontent\t12", Form::Tsv), None);
        assert_eq!(Row::of_line(HEADER, Form::Tsv), None);
    }
}

//! `cenote find`: finds files of a dataset or folder by name, type, size, age, owner.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use cenote_fs::LastLink;
use cenote_inspect::InspectError;
use cenote_inspect::scan::{Row, RowBatch, ScanNeeds, ScanProblem, scan_below};
use clap::Args;

use super::files::{FileJson, PoolFile, PoolFiles, complain, long_lines};
use crate::outcome::{CliError, Outcome};
use crate::render::{glob_matches, json_line, parse_bytes, quoted};
use crate::session::{Session, Target, TargetParser, stdout};

/// `cenote find`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote find tank/home:/ --name '*.iso' --size +1G")]
pub struct Find {
    /// Shell pattern that the name must match; repeatable (any may match)
    #[arg(long, value_name = "GLOB")]
    pub name: Vec<OsString>,
    /// Shell pattern that the whole path must match
    #[arg(long, value_name = "GLOB")]
    pub path: Option<OsString>,
    /// f file, d folder, l symbolic link, p fifo, s socket, b block device, c character device
    #[arg(long = "type", value_name = "LETTERS")]
    pub kind: Option<String>,
    /// At least (+), at most (-) or exactly this size: +1M, -4096
    #[arg(long, value_name = "[+-]SIZE", allow_hyphen_values = true)]
    pub size: Option<String>,
    /// Changed less (-) or more (+) than this long ago: -2d, +1y; units s, m, h, d, w, y
    #[arg(long, value_name = "[+-]AGE", allow_hyphen_values = true)]
    pub mtime: Option<String>,
    /// Owner's numeric uid
    #[arg(long)]
    pub uid: Option<u64>,
    /// Group's numeric gid
    #[arg(long)]
    pub gid: Option<u64>,
    /// Whose dnode was last written after this transaction group
    #[arg(long, value_name = "TXG")]
    pub newer_txg: Option<u64>,
    /// End each path with a NUL byte, unescaped
    #[arg(short = '0', long)]
    pub print0: bool,
    /// Show type, mode, owner, size and time
    #[arg(short = 'l', long)]
    pub long: bool,
    /// POOL/DATASET[@SNAPSHOT][:/PATH]
    #[arg(required = true, value_name = "DATASET[:/PATH]", value_parser = TargetParser)]
    pub targets: Vec<Target>,
}

/// The conditions that a file must meet.
struct Predicates {
    names: Vec<Vec<u8>>,
    path: Option<Vec<u8>>,
    kinds: Option<String>,
    size: Option<Bound>,
    /// Age in nanoseconds, relative to `now_ns`.
    age: Option<Bound>,
    now_ns: i128,
    uid: Option<u64>,
    gid: Option<u64>,
    newer_txg: Option<u64>,
}

/// At least, at most or exactly this much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    AtLeast(i128),
    AtMost(i128),
    Exactly(i128),
}

/// The matches of a batch of rows.
struct Found {
    text: Vec<u8>,
    problems: Vec<ScanProblem>,
}

/// How files are shown.
#[derive(Clone, Copy)]
enum Shape {
    Paths,
    Nul,
    Long,
    Json,
}

impl Find {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let predicates = Arc::new(self.predicates(session)?);
        let shape = match (session.json(), self.print0, self.long) {
            (true, _, _) => Shape::Json,
            (_, true, _) => Shape::Nul,
            (_, _, true) => Shape::Long,
            _ => Shape::Paths,
        };
        let mut out = stdout();
        let mut places = PoolFiles::new(session);
        let mut outcome = Outcome::Done;
        for target in &self.targets {
            let found = match places.find(target, LastLink::Keep).await {
                Ok(place) => search(place, predicates.clone(), shape, &mut out).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(how) => outcome = outcome.and(how),
                Err(error) => outcome = outcome.and(complain(target, error)?),
            }
        }
        out.flush().map_err(CliError::io("standard output"))?;
        Ok(outcome)
    }

    fn predicates(&self, session: &Session) -> Result<Predicates, CliError> {
        if let Some(letter) =
            self.kind.iter().flat_map(|kinds| kinds.chars()).find(|c| !"fdlpsbc".contains(*c))
        {
            return Err(CliError::Usage(format!("--type {letter}: use f, d, l, p, s, b or c")));
        }
        let size = |text: &String| {
            Bound::parse(text, |size| parse_bytes(size).map(i128::from))
                .ok_or_else(|| CliError::Usage(format!("--size {text}: use [+-]SIZE, for example +1M")))
        };
        let age = |text: &String| {
            Bound::parse(text, age_ns).ok_or_else(|| {
                CliError::Usage(format!("--mtime {text}: use [+-]AGE, for example -2d or +1y"))
            })
        };
        Ok(Predicates {
            names: self.name.iter().map(|name| name.clone().into_encoded_bytes()).collect(),
            path: self.path.as_ref().map(|path| path.clone().into_encoded_bytes()),
            kinds: self.kind.clone(),
            size: self.size.as_ref().map(size).transpose()?,
            age: self.mtime.as_ref().map(age).transpose()?,
            now_ns: session.runtime().unix_time_ns().into(),
            uid: self.uid,
            gid: self.gid,
            newer_txg: self.newer_txg,
        })
    }
}

/// Scans a folder and writes the matches in the order they are read.
async fn search(
    place: PoolFile,
    predicates: Arc<Predicates>,
    shape: Shape,
    out: &mut impl Write,
) -> Result<Outcome, CliError> {
    if !place.attr.is_dir() {
        return Err(CliError::NotFound("not a folder; `cenote stat` shows a file".into()));
    }
    let (target, folder, shown) = (place.scan_target(), place.object, place.clone());
    let render = move |batch: &RowBatch| render(batch, &place, &predicates, shape);
    let needs = ScanNeeds::default();
    let mut outcome = Outcome::Done;
    let scanned = scan_below(&target, folder, needs, render, |found: Found| {
        for problem in found.problems {
            outcome = outcome.and(shown.problem(&problem.path, problem.error));
        }
        out.write_all(&found.text).map_err(InspectError::io("standard output"))
    })
    .await;
    Ok(scanned.map(|()| outcome)?)
}

fn render(batch: &RowBatch, place: &PoolFile, predicates: &Predicates, shape: Shape) -> Found {
    let path_of = |row: &Row| match batch.path(row) {
        b"." => place.shown.clone(),
        below => place.below(below),
    };
    let matching = batch.rows.iter().filter(|row| predicates.match_row(row, || path_of(row)));
    let mut text = Vec::new();
    match shape {
        Shape::Long => {
            let files = matching.map(|row| (&row.attr, quoted(&path_of(row))));
            text = long_lines(files, false).into_bytes();
        }
        Shape::Paths => matching.for_each(|row| {
            text.extend_from_slice(quoted(&path_of(row)).as_bytes());
            text.push(b'\n');
        }),
        Shape::Nul => matching.for_each(|row| {
            text.extend_from_slice(&path_of(row));
            text.push(0);
        }),
        Shape::Json => matching.for_each(|row| {
            let json = FileJson::new(&path_of(row), row.object, &row.attr, None);
            // Serialising plain values to memory can't fail.
            text.extend_from_slice(json_line(&json).unwrap_or_default().as_bytes());
        }),
    }
    Found { text, problems: batch.problems.clone() }
}

impl Predicates {
    /// `shown` builds the text `pool/dataset@snapshot:/path`; it is called only if a condition needs it.
    fn match_row(&self, row: &Row, shown: impl Fn() -> Vec<u8>) -> bool {
        let asks_path = !self.names.is_empty() || self.path.is_some();
        self.match_attributes(row) && (!asks_path || self.match_path(&shown()))
    }

    fn match_path(&self, shown: &[u8]) -> bool {
        let start = shown.windows(2).position(|two| two == b":/").map_or(0, |at| at + 1);
        let path = &shown[start..];
        let name = &path[path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1)..];
        (self.names.is_empty() || self.names.iter().any(|glob| glob_matches(glob, name)))
            && self.path.as_ref().is_none_or(|glob| glob_matches(glob, path))
    }

    fn match_attributes(&self, row: &Row) -> bool {
        let attr = &row.attr;
        let mtime_ns = i128::from(attr.mtime.seconds) * 1_000_000_000 + i128::from(attr.mtime.nanoseconds);
        let (uid, gid) = attr.owner();
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(attr.kind().letter()))
            && self.size.is_none_or(|bound| bound.holds(attr.size.into()))
            && self.age.is_none_or(|bound| bound.holds(self.now_ns - mtime_ns))
            && self.uid.is_none_or(|wanted| wanted == u64::from(uid))
            && self.gid.is_none_or(|wanted| wanted == u64::from(gid))
            && self.newer_txg.is_none_or(|txg| row.birth_txg.0 > txg)
    }
}

impl Bound {
    fn parse(text: &str, number: impl Fn(&str) -> Option<i128>) -> Option<Bound> {
        match text.split_at_checked(1)? {
            ("+", rest) => number(rest).map(Bound::AtLeast),
            ("-", rest) => number(rest).map(Bound::AtMost),
            _ => number(text).map(Bound::Exactly),
        }
    }

    fn holds(self, value: i128) -> bool {
        match self {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
            Bound::Exactly(bound) => value == bound,
        }
    }
}

/// `90s`, `5m`, `2h`, `2d`, `3w`, `1y` in nanoseconds; the default unit is days.
fn age_ns(text: &str) -> Option<i128> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds: i128 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "" | "d" => 86_400,
        "w" => 7 * 86_400,
        "y" => 365 * 86_400,
        _ => return None,
    };
    number.parse::<u32>().ok().map(|number| i128::from(number) * seconds * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read() {
        assert_eq!(Bound::parse("+2d", age_ns), Some(Bound::AtLeast(172_800_000_000_000)));
        assert_eq!(Bound::parse("-90s", age_ns), Some(Bound::AtMost(90_000_000_000)));
        assert_eq!(Bound::parse("5", age_ns), Some(Bound::Exactly(432_000_000_000_000)));
        for wrong in ["", "+", "2x", "d", "--1"] {
            assert_eq!(Bound::parse(wrong, age_ns), None, "{wrong}");
        }
    }
}

//! Command line of `cenote find`.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use cenote_control::files::Files;
use cenote_control::files::find::{Bound, Find as Request};
use cenote_control::text::parse_bytes;
use cenote_shown::files::Shape;
use cenote_shown::files::find::{self, Form};
use cenote_shown::numbers::Numbers;
use clap::Args;
use parking_lot::Mutex;

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, Stdout, Target, TargetParser, stdout};

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
    /// Types: f file, d folder, l symbolic link, p fifo, s socket, b block device, c character device
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
    /// Dnode last written after this txg
    #[arg(long, value_name = "TXG")]
    pub newer_txg: Option<u64>,
    /// End each path with a NUL byte, unescaped
    #[arg(short = '0', long)]
    pub print0: bool,
    /// Show type, mode, owner, size and time
    #[arg(short = 'l', long)]
    pub long: bool,
    /// POOL/DATASET[@SNAPSHOT][:/PATH]
    #[arg(required = true, value_parser = TargetParser, value_name = "DATASET[:/PATH]")]
    pub targets: Vec<Target>,
}

impl Find {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let numbers = Numbers { exact: true, ..Numbers::default() };
        let form = match (session.json(), self.print0, self.long) {
            (true, _, _) => Form::Json,
            (_, true, _) => Form::Nul,
            (_, _, true) => Form::Long(Shape { long: true, numbers, ..Shape::default() }),
            _ => Form::Paths,
        };
        let request = self.request(matches!(form, Form::Json | Form::Long(_)))?;
        let output = Arc::new(Mutex::new((form, stdout())));
        let take = |(form, out): &mut (Form, Stdout), part: Files| find::write(&part, *form, out);
        let answered = session.control().run_in_parts(request, &output, take).await?;
        output.lock().1.flush().map_err(CliError::io("standard output"))?;
        Ok(answered.outcome)
    }

    fn request(self, details: bool) -> Result<Request, CliError> {
        if let Some(letter) =
            self.kind.iter().flat_map(|kinds| kinds.chars()).find(|c| !"fdlpsbc".contains(*c))
        {
            return Err(CliError::Usage(format!("--type {letter}: use f, d, l, p, s, b or c")));
        }
        let size = |text: &String| {
            bound(text, parse_bytes)
                .ok_or_else(|| CliError::Usage(format!("--size {text}: use [+-]SIZE, for example +1M")))
        };
        let age = |text: &String| {
            bound(text, age_seconds).ok_or_else(|| {
                CliError::Usage(format!("--mtime {text}: use [+-]AGE, for example -2d or +1y"))
            })
        };
        Ok(Request {
            size_bytes: self.size.as_ref().map(size).transpose()?,
            age_seconds: self.mtime.as_ref().map(age).transpose()?,
            targets: self.targets,
            names: self.name.into_iter().map(OsString::into_encoded_bytes).collect(),
            path: self.path.map(OsString::into_encoded_bytes),
            kinds: self.kind,
            uid: self.uid,
            gid: self.gid,
            newer_txg: self.newer_txg,
            details,
        })
    }
}

fn bound(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<Bound> {
    match text.split_at_checked(1)? {
        ("+", rest) => number(rest).map(Bound::AtLeast),
        ("-", rest) => number(rest).map(Bound::AtMost),
        _ => number(text).map(Bound::Exactly),
    }
}

/// `90s`, `5m`, `2h`, `2d`, `3w`, `1y` in seconds; the default unit is days.
fn age_seconds(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "" | "d" => 86_400,
        "w" => 7 * 86_400,
        "y" => 365 * 86_400,
        _ => return None,
    };
    number.parse::<u32>().ok().map(|number| u64::from(number) * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read() {
        assert_eq!(bound("+2d", age_seconds), Some(Bound::AtLeast(172_800)));
        assert_eq!(bound("-90s", age_seconds), Some(Bound::AtMost(90)));
        assert_eq!(bound("5", age_seconds), Some(Bound::Exactly(432_000)));
        for wrong in ["", "+", "2x", "d", "--1"] {
            assert_eq!(bound(wrong, age_seconds), None, "{wrong}");
        }
    }
}

//! Command line and output of `zfs diff`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use cenote_control::zfs::points::diff::{Change, Diff as Request, DiffLine, DiffStyle};
use cenote_format::unseen::visible_json;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::command::zfs::Diff;
use crate::outcome::{CliError, Outcome};
use crate::render::json_name;
use crate::session::{Session, stdout};

/// Writes the lines.
struct Shown {
    out: BufWriter<Arc<File>>,
    /// None: as JSON.
    style: Option<DiffStyle>,
}

impl Diff {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let style = DiffStyle {
            scripted: self.script,
            classify: self.classify,
            timestamps: self.timestamp,
            verbatim: self.raw_names,
        };
        let shown = Shown { out: stdout(), style: (!session.json()).then_some(style) };
        let shown = Arc::new(Mutex::new(shown));
        let request = Request { from: self.from, to: self.to };
        let answered = session.control().run_in_parts(request, &shown, Shown::show).await?;
        Ok(answered.outcome)
    }
}

impl Shown {
    fn show(&mut self, lines: Vec<DiffLine>) -> Result<(), CliError> {
        for line in lines {
            let mut text = match self.style {
                None => visible_json(as_json(&line).to_string()).into_bytes(),
                Some(style) => line.format(b"", style),
            };
            text.push(b'\n');
            self.out.write_all(&text).map_err(CliError::io("standard output"))?;
        }
        self.out.flush().map_err(CliError::io("standard output"))
    }
}

/// One JSON object per line; types are the letters of `scan`.
fn as_json(line: &DiffLine) -> Value {
    let (change, path, to, links) = match &line.change {
        Change::Added(path) => ("added", path, None, None),
        Change::Removed(path) => ("removed", path, None, None),
        Change::Modified(path) => ("modified", path, None, None),
        Change::Links(path, more) => ("modified", path, None, Some(*more)),
        Change::Renamed(path, to) => ("renamed", path, Some(json_name(to)), None),
    };
    json!({
        "change": change,
        "type": line.kind.letter().to_string(),
        "path": json_name(path),
        "to": to,
        "links": links,
        "ctime": line.ctime.seconds,
        "ctime_ns": line.ctime.nanoseconds,
    })
}

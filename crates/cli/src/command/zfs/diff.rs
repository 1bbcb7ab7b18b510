//! `zfs diff`: files that differ between a snapshot and a later state of the same file system.

use std::io::Write;

use cenote_dataset::Dataset;
use cenote_format::units::ObjectId;
use cenote_format::unseen::visible_json;
use cenote_fs::diff::{Change, DiffLine, DiffStyle, diff};
use cenote_fs::{Filesystem, FsError};
use cenote_object::trail::Trail;
use serde_json::{Value, json};

use super::Diff;
use crate::outcome::{CliError, Outcome};
use crate::render::json_name;
use crate::session::{Session, dataset, stdout};

impl Diff {
    /// The full name of the later state.
    pub fn later(&self) -> String {
        let head = self.from.split('@').next().unwrap_or_default();
        match &self.to {
            None => head.to_owned(),
            Some(name) if name.starts_with('@') => format!("{head}{name}"),
            Some(name) => name.clone(),
        }
    }

    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Some((head, _)) = self.from.split_once('@') else {
            return Err(CliError::Usage(format!("'{}' is not a snapshot; use DATASET@SNAPSHOT", self.from)));
        };
        let mos = session.open_pool(head.split('/').next().unwrap_or_default()).await?;
        let earlier = dataset(&mos, &self.from).await?;
        let later = dataset(&mos, &self.later()).await?;
        require_descent(&earlier, &later).await?;
        let mount_point = mount_point(&later).await?;
        let style = DiffStyle {
            scripted: self.script,
            classify: self.classify,
            timestamps: self.timestamp,
            verbatim: self.raw_names,
        };
        let (from, to) =
            (Filesystem::open(earlier.objset().await?).await?, session.filesystem(&later).await?);
        let mut out = stdout();
        let written = diff::<DiffError>(&from, earlier.creation_txg(), &to, |line| {
            let mut text = match session.json() {
                true => visible_json(as_json(&line, &mount_point).to_string()).into_bytes(),
                false => line.format(mount_point.as_bytes(), style),
            };
            text.push(b'\n');
            out.write_all(&text).map_err(DiffError::Output)
        });
        let result = written.await.map_err(CliError::from);
        out.flush().map_err(CliError::io("standard output"))?;
        result.map(|()| Outcome::Done)
    }
}

/// One JSON object per line; types are the letters of `scan`.
fn as_json(line: &DiffLine, mount_point: &str) -> Value {
    let full = |path: &[u8]| json_name(&[mount_point.as_bytes(), path].concat());
    let (change, path, to, links) = match &line.change {
        Change::Added(path) => ("added", path, None, None),
        Change::Removed(path) => ("removed", path, None, None),
        Change::Modified(path) => ("modified", path, None, None),
        Change::Links(path, more) => ("modified", path, None, Some(*more)),
        Change::Renamed(path, to) => ("renamed", path, Some(full(to)), None),
    };
    json!({
        "change": change,
        "type": line.kind.letter().to_string(),
        "path": full(path),
        "to": to,
        "links": links,
        "ctime": line.ctime.seconds,
        "ctime_ns": line.ctime.nanoseconds,
    })
}

/// An error of the engine or of the output.
enum DiffError {
    Fs(FsError),
    Output(std::io::Error),
}

impl From<FsError> for DiffError {
    fn from(error: FsError) -> DiffError {
        DiffError::Fs(error)
    }
}

impl From<DiffError> for CliError {
    fn from(error: DiffError) -> CliError {
        match error {
            DiffError::Fs(error) => error.into(),
            DiffError::Output(error) => CliError::io("standard output")(error),
        }
    }
}

/// Only descendants of the earlier snapshot can be compared with it.
async fn require_descent(earlier: &Dataset, later: &Dataset) -> Result<(), CliError> {
    let mut version = Some(later.clone());
    let mut trail = Trail::new(later.mos().objset(), "the snapshots before one another");
    while let Some(at) = version {
        trail.enter(ObjectId(at.id().0))?;
        if at.id() == earlier.id() && at.id() != later.id() {
            return Ok(());
        }
        version = at.previous().await?;
    }
    let (earlier, later) = (earlier.name(), later.name());
    Err(CliError::Usage(format!("'{earlier}' is not an earlier snapshot of '{later}', nor of its origin")))
}

/// The mount point that `zfs` would print; without one, paths start at the file system's root.
async fn mount_point(dataset: &Dataset) -> Result<String, CliError> {
    let head = dataset.dir().head().await?;
    let property = head.property("mountpoint").await?;
    let path = property.map(|property| property.literal()).filter(|path| path.starts_with('/'));
    Ok(path.map_or_else(String::new, |path| path.trim_end_matches('/').to_owned()))
}

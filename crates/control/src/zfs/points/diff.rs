//! `zfs diff`: files that differ between a snapshot and a later state of the same file system.

use cenote_dataset::Dataset;
use cenote_format::units::ObjectId;
use cenote_fs::Filesystem;
use cenote_fs::diff::diff;
use cenote_object::trail::Trail;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cenote_fs::diff::{Change, DiffLine, DiffStyle};

use crate::caller::Caller;
use crate::error::ControlError;
use crate::parts::Part;
use crate::permissions::Permissions;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, InParts, Looks, Needs, Verb};

const PART_LINES: usize = 500;

/// List files that differ between two snapshots, or between a snapshot and now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// Earlier: a snapshot.
    pub from: String,
    /// The later: a snapshot, with or without the dataset's name, or a file system; none: that of `from`.
    #[serde(default)]
    pub to: Option<String>,
}

impl Diff {
    /// The full name of the later state.
    fn later(&self) -> String {
        let head = self.from.split('@').next().unwrap_or_default();
        match &self.to {
            None => head.to_owned(),
            Some(name) if name.starts_with('@') => format!("{head}{name}"),
            Some(name) => name.clone(),
        }
    }
}

/// Lines are ordered by object number. Paths begin at the mount point or, without one, at the file system's
/// root.
impl InParts for Diff {
    type Part = Vec<DiffLine>;
}

impl Verb for Diff {
    const NAME: &'static str = "zfs diff";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Always;
    const SEES_ALL: bool = true;
    /// The lines came in parts.
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to(format!("diff '{}'", self.from));
        let mos = session.pool_to_ask(&self.from).await?;
        for name in [&self.from, &self.later()] {
            permissions.need(&dataset(&mos, name).await?, &["diff"]);
        }
        Ok(permissions)
    }

    /// # Errors
    /// A state is missing, the later does not descend from the earlier, or a difference is unreadable.
    /// Earlier lines have been sent.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        if !self.from.contains('@') {
            let why = "is not a snapshot; use DATASET@SNAPSHOT";
            return Err(ControlError::Usage(format!("'{}' {why}", self.from)));
        }
        let mos = session.open_pool(pool_of(&self.from)).await?;
        let earlier = dataset(&mos, &self.from).await?;
        let later = dataset(&mos, &self.later()).await?;
        require_descent(&earlier, &later).await?;
        let from = Filesystem::open(earlier.objset().await?).await?;
        let to = session.filesystem(&later).await?;
        let mut lines =
            Lines { caller: session.caller(), mount_point: mount_point(&later).await?, part: Vec::new() };
        let done = diff(&from, earlier.creation_txg(), &to, |line| lines.add(line)).await;
        lines.give()?;
        done.map(|()| ().into())
    }
}

/// Lines on their way to the caller.
struct Lines<'a> {
    caller: &'a Caller,
    /// Without a final slash.
    mount_point: Vec<u8>,
    part: Vec<DiffLine>,
}

impl Lines<'_> {
    fn add(&mut self, line: DiffLine) -> Result<(), ControlError> {
        let change = line.change.map(|path| [&self.mount_point[..], &path].concat());
        self.part.push(DiffLine { change, ..line });
        if self.part.len() < PART_LINES { Ok(()) } else { self.give() }
    }

    fn give(&mut self) -> Result<(), ControlError> {
        match std::mem::take(&mut self.part) {
            part if part.is_empty() => Ok(()),
            part => self.caller.give(Part::of(part)),
        }
    }
}

/// Only descendants of the earlier snapshot can be compared with it.
async fn require_descent(earlier: &Dataset, later: &Dataset) -> Result<(), ControlError> {
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
    Err(ControlError::Usage(format!(
        "'{earlier}' is not an earlier snapshot of '{later}', nor of its origin"
    )))
}

/// The mount point that `zfs` would print; without one, paths start at the file system's root.
async fn mount_point(dataset: &Dataset) -> Result<Vec<u8>, ControlError> {
    let head = dataset.dir().head().await?;
    let property = head.property("mountpoint").await?;
    let path = property.map(|property| property.literal()).filter(|path| path.starts_with('/'));
    Ok(path.map_or_else(Vec::new, |path| path.trim_end_matches('/').into()))
}

//! `zfs redact`: makes a redaction bookmark, which lists the blocks that a redacted send leaves out.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_redact`: the words), `zfs_ioctl.c` (`zfs_ioc_redact`).

use cenote_object::DatasetError;
use cenote_stream::send::{RedactError, SendError, redaction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::{Session, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// Leave out of sends the blocks that differ between a snapshot and its clones, by a redaction bookmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Redact {
    /// The snapshot, `DATASET@NAME`.
    pub snapshot: String,
    /// The new bookmark's own name.
    pub bookmark: String,
    /// Snapshots of clones of it, in which secrets were changed or removed.
    pub redaction_snapshots: Vec<String>,
}

impl Verb for Redact {
    const NAME: &'static str = "zfs redact";
    // As `zfs_secpolicy_config`: it reads datasets of others, too.
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// A snapshot is missing, does not descend from the redacted one, or is redacted; the bookmark exists.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        self.check()?;
        let pool = pool_of(&self.snapshot).to_owned();
        let made = session.change_pool(&pool, async |engine| {
            let mos = engine.mos().await?;
            let (mut missing, mut found) = (Vec::new(), Vec::new());
            for name in std::iter::once(&self.snapshot).chain(&self.redaction_snapshots) {
                match mos.dataset(name).await {
                    Ok(snapshot) if snapshot.is_snapshot() => found.push(snapshot),
                    Ok(_) | Err(DatasetError::NoDataset { .. }) => {
                        missing.push(format!("provided snapshot {name} does not exist"));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            if !missing.is_empty() {
                return Err(ControlError::NotFound(missing.join("\n")));
            }
            // Neither may go while it is read, nor may another take its name.
            let (mut holds, mut held) = (Vec::new(), Vec::new());
            for snapshot in &found {
                let (snapshot, known) = engine.snapshot(snapshot.name()).await?;
                let gone = || DatasetError::NoDataset { name: snapshot.name().into() };
                holds.push(known.hold().ok_or_else(gone)?);
                held.push(snapshot);
            }
            let (head, _) = self.snapshot.split_once('@').unwrap_or((&self.snapshot, ""));
            let mark = format!("{head}#{}", self.bookmark);
            let existing = mos.dataset(head).await?.bookmarks().await?;
            if existing.iter().any(|other| other.name == mark) {
                return Err(self.exists());
            }
            let Some((snapshot, others)) = held.split_first() else { return Ok(()) };
            let redaction = redaction(snapshot, others).await.map_err(failed)?;
            let made = cenote_tasks::redact(engine, &self.snapshot, &mark, redaction).await;
            made.map_err(|error| match error {
                DatasetError::DatasetExists { .. } => self.exists(),
                DatasetError::Unsuitable { why, .. } => refused(why.to_string()),
                error => error.into(),
            })
        });
        Ok(made.await?.into())
    }
}

impl Redact {
    fn check(&self) -> Result<(), ControlError> {
        let pool = pool_of(&self.snapshot);
        if self.redaction_snapshots.iter().any(|name| pool_of(name) != pool || !name.contains('@')) {
            let why = "potentially invalid redaction snapshot; full dataset names required";
            return Err(refused(why));
        }
        if self.bookmark.contains('#') {
            return Err(refused("redaction bookmark name must not contain '#'"));
        }
        match self.redaction_snapshots.is_empty() || !self.snapshot.contains('@') {
            true => Err(ControlError::Usage("too few arguments".into())),
            false => Ok(()),
        }
    }

    fn exists(&self) -> ControlError {
        refused(format!("specified redaction bookmark ({}) provided already exists", self.bookmark))
    }
}

fn failed(error: RedactError) -> ControlError {
    match error {
        RedactError::Send(SendError::Dataset(error)) => error.into(),
        error => refused(error.to_string()),
    }
}

fn refused(text: impl Into<String>) -> ControlError {
    ControlError::Refused(text.into())
}

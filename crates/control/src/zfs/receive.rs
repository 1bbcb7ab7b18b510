//! `zfs receive`: a stream from the caller's standard input becomes a snapshot.
//!
//! Idea: the stream is received as `cenote_stream` does it; this says what surrounds that. Mounted file
//! systems get their new content under the mount, as by a rollback. Ctrl-C ends the stream, as if its sender
//! had gone: what has come is kept (`-s`) or goes.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_receive`), `libzfs_sendrecv.c`, zfs-receive(8).

mod here;

use std::fs::File;
use std::io::IsTerminal;

use cenote_engine::Engine;
use cenote_object::DatasetError;
use cenote_stream::StreamReader;
use cenote_stream::receive::{Order, Placing, ReceiveError, Received, receive};
use cenote_tasks::abort_receive;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::pipe::Inlet;
use crate::session::{NewDatasets, Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::properties::settings::{Setting, read_all};
use here::Here;

/// Where it is received, and how.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Receive {
    /// The file system, volume or snapshot.
    pub target: String,
    /// How names follow from the target and from those in the stream.
    pub naming: Naming,
    /// `-F`: what is in the way goes.
    pub force: bool,
    /// `-s`: if the stream breaks off, what has come is kept.
    pub resumable: bool,
    /// `-A`: what was kept goes.
    pub abort: bool,
    /// `-u`: nothing new is mounted.
    pub no_mount: bool,
    /// `-M`: what is in use is unmounted even so.
    pub force_unmount: bool,
    /// `-h`: holds are left out.
    pub skip_holds: bool,
    /// `-n`: nothing is received.
    pub dry_run: bool,
    /// `-v`: what is received is told.
    pub verbose: bool,
    /// `-o`: properties that are set.
    pub settings: Vec<Setting>,
    /// `-x`: properties that are left out.
    pub excluded: Vec<String>,
    /// `-o origin=`: the snapshot that a new dataset is to be a clone of.
    pub origin: Option<String>,
}

/// How a received snapshot is called.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// As the target says.
    #[default]
    Exact,
    /// `-d`: all but the pool of the sent name follows the target.
    WithoutPool,
    /// `-e`: the last part of the sent name follows the target.
    LastPart,
}

/// What came of it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Snapshots that were made, in order.
    pub snapshots: Vec<String>,
    /// Snapshots that were there already.
    pub skipped: Vec<String>,
}

impl Verb for Receive {
    const NAME: &'static str = "zfs receive";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = Taken;

    /// # Errors
    /// Words that do not go together; a stream that is wrong, or not for this target.
    async fn carry_out(self, session: &Session) -> Result<Answered<Taken>, ControlError> {
        self.check()?;
        let pool = pool_of(&self.target).to_owned();
        if self.abort {
            let outcome = session.change_pool(&pool, async |engine| self.abort(engine).await).await?;
            return Ok(Answered { answer: Taken::default(), outcome });
        }
        let input = session.caller().console.stream().map_err(ControlError::io("standard input"))?;
        if input.is_terminal() {
            return Err(refused(
                "Error: Backup stream can not be read from a terminal.\nYou must redirect standard input.",
            ));
        }
        let mut answer = Taken::default();
        let new = if self.no_mount { NewDatasets::Stay } else { NewDatasets::AreMounted };
        let work = async |engine: &Engine| {
            let received = self.receive(session, engine, input).await?;
            for (dataset, property, why) in &received.refused {
                let text = format!("cannot receive {property} property on {dataset}: {why}");
                session.caller().note_bare(text);
            }
            let outcome = if received.is_partial { Outcome::Failed } else { Outcome::Done };
            answer = Taken { snapshots: received.snapshots, skipped: received.skipped };
            Ok(outcome)
        };
        let outcome = session.change_pool_with(&pool, new, work).await?;
        Ok(Answered { answer, outcome })
    }
}

impl Receive {
    /// Words that contradict each other.
    fn check(&self) -> Result<(), ControlError> {
        let is_more = self.naming != Naming::Exact || self.dry_run || self.resumable || self.no_mount;
        match self.abort && is_more {
            true => Err(ControlError::Usage("invalid option: -A takes no other".into())),
            false => Ok(()),
        }
    }

    fn order(&self) -> Result<Order, ControlError> {
        Ok(Order {
            destination: self.target.clone(),
            placing: match self.naming {
                Naming::Exact => Placing::Exact,
                Naming::WithoutPool => Placing::WithoutPool,
                Naming::LastPart => Placing::LastPart,
            },
            is_forced: self.force,
            is_resumable: self.resumable,
            origin: self.origin.clone(),
            skips_holds: self.skip_holds,
            is_dry: self.dry_run,
            settings: read_all(&self.settings, None).map_err(ControlError::Usage)?,
            excluded: self.excluded.clone(),
        })
    }

    async fn receive(
        &self,
        session: &Session,
        engine: &Engine,
        input: File,
    ) -> Result<Received, ControlError> {
        let caller = session.caller().clone();
        let until = Box::pin(async move { caller.interrupted().await });
        let inlet = Inlet::new(input, until).map_err(ControlError::io("standard input"))?;
        let mut reader = StreamReader::new(Box::new(inlet));
        let here = Here { session, engine, verbose: self.verbose, force_unmount: self.force_unmount };
        let order = self.order()?;
        // Interrupted, it has to clear up.
        let done = session.caller().whole(receive(engine, &mut reader, &order, &here)).await;
        done.map_err(|error| self.failed(error))
    }

    /// An error of the receive, in OpenZFS's words where it has any.
    fn failed(&self, error: ReceiveError) -> ControlError {
        match error {
            ReceiveError::Pool { what, source } => match &source {
                DatasetError::NoDataset { name } => refused(format!(
                    "cannot open '{name}': dataset does not exist\n{what}: unable to restore to destination"
                )),
                DatasetError::KeyMissing { .. } => refused(format!("{what}: inherited key must be loaded")),
                DatasetError::NoSpace { .. } => refused(format!("{what}: out of space")),
                DatasetError::Busy { why, .. } => refused(format!("{what}: dataset is busy: {why}")),
                source if source.is_refusal() => refused(format!("{what}: {source}")),
                _ => source.into(),
            },
            error => refused(error.to_string()),
        }
    }

    /// Gives up what a receive that broke off has left.
    async fn abort(&self, engine: &Engine) -> Result<(), ControlError> {
        let name = &self.target;
        dataset(&engine.mos().await?, name).await?;
        abort_receive(engine, name).await.map_err(|error| match error {
            DatasetError::Unsuitable { why, .. } => refused(format!("'{name}' {why}")),
            DatasetError::Busy { .. } => refused(format!("cannot destroy '{name}/%recv': dataset is busy")),
            error => error.into(),
        })
    }
}

fn refused(text: impl Into<String>) -> ControlError {
    ControlError::Refused(text.into())
}

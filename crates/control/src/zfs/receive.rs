//! `zfs receive`: a stream from the caller's standard input becomes a snapshot.
//!
//! Idea: `cenote_stream` receives the stream; this module handles its surroundings. Mounted file systems get
//! their new content as in a rollback. Ctrl-C ends the stream like a lost sender: the partial state is kept
//! (`-s`) or destroyed.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_receive`), `libzfs_sendrecv.c`, zfs-receive(8).

mod here;

use std::fs::File;
use std::io::IsTerminal;

use cenote_engine::Engine;
use cenote_format::props::ZFS_PROPS;
use cenote_object::DatasetError;
use cenote_stream::StreamReader;
use cenote_stream::receive::{Order, Placing, ReceiveError, Received, receive};
use cenote_tasks::abort_receive;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::pipe::Inlet;
use crate::session::{NewDatasets, Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::properties::settings::{Setting, read_all};
use here::Here;

/// Create snapshots from a stream on standard input.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Receive {
    /// The file system, volume or snapshot.
    pub target: String,
    /// How target and sent names form the new name.
    pub naming: Naming,
    /// `-F`: destroy conflicting changes.
    pub force: bool,
    /// `-s`: keep a partial receive.
    pub resumable: bool,
    /// `-A`: discard a partial receive.
    pub abort: bool,
    /// `-u`: mount nothing new.
    pub no_mount: bool,
    /// `-M`: unmount even if in use.
    pub force_unmount: bool,
    /// `-h`: skip holds.
    pub skip_holds: bool,
    /// `-n`: receive nothing.
    pub dry_run: bool,
    /// `-v`: report received streams.
    pub verbose: bool,
    /// `-c`: heal lost blocks of the stream's snapshot.
    pub corrective: bool,
    /// `--reshare`: store equal blocks of the stream once.
    pub reshare: bool,
    /// `-o`: properties to set.
    pub settings: Vec<Setting>,
    /// `-x`: properties to skip.
    pub excluded: Vec<String>,
    /// `-o origin=`: origin of the new clone.
    pub origin: Option<String>,
}

/// The name of a received snapshot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// As the target says.
    #[default]
    Exact,
    /// `-d`: the sent name without its pool follows the target.
    WithoutPool,
    /// `-e`: the last part of the sent name follows the target.
    LastPart,
}

/// The result of a receive.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Taken {
    /// New snapshots, in order.
    pub snapshots: Vec<String>,
    /// Snapshots already present.
    pub skipped: Vec<String>,
    /// Of `-c`: blocks verified.
    #[serde(default)]
    pub checked_blocks: u64,
    /// Of `-c`: lost blocks restored.
    #[serde(default)]
    pub healed_blocks: u64,
    /// Of `--reshare`: blocks shared with equal ones.
    #[serde(default)]
    pub shared_blocks: u64,
    /// Of `--reshare`: the logical size of these blocks.
    #[serde(default)]
    pub shared_bytes: u64,
}

impl Verb for Receive {
    const NAME: &'static str = "zfs receive";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = Taken;

    /// # Errors
    /// Contradictory options; an invalid stream, or not for this target.
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
            answer = Taken {
                snapshots: received.snapshots,
                skipped: received.skipped,
                checked_blocks: received.corrected.blocks,
                healed_blocks: received.corrected.restored,
                shared_blocks: received.reshared.blocks,
                shared_bytes: received.reshared.bytes,
            };
            Ok(outcome)
        };
        let outcome = session.change_pool_with(&pool, new, work).await?;
        Ok(Answered { answer, outcome })
    }
}

impl Receive {
    /// Rejects contradictory options.
    fn check(&self) -> Result<(), ControlError> {
        if self.corrective && self.no_mount {
            return Err(refused(
                "cannot receive: corrective recv can not be used when combined with this flag",
            ));
        }
        let is_more = self.naming != Naming::Exact || self.dry_run || self.resumable || self.no_mount;
        match self.abort && is_more {
            true => Err(ControlError::Usage("invalid option: -A takes no other".into())),
            false => Ok(()),
        }
    }

    fn order(&self) -> Result<Order, ControlError> {
        let settings = read_all(&self.settings, None).map_err(ControlError::Usage)?;
        let mut excluded: Vec<String> = Vec::new();
        for typed in &self.excluded {
            let known = ZFS_PROPS.iter().find(|prop| prop.is_named(typed));
            let name = known.map_or(typed.as_str(), |prop| prop.name);
            if settings.iter().map(|(set, _)| set).chain(&excluded).any(|other| other == name) {
                return Err(ControlError::Usage(format!("property '{name}' specified multiple times")));
            }
            excluded.push(name.to_owned());
        }
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
            is_corrective: self.corrective,
            reshares: self.reshare,
            settings,
            excluded,
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
        // An interrupted receive must clean up.
        let done = session.caller().whole(receive(engine, &mut reader, &order, &here)).await;
        done.map_err(|error| self.failed(error))
    }

    /// Maps a receive error to OpenZFS's wording where it has one.
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

    /// Discards the partial state of an interrupted receive.
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

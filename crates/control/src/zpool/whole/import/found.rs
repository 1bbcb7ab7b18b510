//! A pool on disks: its labels, whether it opens, and its metadata.

use cenote_dataset::Mos;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use cenote_pool::{FoundPool, PoolHealth, PoolState, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::session::{Session, State, WayBack};
use crate::zpool::shown::status::diagnosis::{Reason, judge};
use crate::zpool::shown::status::problems::Problems;
use crate::zpool::shown::status::unopened::Unopened;

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: Guid,
    /// From its labels.
    pub state: PoolState,
    /// The state of its vdevs.
    pub health: PoolHealth,
    /// The worst problem and its remedy.
    pub reason: Option<Reason>,
    /// Newest state.
    pub newest: Option<Moment>,
    /// The machine that used it last.
    pub hostname: Option<String>,
    /// Same, by hostid.
    pub hostid: Option<u64>,
    /// Comment.
    pub comment: Option<String>,
    /// Devices left out; labels that conflict or are damaged.
    pub notes: Vec<Problem>,
    /// An older state that opens, if the newest does not.
    pub way_back: Option<WayBack>,
    /// The opened state, or the failure.
    pub opened: Result<Opened, Unopenable>,
}

/// A state of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// Txg.
    pub txg: Txg,
    /// Time in seconds since 1970.
    pub unix_seconds: u64,
}

impl From<&Uberblock> for Moment {
    fn from(at: &Uberblock) -> Moment {
        Moment { txg: at.txg, unix_seconds: at.timestamp_s }
    }
}

/// The opened state among all states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Opened {
    /// State.
    pub at: Moment,
    /// It is the checkpoint.
    pub is_checkpoint: bool,
    /// Newest state.
    pub newest_txg: Txg,
    /// Oldest state.
    pub oldest_txg: Txg,
    /// Number of states.
    pub states: usize,
}

/// Why a pool does not open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unopenable {
    /// Reason.
    pub why: String,
    /// Reason with advice.
    pub told: String,
    /// See [`Outcome::status`].
    pub status: u8,
}

impl Unopenable {
    fn of(error: &ControlError) -> Unopenable {
        let status = error.outcome().status();
        Unopenable { why: error.to_string(), told: error.text_about(""), status }
    }

    /// The outcome of a verb that needs this pool.
    pub fn outcome(&self) -> Outcome {
        Outcome::of_status(self.status)
    }
}

impl Found {
    /// Opens a pool in the requested state.
    pub(super) async fn open(session: &Session, found: &FoundPool) -> Result<Found, ControlError> {
        let mos = session.open_without_asking(found).await?;
        Found::of(session, found, &mos, false).await
    }

    /// The same; describes an unopenable pool, too.
    pub(super) async fn describe(
        session: &Session,
        found: &FoundPool,
    ) -> Result<(Found, Outcome), ControlError> {
        let error = match session.open_without_asking(found).await {
            Ok(mos) => return Ok((Found::of(session, found, &mos, false).await?, Outcome::Done)),
            Err(error) => error,
        };
        let Unopened { health, circumstances } = Unopened::look(session, found, &error).await;
        let pool = Found::new(found, health, circumstances, Err(Unopenable::of(&error)));
        Ok((pool, error.outcome()))
    }

    pub(super) async fn of(
        session: &Session,
        found: &FoundPool,
        mos: &Mos,
        is_checkpoint: bool,
    ) -> Result<Found, ControlError> {
        let (health, circumstances) = (mos.pool().status(), Problems::of_pool(mos).await?);
        let at = mos.uberblock();
        let txg = |of: Option<&Uberblock>| of.map_or(at.txg, |of| of.txg);
        let opened = Opened {
            at: at.into(),
            is_checkpoint: is_checkpoint || session.options().state == State::Checkpoint,
            newest_txg: txg(found.uberblocks.first()),
            oldest_txg: txg(found.uberblocks.last()),
            states: found.uberblocks.len(),
        };
        Ok(Found::new(found, health, circumstances, Ok(opened)))
    }

    fn new(
        found: &FoundPool,
        health: PoolHealth,
        circumstances: Problems,
        opened: Result<Opened, Unopenable>,
    ) -> Found {
        Found {
            name: found.name().into(),
            guid: found.guid(),
            state: found.state(),
            reason: judge(&health, circumstances),
            health,
            newest: found.uberblocks.first().map(Moment::from),
            hostname: found.config.hostname.clone(),
            hostid: found.config.hostid,
            comment: found.config.comment.clone(),
            notes: found.notes.clone(),
            way_back: circumstances.corrupted.and_then(|corrupted| corrupted.way_back),
            opened,
        }
    }
}

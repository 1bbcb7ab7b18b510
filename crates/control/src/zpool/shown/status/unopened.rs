//! A pool that does not open: its labels, whether metadata is to blame, and which older state opens.

use cenote_pool::{FoundPool, PoolHealth};

use super::diagnosis::{Reason, judge};
use super::problems::{Corrupted, Problems};
use crate::error::ControlError;
use crate::session::Session;

/// The diagnosis.
pub struct Unopened {
    /// From the labels; the root is faulted if metadata can't be read.
    pub health: PoolHealth,
    /// Problems other than devices.
    pub circumstances: Problems,
}

impl Unopened {
    /// Diagnoses a pool that failed to open with this error.
    pub async fn look(session: &Session, found: &FoundPool, error: &ControlError) -> Unopened {
        let (mut health, circumstances) = (found.status(), Problems::of_found(found, session.runtime()));
        if let Some(pool) = session.held(found) {
            // The pool is open, but its shown state can't be read at present.
            health = pool.engine.pool().status();
            return Unopened { health, circumstances };
        }
        if !matches!(error, ControlError::Corrupted { .. }) {
            return Unopened { health, circumstances };
        }
        let corrupted = Some(Corrupted { way_back: session.way_back(found).await });
        Unopened {
            health: health.with_corrupted_metadata(),
            circumstances: Problems { corrupted, ..circumstances },
        }
    }

    /// The problem and its remedy.
    pub fn reason(&self) -> Option<Reason> {
        judge(&self.health, self.circumstances)
    }
}

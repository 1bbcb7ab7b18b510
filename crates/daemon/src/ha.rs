//! Fail-over in the daemon: its pools that move among machines (`cenote_ha`).
//!
//! ```text
//!   keeper: its turn --> find devices, leave out leaves that lack data, import, keys, mounts
//!                    --> addresses, program `taken`
//!   keeper: end      --> program `left`, addresses --> unmount, export
//! ```
//!
//! The daemon's record names such pools, too, but only a keeper opens them.

mod head;
mod moving;

use std::path::Path;
use std::sync::Arc;

use cenote_control::{ControlError, Session};
use cenote_ha::{Head, Nodes, Settings, Witness};
use cenote_host::own;
use cenote_host::pools::Pools;

pub use head::How;
use head::PoolHead;

/// Longest file with settings.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// Settings, and the witness that they name.
pub struct Ha {
    settings: Settings,
    witness: Arc<dyn Witness>,
}

impl Ha {
    /// Reads the settings. Other users must not be able to write them: they name programs.
    pub async fn read(path: &Path, session: &Session) -> Result<Ha, ControlError> {
        let shown = path.display();
        let wrong = |why: String| ControlError::Usage(format!("--ha {shown}: {}", why.trim_end()));
        let text = own::read(path).map_err(|error| wrong(error.to_string()))?;
        let text = text.filter(|text| text.len() as u64 <= SETTINGS_BYTES_MAX);
        let text = text.ok_or_else(|| wrong("there is no such file, or it is too large".into()))?;
        let text = String::from_utf8(text).map_err(|error| wrong(error.to_string()))?;
        let settings = Settings::parse(&text).map_err(wrong)?;
        for pool in &settings.pools {
            head::places(pool, session).map_err(|error| wrong(error.to_string()))?;
        }
        let witness = cenote_ha::open(&settings.witness, settings.lease, session.runtime()).await;
        let witness = witness.map_err(|error| wrong(error.to_string()))?;
        Ok(Ha { settings, witness })
    }

    /// Starts the keepers.
    pub fn start(&self, session: &Session, pools: &Arc<Pools>, how: How) {
        let head_of = |pool: &cenote_ha::PoolSettings| -> Arc<dyn Head> {
            Arc::new(PoolHead::new(pool, session, pools, how))
        };
        let say: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(how.say);
        let nodes = Nodes::start(&self.settings, &self.witness, session.runtime(), head_of, &say);
        pools.ha.set(Arc::new(nodes)).ok();
    }

    /// Whether a pool moves among machines.
    pub fn manages(&self, name: &str) -> bool {
        self.settings.pools.iter().any(|pool| pool.name == name)
    }
}

//! Problems of a pool other than the state of its vdevs.

use cenote_dataset::{FeatureState, Mos};
use cenote_format::features::SPA_VERSION_FEATURES;
use cenote_pool::{FoundPool, LostStates, PoolState};
use cenote_runtime::Runtime;

use crate::error::ControlError;
use crate::session::{WayBack, this_host};

/// Problems other than the state of vdevs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Problems {
    /// A resilver is not complete.
    pub resilvering: bool,
    /// A daemon has the pool open, and continues its work.
    pub is_open: bool,
    /// Another machine used the pool last and did not export it.
    pub left_by_another: bool,
    /// Newer states than the opened one existed.
    pub lost: Option<LostStates>,
    /// Number of entries in the error log.
    pub data_errors: usize,
    /// The version predates feature flags.
    pub is_legacy: bool,
    /// Features are disabled, and not because of a compatibility set.
    pub lacks_features: bool,
    /// The pool does not open although enough devices are present.
    pub corrupted: Option<Corrupted>,
}

/// The newest state's metadata can't be read.
#[derive(Debug, Clone, Copy)]
pub struct Corrupted {
    /// An older state that opens.
    pub way_back: Option<WayBack>,
}

impl Problems {
    /// From the labels alone.
    pub fn of_found(found: &FoundPool, runtime: &Runtime) -> Problems {
        let by_this = found.config.hostid.is_none() || found.config.hostid == this_host(runtime).hostid();
        Problems {
            left_by_another: found.state() == PoolState::Active && !by_this,
            lost: found.lost,
            is_legacy: found.config.version < SPA_VERSION_FEATURES,
            ..Problems::default()
        }
    }

    /// From an open pool.
    pub async fn of_pool(mos: &Mos) -> Result<Problems, ControlError> {
        let scan = mos.scan_status().await?;
        let features = mos.features().await?;
        let is_chosen = mos.pool().tree().config().compatibility.as_ref().is_some_and(|set| set != "off");
        let found = Problems::of_found(&mos.pool().tree().found(), mos.pool().runtime());
        let is_active = |name: &str| {
            features.iter().any(|(one, state)| one.name == name && *state == FeatureState::Active)
        };
        let is_resilvering = scan.is_some_and(|scan| scan.is_resilver() && scan.is_running());
        Ok(Problems {
            resilvering: is_resilvering || is_active("device_rebuild"),
            data_errors: mos.error_log().await?.len(),
            lacks_features: !is_chosen
                && features.iter().any(|(one, state)| *state == FeatureState::Disabled && !one.no_upgrade),
            ..found
        })
    }
}

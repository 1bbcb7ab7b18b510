//! Tunables of open pools, by OpenZFS's names where possible.
//!
//! Idea: the daemon keeps the values. A newly opened pool gets all; a change goes to all open pools. They
//! share the memory for cached blocks ([`crate::memory`]).
//!
//! Locking: one mutex, never held across an await.
//!
//! Source: zfs(4).

use cenote_cache::{CacheOptions, PrefetchSettings};
use cenote_engine::{Engine, L2Settings, ScanSettings, default_dirty_bytes_max};
use cenote_policy::{BadPolicy, PolicyName};
use cenote_pool::multihost::MultihostSettings;
use cenote_pool::{BadSetting, QueueSettings, Tunables};
use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::memory::Bounds;

/// Upper bound in bytes of all pools' cached blocks and dirty data.
pub const ARC_MAX: &str = "zfs_arc_max";
/// Lower bound, even if memory is short.
pub const ARC_MIN: &str = "zfs_arc_min";
/// Memory to keep free for other processes.
pub const ARC_SYS_FREE: &str = "zfs_arc_sys_free";
/// Cache policy; Cenote's own tunable.
pub const ARC_POLICY: &str = "cenote_arc_policy";
/// Upper bound of each pool's dirty data, and never above a fifth of [`ARC_MAX`].
pub const DIRTY_MAX: &str = "zfs_dirty_data_max";
/// Minimum of [`ARC_MAX`]: a few blocks of the largest size.
const LEAST_ARC_BYTES: u64 = 64 << 20;
/// Minimum of [`ARC_MIN`].
const LEAST_MIN_BYTES: u64 = 32 << 20;
/// Minimum of [`DIRTY_MAX`].
const LEAST_DIRTY_BYTES: u64 = 16 << 20;

/// One pool's dirty data is bounded by this fraction of [`ARC_MAX`] (`zfs_arc_pool_dirty_percent`).
const POOL_DIRTY_PART: u64 = 5;

/// Most Lua instructions and bytes that a channel program may ask for.
const PROGRAMS: [cenote_pool::Tunable; 2] = [
    ("zfs_lua_max_instrlimit", 100_000_000, 1, u64::MAX),
    ("zfs_lua_max_memlimit", 100 << 20, 1, i64::MAX as u64),
];

/// Limits of channel programs' limits, which no pool needs to know.
struct ProgramSettings(Tunables<{ PROGRAMS.len() }>);

impl Default for ProgramSettings {
    fn default() -> ProgramSettings {
        ProgramSettings(Tunables::new(&PROGRAMS))
    }
}

/// Values for all pools.
pub struct Tuning {
    values: Mutex<Values>,
    defaults: Values,
    tables: Tables,
}

/// Tables of tunables in the engine's parts.
#[derive(Default)]
struct Tables {
    queues: QueueSettings,
    prefetch: PrefetchSettings,
    scans: ScanSettings,
    cache_devices: L2Settings,
    multihost: MultihostSettings,
    programs: ProgramSettings,
}

impl Tables {
    fn all(&self) -> Vec<(String, u64)> {
        let of_caches = [self.prefetch.all(), self.cache_devices.all()];
        [self.queues.all(), self.scans.all(), self.multihost.all(), self.programs.0.all()]
            .into_iter()
            .chain(of_caches)
            .flatten()
            .collect()
    }

    fn set(&self, name: &str, value: u64) -> Result<(), BadSetting> {
        let tables = [
            self.queues.set(name, value),
            self.prefetch.set(name, value),
            self.scans.set(name, value),
            self.cache_devices.set(name, value),
            self.multihost.set(name, value),
            self.programs.0.set(name, value),
        ];
        let known = tables.into_iter().find(|set| !matches!(set, Err(BadSetting::Unknown { .. })));
        known.unwrap_or_else(|| Err(BadSetting::Unknown { name: name.into() }))
    }
}

#[derive(Clone)]
struct Values {
    memory: Bounds,
    target_bytes: u64,
    policy: PolicyName,
    dirty_bytes: u64,
}

impl Values {
    fn pool_dirty_bytes(&self) -> u64 {
        self.dirty_bytes.min((self.memory.most_bytes / POOL_DIRTY_PART).max(LEAST_DIRTY_BYTES))
    }
}

/// A tunable's current state.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Tunable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Its default.
    pub default: String,
}

/// Why a tunable was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTunable {
    /// Not a number.
    #[error("{name}: {value:?} is not a number")]
    NotANumber {
        /// The name.
        name: String,
        /// The value.
        value: String,
    },
    /// Below the minimum.
    #[error("{name}: at least {least_bytes} bytes")]
    TooSmall {
        /// The name.
        name: String,
        /// The minimum.
        least_bytes: u64,
    },
    /// Not a usable cache policy.
    #[error("{ARC_POLICY}: {0}")]
    Policy(#[from] BadPolicy),
    /// Rejected by a part's table.
    #[error(transparent)]
    Setting(#[from] BadSetting),
}

impl Tuning {
    /// This machine's defaults, with a cache for all pools.
    pub fn new(runtime: &Runtime, cache: CacheOptions) -> Tuning {
        let (most_bytes, policy) = (cache.budget_bytes as u64, cache.policy);
        let memory = Bounds { most_bytes, ..Bounds::of_machine(runtime.memory_bytes()) };
        let dirty_bytes = default_dirty_bytes_max(runtime);
        let values = Values { memory, target_bytes: most_bytes, policy, dirty_bytes };
        Tuning { values: values.clone().into(), defaults: values, tables: Tables::default() }
    }

    /// All tunables, by name.
    pub fn list(&self) -> Vec<Tunable> {
        let of_tables = self.tables.all().into_iter().zip(Tables::default().all());
        let of_tables = of_tables.map(|((name, value), (_, default))| Tunable {
            name,
            value: value.to_string(),
            default: default.to_string(),
        });
        let own = |values: &Values| {
            let Bounds { most_bytes, least_bytes, keep_free_bytes } = values.memory;
            let numbers = [most_bytes, least_bytes, keep_free_bytes, values.dirty_bytes];
            let numbers = numbers.iter().map(u64::to_string);
            numbers.chain([values.policy.to_string()]).collect::<Vec<String>>()
        };
        let names = [ARC_MAX, ARC_MIN, ARC_SYS_FREE, DIRTY_MAX, ARC_POLICY].into_iter();
        let own = names.zip(own(&self.values.lock())).zip(own(&self.defaults));
        let own = own.map(|((name, value), default)| Tunable { name: name.into(), value, default });
        let mut all: Vec<Tunable> = own.chain(of_tables).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Sets a tunable for pools opened later; numbers are plain. [`Tuning::apply`] applies it to open ones.
    ///
    /// # Errors
    /// The name is unknown, or the value invalid; nothing was changed.
    pub fn set(&self, name: &str, value: &str) -> Result<(), BadTunable> {
        if name == ARC_POLICY {
            self.values.lock().policy = PolicyName::living(value)?;
            return Ok(());
        }
        let number: u64 =
            value.parse().map_err(|_| BadTunable::NotANumber { name: name.into(), value: value.into() })?;
        let least = |least_bytes: u64| match number < least_bytes {
            true => Err(BadTunable::TooSmall { name: name.into(), least_bytes }),
            false => Ok(number),
        };
        match name {
            ARC_MAX => {
                let mut values = self.values.lock();
                values.memory.most_bytes = least(LEAST_ARC_BYTES)?;
                values.target_bytes = values.memory.most_bytes;
            }
            ARC_MIN => self.values.lock().memory.least_bytes = least(LEAST_MIN_BYTES)?,
            ARC_SYS_FREE => self.values.lock().memory.keep_free_bytes = number,
            DIRTY_MAX => self.values.lock().dirty_bytes = least(LEAST_DIRTY_BYTES)?,
            _ => self.tables.set(name, number)?,
        }
        Ok(())
    }

    /// Sets and returns the target of all pools, given the bytes they hold and the memory left.
    pub(crate) fn balance(&self, held_bytes: u64, left_bytes: u64) -> u64 {
        let mut values = self.values.lock();
        values.target_bytes = values.memory.next(values.target_bytes, held_bytes, left_bytes);
        values.target_bytes
    }

    /// Current target of all pools.
    pub(crate) fn target_bytes(&self) -> u64 {
        self.values.lock().target_bytes
    }

    /// Settings of heartbeats, and of the watch before an import.
    pub fn multihost(&self) -> &MultihostSettings {
        &self.tables.multihost
    }

    /// Most instructions and bytes that a channel program may ask for.
    pub fn program_limits(&self) -> (u64, u64) {
        let [instructions, bytes] = self.tables.programs.0.values();
        (instructions, bytes)
    }

    /// Applies the settings of heartbeats, which a pool needs before its first change.
    pub fn apply_multihost(&self, engine: &Engine) {
        let beats = engine.multihost();
        if beats.settings().all() != self.tables.multihost.all() {
            bring(self.tables.multihost.all(), |name, value| beats.settings().set(name, value));
            beats.retune();
        }
    }

    /// Applies all values to an open pool.
    pub(crate) fn apply(&self, engine: &Engine) {
        let values = self.values.lock().clone();
        let cache = engine.cache();
        cache.set_data(true);
        if cache.policy() != values.policy {
            cache.set_policy(values.policy);
        }
        engine.load().set_dirty_bytes_max(values.pool_dirty_bytes());
        let Tables { queues, prefetch, scans, cache_devices, .. } = &self.tables;
        self.apply_multihost(engine);
        let (pool, ahead) = (engine.pool(), cache.prefetch().settings());
        bring(queues.all(), |name, value| pool.devices().queue_settings().set(name, value));
        bring(prefetch.all(), |name, value| ahead.set(name, value));
        bring(cache_devices.all(), |name, value| engine.l2arc().devices().settings().set(name, value));
        if engine.background().settings().all() != scans.all() {
            bring(scans.all(), |name, value| engine.background().settings().set(name, value));
            engine.background().scans.order();
            engine.background().removals.order();
            engine.background().expansions.order();
            engine.background().rebuilds.order();
        }
    }
}

fn bring(values: Vec<(String, u64)>, set: impl Fn(&str, u64) -> Result<(), BadSetting>) {
    for (name, value) in values {
        // Checked when set.
        let set = set(&name, value);
        debug_assert_eq!(set, Ok(()), "{name}");
    }
}

#[cfg(test)]
mod tests {
    use cenote_runtime::SimConfig;

    use super::*;

    fn value(tuning: &Tuning, name: &str) -> (String, String) {
        let found = tuning.list().into_iter().find(|tunable| tunable.name == name);
        found.map(|tunable| (tunable.value, tunable.default)).unwrap_or_default()
    }

    #[test]
    fn what_is_set_is_listed_beside_the_default_and_what_is_wrong_changes_nothing() {
        let runtime = Runtime::simulated(SimConfig::seed(1));
        let tuning = Tuning::new(&runtime, CacheOptions::metadata(1 << 30));
        for (name, new, old) in [
            (ARC_MAX, "268435456", "1073741824"),
            (ARC_MIN, "67108864", "134217728"),
            (ARC_SYS_FREE, "0", "134217728"),
            (ARC_POLICY, "s3-fifo", "openzfs-2.3"),
            ("zfs_vdev_scrub_max_active", "1", "3"),
            ("zfetch_max_distance", "8388608", "67108864"),
            ("zfs_scrub_min_time_ms", "1", "5000"),
        ] {
            assert_eq!(value(&tuning, name), (old.into(), old.into()), "{name}");
            assert_eq!(tuning.set(name, new), Ok(()));
            assert_eq!(value(&tuning, name), (new.into(), old.into()), "{name}");
        }
        assert_eq!(tuning.set(DIRTY_MAX, "134217728"), Ok(()));
        assert_eq!(value(&tuning, DIRTY_MAX).0, "134217728");
        // Dirty data is bounded by a fraction of the memory.
        assert_eq!(tuning.values.lock().pool_dirty_bytes(), (256 << 20) / 5);
        let before = tuning.list();
        for (name, bad) in [
            (ARC_MAX, "1"),
            (ARC_MAX, "much"),
            (ARC_MIN, "1"),
            (ARC_POLICY, "belady"),
            (ARC_POLICY, "best"),
            (DIRTY_MAX, "5"),
            ("zfs_vdev_scrub_max_active", "0"),
            ("zfs_prefetch_disable", "2"),
            ("zfs_nosuch", "1"),
        ] {
            assert!(tuning.set(name, bad).is_err(), "{name}={bad}");
        }
        assert_eq!(tuning.list(), before);
    }
}

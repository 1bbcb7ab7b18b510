//! The properties of vdevs.
//!
//! Idea: one list in OpenZFS's order. Settings come from the vdev's ZAP. Counters exist while the daemon has
//! the pool open, and are a dash otherwise; the root's include devices that have left since.
//!
//! Source: OpenZFS `vdev_prop_get`, `zpool_get_vdev_prop_value`, `zpool_do_get`.

use cenote_dataset::usage::{PoolUsage, VdevUsage};
use cenote_dataset::{Mos, Property, Source, Value};
use cenote_device::{Counts, Op};
use cenote_format::dsl::names::vdev_zap;
use cenote_format::label::VDEV_LABELS_BYTES;
use cenote_format::units::{ObjectId, VdevId};
use cenote_object::{Zap, ZapEntry};
use cenote_pool::{PoolHealth, VdevConfig, VdevKind, VdevState, VdevStatus};

use crate::error::ControlError;

/// Settable numbers; a dash if unset.
pub const LIMITS: [&str; 6] = ["checksum_n", "checksum_t", "io_n", "io_t", "slow_io_n", "slow_io_t"];
/// Settable switches.
pub const SWITCHES: [&str; 3] = ["autosit", "failfast", "slow_io_events"];
/// All properties, in the order of `zpool get all`.
const ALL: &str = "capacity state guid asize psize ashift size free allocated comment expandsize \
    fragmentation bootsize parity failure_domain failure_group path devid physpath encpath fru parent \
    children numchildren read_errors write_errors checksum_errors initialize_errors \
    null_ops read_ops write_ops free_ops claim_ops trim_ops \
    null_bytes read_bytes write_bytes free_bytes claim_bytes trim_bytes removing allocating failfast \
    checksum_n checksum_t io_n io_t \
    raidz_expanding sit_out slow_io_n slow_io_t trim_support trim_errors slow_ios autosit \
    slow_io_events alloc_bias rotational";

/// A vdev of a pool, with the name used in `zpool get`.
pub struct Named<'a> {
    /// `root-0` for the pool as a whole.
    pub name: String,
    vdev: &'a VdevStatus,
    parent: Option<&'a VdevStatus>,
}

impl Named<'_> {
    /// Its state.
    pub fn status(&self) -> &VdevStatus {
        self.vdev
    }

    /// Whether it allocates space: only top-level vdevs and the root do.
    fn allocates(&self) -> bool {
        self.parent.is_none() || self.is_top()
    }

    /// Spares and cache devices are below the root, too, but no top-level vdevs.
    fn is_top(&self) -> bool {
        let is_child = |root: &VdevStatus| root.children.iter().any(|top| std::ptr::eq(top, self.vdev));
        self.parent.is_some_and(|parent| parent.kind == VdevKind::Root && is_child(parent))
    }
}

/// The vdevs selected by a name: `all-vdevs`, `root`, a vdev's name, its device's path or last path
/// component, its guid.
pub fn named<'a>(health: &'a PoolHealth, name: &str) -> Vec<Named<'a>> {
    let is_root = |vdev: &Named| vdev.vdev.kind == VdevKind::Root;
    let is_meant = |it: &Named| match name {
        "all-vdevs" => true,
        "root" => is_root(it),
        _ if it.name == name || it.vdev.guid.to_string() == name => true,
        _ => it.vdev.path.as_deref().is_some_and(|path| {
            it.vdev.children.is_empty() && (path == name || path.rsplit('/').next() == Some(name))
        }),
    };
    let mut all = Vec::new();
    add(&health.root, None, health, &mut all);
    all.retain(is_meant);
    all
}

/// OpenZFS's order: spares and cache devices come before other vdevs.
fn add<'a>(
    vdev: &'a VdevStatus,
    parent: Option<&'a VdevStatus>,
    health: &'a PoolHealth,
    all: &mut Vec<Named<'a>>,
) {
    if matches!(vdev.kind, VdevKind::Hole) {
        return;
    }
    let is_root = parent.is_none();
    if vdev.kind != VdevKind::Indirect {
        let name = if is_root { "root-0".into() } else { vdev.name.clone() };
        all.push(Named { name, vdev, parent });
    }
    let beside = health.spares.iter().chain(&health.l2cache).filter(|_| is_root);
    beside.chain(&vdev.children).for_each(|child| add(child, Some(vdev), health, all));
}

/// Checks a property's name; names with a colon are user properties.
pub fn check(name: &str) -> Result<(), ControlError> {
    match name.contains(':') || name == "name" || ALL.split_whitespace().any(|known| known == name) {
        true => Ok(()),
        false => Err(ControlError::Usage(format!(
            "invalid vdev property '{name}'; `zpool get all POOL VDEV` lists them"
        ))),
    }
}

/// A pool and its vdevs' data.
pub struct Vdevs<'a> {
    /// Pool.
    pub mos: &'a Mos,
    /// Space of the top-level vdevs.
    pub usage: &'a [VdevUsage],
}

impl Vdevs<'_> {
    /// A vdev's properties: all, or the named ones.
    pub async fn properties(
        &self,
        named: &Named<'_>,
        names: Option<&[String]>,
    ) -> Result<Vec<Property>, ControlError> {
        let zap = self.zap(named).await?;
        let mut all: Vec<&str> = match names {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => ALL.split_whitespace().collect(),
        };
        let own = if names.is_none() { own(zap.as_ref()).await? } else { Vec::new() };
        all.extend(own.iter().map(String::as_str));
        let mut properties = Vec::new();
        for name in all {
            let is_redundant = matches!(named.vdev.kind, VdevKind::Raidz | VdevKind::Draid);
            let is_there = match name {
                "raidz_expanding" => named.vdev.kind == VdevKind::Raidz,
                "autosit" => is_redundant,
                "alloc_bias" => named.is_top(),
                "failure_domain" | "failure_group" => self.failure_group_and_domain(named).is_some(),
                "sit_out" => self.mos.pool().tree().sits_out(named.vdev.guid).is_some(),
                _ => true,
            };
            if !is_there {
                continue;
            }
            let (value, source) = match self.fact(named, name) {
                Some(value) => (value, Source::None),
                None => setting(zap.as_ref(), named, name).await?,
            };
            properties.push(Property { name: name.into(), value, source, received: None });
        }
        Ok(properties)
    }

    fn fact(&self, named: &Named<'_>, name: &str) -> Option<Value> {
        let Named { vdev, parent, .. } = *named;
        let config = self.config(vdev);
        let config = config.as_ref();
        let (all, allocated) = self.space(named);
        let number = |number: u64| Some(Value::Number(number));
        let on = |is: bool| Some(word(if is { "on" } else { "off" }));
        let text = |get: fn(&VdevConfig) -> &Option<String>| {
            config.and_then(|config| get(config).clone()).map(Value::Text)
        };
        match name {
            "name" => Some(word(&named.name)),
            "capacity" => number((u128::from(allocated) * 100 / u128::from(all.max(1))) as u64),
            "state" => number(state_number(vdev.state)),
            "guid" => number(vdev.guid.0),
            "asize" => number(self.asize(vdev)),
            "psize" => number(if vdev.children.is_empty() { vdev.size_bytes.unwrap_or(0) } else { 0 }),
            "ashift" => number(self.top(vdev).map_or(0, |top| top.ashift).into()),
            "size" => number(all),
            "free" => number(all.saturating_sub(allocated)),
            "allocated" => number(allocated),
            "expandsize" => number(vdev.expandable_bytes),
            "fragmentation" => number(self.fragmentation(named)),
            "parity" => number(config.map_or(0, |config| config.parity) as u64),
            "failure_domain" => number(self.failure_group_and_domain(named)?.1 as u64),
            "failure_group" => number(self.failure_group_and_domain(named)?.0 as u64),
            "path" if vdev.children.is_empty() => vdev.path.as_deref().map(word),
            "devid" => text(|config| &config.devid),
            "physpath" => text(|config| &config.phys_path),
            "encpath" => text(|config| &config.enclosure_path),
            "parent" => parent.map(kernel_name).map(Value::Text),
            "children" if vdev.children.is_empty() => None,
            "children" => {
                Some(Value::Text(vdev.children.iter().map(kernel_name).collect::<Vec<_>>().join(",")))
            }
            "numchildren" => number(vdev.children.len() as u64),
            "read_errors" => number(vdev.errors.read),
            "write_errors" => number(vdev.errors.write),
            "checksum_errors" => number(vdev.errors.checksum),
            "removing" => on(vdev.removing),
            "sit_out" => on(self.mos.pool().tree().sits_out(vdev.guid) == Some(true)),
            "raidz_expanding" => on(config.is_some_and(|config| config.raidz_expanding)),
            // Only the kernel knows whether a device supports trim.
            "trim_support" => Some(word("-")),
            "slow_ios" => Some(slow_ios(vdev).map_or_else(|| word("-"), Value::Number)),
            "rotational" => Some(
                rotates(self.mos, vdev).map_or_else(|| word("-"), |is| word(if is { "on" } else { "off" })),
            ),
            // Failed passes suspend and show there.
            "initialize_errors" | "trim_errors" => number(0),
            _ if name.ends_with("_ops") || name.ends_with("_bytes") => {
                Some(self.counted(vdev, name).map_or_else(|| word("-"), Value::Number))
            }
            _ => None,
        }
    }

    /// A leaf's failure group and failure domain in its dRAID.
    fn failure_group_and_domain(&self, named: &Named<'_>) -> Option<(usize, usize)> {
        let top = self.top(named.vdev).filter(|_| named.vdev.children.is_empty())?;
        let is_above = |child: &VdevConfig| below(child, named.vdev).is_some();
        top.failure_group_and_domain(top.children.iter().position(is_above)?)
    }

    /// Operations or bytes at a vdev's leaves since the pool was opened.
    fn counted(&self, vdev: &VdevStatus, name: &str) -> Option<u64> {
        let (op, what) = name.split_once('_')?;
        let op = match op {
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Discard,
            _ => return None,
        };
        let taps = self.mos.pool().counters().leaf_io()?;
        let mut counts = Counts::default();
        match vdev.kind {
            VdevKind::Root => counts = taps.total(op),
            _ => vdev.walk(&mut |below| {
                if below.children.is_empty() {
                    counts.add(&taps.of(below.guid).counters.of(op));
                }
            }),
        }
        Some(if what == "bytes" { counts.bytes } else { counts.operations })
    }

    /// Total and allocated bytes, for RAID-Z without parity, as in OpenZFS. Only for top-level vdevs and the
    /// root.
    fn space(&self, named: &Named<'_>) -> (u64, u64) {
        let vdevs = self.mos.pool().tree().vdevs();
        let of = |usage: &VdevUsage| (vdevs.deflate(usage.vdev, usage.size_bytes), usage.allocated_bytes);
        match self.usage_of(named) {
            Some(usage) => of(usage),
            None if named.parent.is_none() => {
                self.usage.iter().map(of).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
            }
            None => (0, 0),
        }
    }

    fn fragmentation(&self, named: &Named<'_>) -> u64 {
        match named.parent {
            None => PoolUsage::sum(self.usage).fragmentation_percent.unwrap_or(0),
            Some(_) => self.usage_of(named).and_then(|usage| usage.fragmentation_percent).unwrap_or(0),
        }
    }

    fn usage_of(&self, named: &Named<'_>) -> Option<&VdevUsage> {
        named.parent.filter(|_| named.allocates())?;
        self.usage.iter().find(|usage| usage.vdev == VdevId(named.vdev.id))
    }

    fn asize(&self, vdev: &VdevStatus) -> u64 {
        let vdevs = self.mos.pool().tree().vdevs();
        match (vdevs.tops().find(|top| top.guid == vdev.guid), vdev.size_bytes) {
            (Some(top), _) => top.asize_bytes,
            (None, Some(size)) if vdev.children.is_empty() => size.saturating_sub(VDEV_LABELS_BYTES),
            _ if vdev.kind == VdevKind::Root => 0,
            _ => vdev.children.iter().map(|child| self.asize(child)).min().unwrap_or(0),
        }
    }

    /// A vdev's configuration in the pool state being read. Vdevs that came or left since have no objects
    /// there; spares and cache devices are not in the tree.
    fn config(&self, vdev: &VdevStatus) -> Option<VdevConfig> {
        self.mos.pool_config().vdevs.iter().find_map(|top| below(top, vdev)).cloned()
    }

    fn top(&self, vdev: &VdevStatus) -> Option<VdevConfig> {
        self.mos.pool_config().vdevs.iter().find(|top| below(top, vdev).is_some()).cloned()
    }

    async fn zap(&self, named: &Named<'_>) -> Result<Option<Zap>, ControlError> {
        let root = self.mos.pool_config().root_zap;
        let id = match self.config(named.vdev) {
            Some(config) => config.own_zap(),
            None if named.parent.is_some() => None,
            None => Some(root).filter(|zap| *zap != ObjectId(0)),
        };
        match id {
            None => Ok(None),
            Some(id) => Ok(Some(Zap::open_id(self.mos.objset(), id).await?)),
        }
    }
}

/// Slow operations at a vdev's leaves, if its pool is open.
fn slow_ios(vdev: &VdevStatus) -> Option<u64> {
    let mut sum = None;
    vdev.walk(&mut |below| {
        if let Some(count) = below.slow_ios {
            sum = Some(sum.unwrap_or(0u64).saturating_add(count));
        }
    });
    sum
}

/// Whether any of a vdev's devices rotates, of those that are present. Files do not, as in OpenZFS.
fn rotates(mos: &Mos, vdev: &VdevStatus) -> Option<bool> {
    let mut rotates = None;
    vdev.walk(&mut |below| {
        if let Some(device) = mos.pool().tree().device(below.guid) {
            rotates = Some(rotates == Some(true) || device.device.info().rotational == Some(true));
        }
    });
    rotates
}

fn word(text: &str) -> Value {
    Value::Text(text.into())
}

/// The number of a state, `vdev_state_t`.
pub fn state_number(state: VdevState) -> u64 {
    match state {
        VdevState::Offline => 2,
        VdevState::Removed => 3,
        VdevState::Unavailable => 4,
        VdevState::Faulted => 5,
        VdevState::Degraded => 6,
        VdevState::Online => 7,
    }
}

/// The kernel's name of a vdev: a device's path; RAID-Z without its parity level.
fn kernel_name(vdev: &VdevStatus) -> String {
    match (&vdev.kind, &vdev.path) {
        (VdevKind::Root, _) => vdev.name.clone(),
        (_, Some(path)) if vdev.children.is_empty() => path.clone(),
        (kind, _) => format!("{}-{}", kind.name(), vdev.id),
    }
}

fn below<'a>(config: &'a VdevConfig, vdev: &VdevStatus) -> Option<&'a VdevConfig> {
    match config.guid == vdev.guid {
        true => Some(config),
        false => config.children.iter().find_map(|child| below(child, vdev)),
    }
}

async fn setting(zap: Option<&Zap>, named: &Named<'_>, name: &str) -> Result<(Value, Source), ControlError> {
    let number = match zap {
        Some(zap) if LIMITS.contains(&name) || SWITCHES.contains(&name) => zap.get_u64(name).await?,
        _ => None,
    };
    Ok(match name {
        "allocating" if !named.allocates() => (word("-"), Source::None),
        "allocating" if named.vdev.non_allocating => (word("off"), Source::Local),
        "allocating" => (word("on"), Source::Default),
        "autosit" if number == Some(1) => (word("on"), Source::Local),
        "autosit" => (word("off"), if number.is_some() { Source::Local } else { Source::Default }),
        "failfast" | "slow_io_events" if number == Some(0) => (word("off"), Source::Local),
        "failfast" | "slow_io_events" => (word("on"), Source::Default),
        // As set: in force from the next import on.
        "alloc_bias" => match text(zap, vdev_zap::ALLOCATION_BIAS).await? {
            Some(class) => (Value::Text(class), Source::Local),
            None => (word("none"), Source::Default),
        },
        "bootsize" => (Value::Number(0), Source::Default),
        _ if LIMITS.contains(&name) => match number.filter(|&number| number != u64::MAX) {
            Some(number) => (Value::Number(number), Source::Local),
            None => (word("-"), Source::Default),
        },
        _ => match text(zap, name).await? {
            Some(text) => (Value::Text(text), Source::Local),
            None => (word("-"), Source::Default),
        },
    })
}

async fn text(zap: Option<&Zap>, name: &str) -> Result<Option<String>, ControlError> {
    let is_text = name == "comment" || name.contains(':');
    let Some(zap) = zap.filter(|_| is_text) else { return Ok(None) };
    Ok(zap.lookup(name.as_bytes()).await?.and_then(|value| value.as_text()))
}

/// User properties: strings whose names contain a colon.
async fn own(zap: Option<&Zap>) -> Result<Vec<String>, ControlError> {
    let Some(zap) = zap else { return Ok(Vec::new()) };
    let entries = zap.to_vec().await?;
    let is_own = |entry: &&ZapEntry| entry.name_text().contains(':') && entry.value.as_text().is_some();
    Ok(entries.iter().filter(is_own).map(ZapEntry::name_text).collect())
}

//! Lost redundancy: devices that lack data, by top-level vdev.
//!
//! Idea: all blocks can be intact although the next failure would lose data. So devices are judged, too: one
//! is sound if present in full size, in use and up to date; a slot, if any device in it is (a spare, a
//! replacement). A vdev tolerates as many further failures as its parity or additional copies, less unsound
//! slots.

use std::fmt;

use cenote_format::units::Guid;
use cenote_pool::{Pool, Trouble, VdevClass, VdevConfig, VdevKind, VdevState, VdevStatus};

use super::report::txgs;

/// A top-level vdev with less redundancy than it was created with.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct WeakVdev {
    /// Its name, `raidz1-0`.
    pub vdev: String,
    /// The devices that lack data.
    pub devices: Vec<UnsoundDevice>,
    /// Further failures it tolerates; `None` if there are too many already.
    pub bears: Option<u64>,
}

/// A device that lacks data.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct UnsoundDevice {
    /// The path where it was found, or its last known path.
    pub device: String,
    /// The defect: `is missing`, `is cut short`.
    pub state: String,
}

impl fmt::Display for WeakVdev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.vdev)?;
        for (i, UnsoundDevice { device, state }) in self.devices.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{device} {state}")?;
        }
        match self.bears {
            None => f.write_str("; data that the other devices can't reconstruct is unreadable"),
            Some(0) => f.write_str("; the next failure there loses data"),
            Some(1) => f.write_str("; one more failure there loses nothing, two lose data"),
            Some(more) => write!(f, "; {more} more failures there lose nothing"),
        }
    }
}

pub(super) fn weak_vdevs(pool: &Pool) -> Vec<WeakVdev> {
    let lagging = pool.lacking().lagging();
    let health = pool.status();
    let configs = pool.tree().config();
    let weak = |top: &VdevStatus| {
        let config = configs.vdevs.iter().find(|config| config.guid == top.guid)?;
        weak_vdev(pool, &lagging, config, top)
    };
    health.root.children.iter().filter_map(weak).collect()
}

/// Leaves that lack data which a resilver can restore. Truncated devices are excluded: they are out of use
/// until whole.
pub(super) fn resilverable(pool: &Pool) -> Vec<Guid> {
    let mut leaves = pool.lacking().lagging();
    pool.status().root.walk(&mut |vdev| {
        if vdev.trouble == Some(Trouble::TooSmall) {
            leaves.retain(|leaf| *leaf != vdev.guid);
        }
    });
    leaves
}

fn weak_vdev(pool: &Pool, lagging: &[Guid], config: &VdevConfig, top: &VdevStatus) -> Option<WeakVdev> {
    if matches!(top.kind, VdevKind::Hole | VdevKind::Indirect) {
        return None;
    }
    let unsound_state = |leaf: &VdevStatus| unsound_state(pool, lagging, leaf);
    let is_sound = |place: &VdevStatus| {
        let mut is_sound = false;
        place.walk(&mut |vdev| is_sound |= vdev.children.is_empty() && unsound_state(vdev).is_none());
        is_sound
    };
    let places = if top.children.is_empty() { std::slice::from_ref(top) } else { &top.children[..] };
    let failed: Vec<(usize, &VdevStatus)> =
        places.iter().enumerate().filter(|(_, place)| !is_sound(place)).collect();
    if failed.is_empty() {
        return None;
    }
    let mut devices = Vec::new();
    for (_, place) in &failed {
        place.walk(&mut |vdev| {
            if vdev.children.is_empty()
                && let Some(state) = unsound_state(vdev)
            {
                let device = vdev.path.clone().unwrap_or_else(|| vdev.name.clone());
                devices.push(UnsoundDevice { device, state });
            }
        });
    }
    let redundancy = match top.kind {
        VdevKind::Raidz | VdevKind::Draid => config.parity,
        _ => places.len() - 1,
    };
    let failures = config.failures(failed.iter().map(|(index, _)| *index));
    let bears = redundancy.checked_sub(failures).map(|left| left as u64);
    Some(WeakVdev { vdev: top.name.clone(), devices, bears })
}

/// Why a device lacks data; `None` if it does not.
fn unsound_state(pool: &Pool, lagging: &[Guid], leaf: &VdevStatus) -> Option<String> {
    let missed = pool.lacking().of_leaf(leaf.guid);
    Some(match (leaf.state, &leaf.trouble) {
        (VdevState::Unavailable, Some(Trouble::CannotOpen { .. } | Trouble::MissingDevice)) => {
            "is missing".into()
        }
        (VdevState::Unavailable, Some(Trouble::TooSmall)) => "is cut short".into(),
        (VdevState::Offline, _) => "is offline".into(),
        (VdevState::Removed, _) => "is removed".into(),
        (VdevState::Faulted, Some(Trouble::Hung)) => "does not answer".into(),
        (VdevState::Faulted, _) => "is faulted".into(),
        (VdevState::Unavailable, Some(trouble)) => format!("is unavailable ({trouble})"),
        (VdevState::Unavailable, None) => "is unavailable".into(),
        // The txgs that a log device missed are no longer in any log.
        _ if leaf.class == VdevClass::Log => return None,
        _ if !missed.is_empty() => {
            let runs = missed.iter().map(|(first, last)| (first.0, last.0));
            format!("lags behind (misses {})", txgs(runs))
        }
        _ if leaf.resilvering => "is being resilvered".into(),
        _ if lagging.contains(&leaf.guid) => "is out of date".into(),
        (VdevState::Degraded | VdevState::Online, _) => return None,
    })
}

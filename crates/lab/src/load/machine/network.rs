//! Network interfaces that storage traffic may use. Source: Linux sysfs-class-net.

use serde::{Deserialize, Serialize};

use super::Root;

/// A megabit per second, in bytes per second.
const MEGABIT_BYTES: u64 = 125_000;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Link speed in bytes per second, if it has one.
    pub link_bytes_per_second: Option<u64>,
    /// Largest packet, in bytes.
    pub mtu_bytes: u64,
    /// A device rather than a bridge, bond or VLAN.
    pub is_device: bool,
}

/// Interfaces that are up, without the loopback.
pub(super) fn up(root: &Root) -> Vec<Interface> {
    let mut names = root.list("sys/class/net");
    names.retain(|name| name != "lo" && root.number(format!("sys/class/net/{name}/carrier")) == Some(1));
    let interfaces = names.into_iter().map(|name| {
        let folder = format!("sys/class/net/{name}");
        Interface {
            // Unknown is -1, which does not parse here.
            link_bytes_per_second: root
                .number(format!("{folder}/speed"))
                .map(|megabits| megabits * MEGABIT_BYTES),
            mtu_bytes: root.number(format!("{folder}/mtu")).unwrap_or(0),
            is_device: root.path(format!("{folder}/device")).exists(),
            name,
        }
    });
    interfaces.collect()
}

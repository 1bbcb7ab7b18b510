//! Network interfaces, as far as storage goes over them. Source: Linux sysfs-class-net.

use serde::{Deserialize, Serialize};

use super::Root;

/// A megabit a second, in bytes a second.
const MEGABIT_BYTES: u64 = 125_000;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Speed of its link in bytes a second, if it has one.
    pub link_bytes_per_second: Option<u64>,
    /// Largest packet, in bytes.
    pub mtu_bytes: u64,
    /// Whether it is a device, or made of others (bridge, bond, VLAN).
    pub is_device: bool,
}

/// Those that carry something now; not the loopback.
pub(super) fn up(root: &Root) -> Vec<Interface> {
    let mut names = root.list("sys/class/net");
    names.retain(|name| name != "lo" && root.number(format!("sys/class/net/{name}/carrier")) == Some(1));
    let interfaces = names.into_iter().map(|name| {
        let folder = format!("sys/class/net/{name}");
        Interface {
            // Unknown is -1: not a number here.
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

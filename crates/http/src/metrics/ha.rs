//! `cenote_ha_*`: pools that move among machines.

use cenote_ha::Role;
use cenote_host::pools::Pools;

use super::families::{Families, Kind};

/// Adds these metrics.
pub fn add(pools: &Pools, families: &mut Families) {
    let Some(nodes) = pools.ha.get() else { return };
    for status in nodes.status() {
        let labels = [("pool", &*status.pool)];
        let has = (Kind::Gauge, "Whether this machine has the pool.");
        families.add("cenote_ha_has", has, &labels, f64::from(status.role == Role::Has));
        let tenures = (Kind::Counter, "Times that a machine has taken the pool.");
        families.add("cenote_ha_tenures_total", tenures, &labels, status.epoch as f64);
        let lacking = (Kind::Gauge, "Devices that lack data, by the pool's record at the witness.");
        families.add("cenote_ha_lacking_devices", lacking, &labels, status.lacking.len() as f64);
        if let Some(age) = status.age {
            let witness = (Kind::Gauge, "Time since the witness answered last.");
            families.add("cenote_ha_witness_age_seconds", witness, &labels, age.as_secs_f64());
        }
    }
}

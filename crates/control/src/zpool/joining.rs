//! Devices that join a pool: as their own vdevs, beside other devices, or as replacements.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_add`, `zpool_do_attach_or_replace`), `libzfs_pool.c`
//! (`zpool_vdev_attach`), including the wording.

pub mod add;
pub mod attach;
pub mod evacuate;
pub mod replace;

use std::path::Path;

use cenote_dataset::Mos;
use cenote_device::Place;
use cenote_format::units::Guid;
use cenote_pool::VdevConfig;
use cenote_pool::create::NewDevice;
use cenote_tasks::Resilver;

use super::layout::devices;
use crate::error::ControlError;
use crate::session::Session;
use crate::zpool::leaves::meant::meant;

/// Opens a device that joins a vdev; a device with contents only by `force`.
async fn joining(session: &Session, mos: &Mos, typed: &str, force: bool) -> Result<NewDevice, ControlError> {
    refuse_own(session, mos, &[typed])?;
    let new = devices::open_one(session, typed).await?;
    if !force {
        unless_any(&devices::contents(session.runtime(), &[&new]).await)?;
    }
    Ok(new)
}

fn resilver(is_sequential: bool) -> Resilver {
    if is_sequential { Resilver::Sequential } else { Resilver::Healing }
}

/// Why a device outside the tree can't be replaced.
fn why_not(session: &Session, mos: &Mos, typed: &str) -> &'static str {
    let (config, found) = (mos.pool().tree().config(), mos.pool().tree().found());
    let one = |vdevs: &[VdevConfig]| -> Option<Guid> {
        meant(session.caller(), &found, vdevs.iter(), typed).ok().flatten()
    };
    match () {
        () if one(&config.spares).is_some() => "device is reserved as a hot spare",
        () if one(&config.l2cache).is_some() => "device is in use as a cache",
        () => "no such device in pool",
    }
}

/// Refuses problems that `force` would override.
fn unless_any(problems: &[String]) -> Result<(), ControlError> {
    match problems.is_empty() {
        true => Ok(()),
        false => Err(ControlError::Refused(format!(
            "invalid vdev specification\nuse '-f' to override the following errors:\n{}",
            problems.join("\n")
        ))),
    }
}

/// Refuses the pool's own devices, which this program keeps open.
fn refuse_own(session: &Session, mos: &Mos, typed: &[&str]) -> Result<(), ControlError> {
    let own = |typed: &&&str| {
        let Ok(place) = session.caller().place(Path::new(typed)) else { return false };
        let name = place.absolute().in_labels();
        let found = mos.pool().tree().found();
        let names = found.devices.values().map(|device| Place::from(Path::new(&device.path)).in_labels());
        names.into_iter().any(|known| known == name)
    };
    match typed.iter().find(own) {
        None => Ok(()),
        Some(device) => Err(ControlError::Refused(format!(
            "invalid vdev specification\nthe following errors must be manually repaired:\n\
             {device} is part of active pool '{}'",
            mos.pool().name()
        ))),
    }
}

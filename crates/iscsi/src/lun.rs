//! State that the sessions of one disk share: guests, reservations, pending unit attentions.
//!
//! ```text
//!   session: Nexus --- one Guest per unit of the target --- Lun, shared by all sessions of the disk
//! ```
//!
//! Idea: a guest is an initiator port at a disk. A login with the name and identifier of an existing session
//! replaces it, as the protocol demands, but only with that session's account: a host that lost its
//! connection gets back in.
//!
//! Locking: `guests`, `reservations` and a guest's attentions are each locked for one lookup or change, in
//! that order. `alone` is held across changes to the disk: exclusively by commands that read and then write,
//! shared by the others.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_disk::{Errno, Failure};
use cenote_runtime::Watched;
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock};

use crate::login::Initiator;
use crate::scsi::reservations::Reservations;
use crate::target::{Identity, Unit, Units};
use crate::tasks::{AbortedBy, Tasks};

/// Pending attentions per guest. The oldest are dropped first.
const ATTENTIONS_MAX: usize = 8;

/// A unit attention: additional sense code and qualifier.
pub type Attention = u16;
#[allow(missing_docs)]
pub mod attention {
    pub const DEVICE_RESET: u16 = 0x2903;
    pub const MODE_PARAMETERS_CHANGED: u16 = 0x2a01;
    pub const RESERVATIONS_PREEMPTED: u16 = 0x2a03;
    pub const RESERVATIONS_RELEASED: u16 = 0x2a04;
    pub const REGISTRATIONS_PREEMPTED: u16 = 0x2a05;
    pub const CAPACITY_CHANGED: u16 = 0x2a09;
}

/// All disks used so far, by [`Identity::id`].
#[derive(Clone, Default)]
pub struct Luns(Arc<Mutex<HashMap<u64, Arc<Lun>>>>);

impl Luns {
    /// Returns the shared state of a disk.
    ///
    /// # Errors
    /// Stored reservations cannot be read.
    pub async fn of(&self, unit: &dyn Unit) -> Result<Arc<Lun>, Failure> {
        let identity = unit.identity();
        if let Some(known) = self.0.lock().get(&identity.id) {
            return Ok(known.clone());
        }
        let reservations = match unit.kept().await? {
            // Without its reservations the disk would be open to hosts that they exclude.
            Some(text) => Reservations::parse(&text).ok_or_else(unreadable)?,
            None => Reservations::default(),
        };
        // Another session may have inserted it meanwhile.
        let mut luns = self.0.lock();
        Ok(luns.entry(identity.id).or_insert_with(|| Arc::new(Lun::new(identity, reservations))).clone())
    }

    /// Finds a host's guest at the disk with this NAA designator, if the host has a session there.
    pub fn guest(&self, naa: u64, host: &Nexus) -> Option<Arc<Guest>> {
        let lun = self.0.lock().values().find(|lun| lun.identity.naa() == naa).cloned()?;
        let guests = lun.guests().into_iter();
        { guests }
            .find(|guest| guest.initiator().name == host.initiator.name && guest.nexus.user == host.user)
    }

    /// Admits an initiator port to all units of a target, in place of its older session.
    ///
    /// # Errors
    /// Another account uses the port's name; stored reservations cannot be read.
    pub async fn enter(&self, nexus: &Arc<Nexus>, units: Units) -> Result<BTreeMap<u8, Stay>, Failure> {
        let mut stays = BTreeMap::new();
        // In order of unit numbers, so that sessions of one port cannot wait for each other in a cycle.
        for (number, unit) in units {
            let lun = self.of(&*unit).await?;
            stays.insert(number, lun.enter(nexus, number, unit).await?);
        }
        Ok(stays)
    }
}

fn unreadable() -> Failure {
    Failure::new(Errno::Io, "its persistent reservations can't be read, and it is not served without them")
}

/// Shared state of the sessions of one disk.
pub struct Lun {
    /// Identity of the disk.
    pub identity: Identity,
    /// Held across changes: exclusively by commands that must be atomic, else shared.
    pub alone: RwLock<()>,
    guests: Mutex<BTreeMap<Initiator, Arc<Guest>>>,
    left: Notify,
    reservations: Mutex<Reservations>,
    is_reserved: AtomicBool,
    /// Held from a change of reservations until stored.
    pub keeping: tokio::sync::Mutex<()>,
    /// Changeable mode page values.
    pub modes: Mutex<Modes>,
}

/// Mode page fields that initiators can change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modes {
    /// `SWP`: software write protection.
    pub is_write_protected: bool,
    /// `D_SENSE`: sense data in descriptor format.
    pub has_descriptor_sense: bool,
}

/// An initiator port in a session with a target.
pub struct Nexus {
    /// The initiator port.
    pub initiator: Initiator,
    /// Account used at login.
    pub user: Option<String>,
    /// Commands in progress.
    pub tasks: Tasks,
    sent_away: Watched<bool>,
}

impl Nexus {
    /// Creates the nexus of a new session.
    pub fn new(initiator: Initiator, user: Option<String>) -> Arc<Nexus> {
        let (tasks, sent_away) = (Tasks::default(), Watched::new(false));
        Arc::new(Nexus { initiator, user, tasks, sent_away })
    }

    /// Waits until the session is told to end.
    pub async fn sent_away(&self) {
        // Cannot fail: `self` owns the sender.
        self.sent_away.watch().until(|is_sent| *is_sent).await.ok();
    }

    /// Tells the session to end.
    pub fn send_away(&self) {
        self.sent_away.modify(|is_sent| *is_sent = true);
    }
}

/// An initiator port at a disk.
pub struct Guest {
    /// Its session.
    pub nexus: Arc<Nexus>,
    /// Handle through which the session opened the disk.
    pub unit: Arc<dyn Unit>,
    /// State shared with other sessions.
    pub lun: Arc<Lun>,
    /// LUN in the session.
    number: u8,
    /// Size last reported to the initiator.
    pub size_bytes: AtomicU64,
    attentions: Mutex<VecDeque<Attention>>,
    has_attention: AtomicBool,
}

/// Keeps a guest registered at its disk until dropped.
pub struct Stay {
    /// The guest.
    pub guest: Arc<Guest>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        let Guest { nexus, lun, .. } = &*self.guest;
        // Tasks that wait for data would keep the disk open.
        nexus.tasks.stop(AbortedBy::Own, |_, _| true);
        lun.guests.lock().remove(&nexus.initiator);
        // An SPC-2 reservation ends with its session.
        lun.reserve(|reservations| reservations.leave(&nexus.initiator));
        lun.left.notify_waiters();
    }
}

impl Guest {
    /// The initiator port.
    pub fn initiator(&self) -> &Initiator {
        &self.nexus.initiator
    }

    /// Aborts the guest's commands to this disk and waits until they end.
    pub async fn abort(&self, by: &Initiator) {
        let by = if by == self.initiator() { AbortedBy::Own } else { AbortedBy::Another };
        self.nexus.tasks.abort(by, |_, lun| lun == Some(self.number)).await;
    }

    /// Queues a unit attention for the next command.
    pub fn attend(&self, attention: Attention) {
        let mut attentions = self.attentions.lock();
        if attentions.contains(&attention) {
            return;
        }
        if attentions.len() == ATTENTIONS_MAX {
            attentions.pop_front();
        }
        attentions.push_back(attention);
        self.has_attention.store(true, Ordering::Release);
    }

    /// Takes the next unit attention.
    pub fn attention(&self) -> Option<Attention> {
        if !self.has_attention.load(Ordering::Acquire) {
            return None;
        }
        let mut attentions = self.attentions.lock();
        let next = attentions.pop_front();
        self.has_attention.store(!attentions.is_empty(), Ordering::Release);
        next
    }
}

impl Lun {
    fn new(identity: Identity, reservations: Reservations) -> Lun {
        Lun {
            identity,
            alone: RwLock::default(),
            guests: Mutex::default(),
            left: Notify::new(),
            is_reserved: reservations.is_any().into(),
            reservations: Mutex::new(reservations),
            keeping: tokio::sync::Mutex::default(),
            modes: Mutex::default(),
        }
    }

    /// Admits an initiator port in place of its older session.
    async fn enter(
        self: &Arc<Lun>,
        nexus: &Arc<Nexus>,
        number: u8,
        unit: Arc<dyn Unit>,
    ) -> Result<Stay, Failure> {
        let guest = Arc::new(Guest {
            nexus: nexus.clone(),
            size_bytes: unit.size_bytes().into(),
            unit,
            lun: self.clone(),
            number,
            attentions: Mutex::default(),
            has_attention: false.into(),
        });
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            left.as_mut().enable();
            {
                let mut guests = self.guests.lock();
                match guests.get(&nexus.initiator) {
                    Some(old) if old.nexus.user != nexus.user => {
                        let name = &nexus.initiator.name;
                        return Err(Failure::new(
                            Errno::Perm,
                            format!("another account uses the name '{name}'"),
                        ));
                    }
                    Some(old) => old.nexus.send_away(),
                    None => {
                        guests.insert(nexus.initiator.clone(), guest.clone());
                        return Ok(Stay { guest });
                    }
                }
            }
            left.await;
        }
    }

    /// Current guests.
    pub fn guests(&self) -> Vec<Arc<Guest>> {
        self.guests.lock().values().cloned().collect()
    }

    /// Queues a unit attention for the guests that `whom` selects.
    pub fn attend(&self, attention: Attention, whom: impl Fn(&Initiator) -> bool) {
        self.guests()
            .iter()
            .filter(|guest| whom(guest.initiator()))
            .for_each(|guest| guest.attend(attention));
    }

    /// Reads or changes the reservations.
    pub fn reserve<T>(&self, change: impl FnOnce(&mut Reservations) -> T) -> T {
        let mut reservations = self.reservations.lock();
        let changed = change(&mut reservations);
        self.is_reserved.store(reservations.is_any(), Ordering::Release);
        changed
    }

    /// Whether any reservation or registration exists. If not, no command can conflict.
    pub fn is_reserved(&self) -> bool {
        self.is_reserved.load(Ordering::Acquire)
    }

    /// LOGICAL UNIT RESET: aborts all commands, drops SPC-2 reservations, resets mode parameters, and
    /// notifies all guests.
    pub async fn reset(&self, by: &Initiator) {
        self.reserve(Reservations::reset);
        *self.modes.lock() = Modes::default();
        for guest in self.guests() {
            guest.attend(attention::DEVICE_RESET);
            guest.abort(by).await;
        }
    }
}

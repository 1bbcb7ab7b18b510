//! What the sessions of one disk share: who is there, reservations, what each must be told.
//!
//! ```text
//!   session: Nexus --- a Guest at each unit of the target --- Lun, of all sessions of that disk
//! ```
//!
//! Idea: a guest is an initiator port at a disk. Who logs in with the name and identifier of a session that
//! is there takes its place, as the protocol demands: a host that lost its connection gets in again. But only
//! the account that the session has may do so.
//!
//! Locking: `guests`, `reservations` and a guest's attentions are locked for one look or change, in that
//! order. `alone` is held across a change of the disk: shared, or alone by commands that read and then write.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_disk::{Errno, Failure};
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock, watch};

use crate::login::Initiator;
use crate::scsi::reservations::Reservations;
use crate::target::{Identity, Unit, Units};
use crate::tasks::Tasks;

/// Attentions that wait for one guest; older ones go first.
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

/// The disks that were ever used, by who they are.
#[derive(Clone, Default)]
pub struct Luns(Arc<Mutex<HashMap<u64, Arc<Lun>>>>);

impl Luns {
    /// What the sessions of a disk share.
    ///
    /// # Errors
    /// What was kept with the disk can't be read.
    pub async fn of(&self, unit: &dyn Unit) -> Result<Arc<Lun>, Failure> {
        let identity = unit.identity();
        if let Some(known) = self.0.lock().get(&identity.id) {
            return Ok(known.clone());
        }
        let reservations = match unit.kept().await? {
            // Without them the disk would be open to hosts that are shut out.
            Some(text) => Reservations::parse(&text).ok_or_else(unreadable)?,
            None => Reservations::default(),
        };
        // Another session may have come first.
        let mut luns = self.0.lock();
        Ok(luns.entry(identity.id).or_insert_with(|| Arc::new(Lun::new(identity, reservations))).clone())
    }

    /// Who a host is at the disk of an NAA designator: where it has a session, too.
    pub fn guest(&self, naa: u64, host: &Nexus) -> Option<Arc<Guest>> {
        let lun = self.0.lock().values().find(|lun| lun.identity.naa() == naa).cloned()?;
        let guests = lun.guests().into_iter();
        { guests }
            .find(|guest| guest.initiator().name == host.initiator.name && guest.nexus.user == host.user)
    }

    /// Lets an initiator port in, at all units of a target, in place of its older session.
    ///
    /// # Errors
    /// Who is there under its name has another account; what was kept with a disk can't be read.
    pub async fn enter(&self, nexus: &Arc<Nexus>, units: Units) -> Result<BTreeMap<u8, Stay>, Failure> {
        let mut stays = BTreeMap::new();
        // In the order of numbers, so that sessions of one port wait for each other in one direction only.
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

/// What the sessions of one disk share.
pub struct Lun {
    /// Who the disk is.
    pub identity: Identity,
    /// Held across changes: shared, or alone by those that must be atomic.
    pub alone: RwLock<()>,
    guests: Mutex<BTreeMap<Initiator, Arc<Guest>>>,
    left: Notify,
    reservations: Mutex<Reservations>,
    is_reserved: AtomicBool,
    /// Held while reservations change, until they are kept.
    pub keeping: tokio::sync::Mutex<()>,
    /// Mode pages: the software write protection, and sense in descriptors.
    pub modes: Mutex<Modes>,
}

/// What mode pages say that initiators can change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modes {
    /// `SWP`: nothing may be written.
    pub is_write_protected: bool,
    /// `D_SENSE`: sense data has descriptors.
    pub has_descriptor_sense: bool,
}

/// An initiator port in a session with a target.
pub struct Nexus {
    /// Who it is.
    pub initiator: Initiator,
    /// The account by which it was let in.
    pub user: Option<String>,
    /// Its commands under way.
    pub tasks: Tasks,
    sent_away: watch::Sender<bool>,
}

impl Nexus {
    /// Of a session that begins.
    pub fn new(initiator: Initiator, user: Option<String>) -> Arc<Nexus> {
        let (tasks, sent_away) = (Tasks::default(), watch::channel(false).0);
        Arc::new(Nexus { initiator, user, tasks, sent_away })
    }

    /// Returns when it has to go.
    pub async fn sent_away(&self) {
        // The sender is its own.
        self.sent_away.subscribe().wait_for(|is_sent| *is_sent).await.ok();
    }

    /// Makes it go.
    pub fn send_away(&self) {
        self.sent_away.send_replace(true);
    }
}

/// An initiator port at a disk.
pub struct Guest {
    /// The port, in its session.
    pub nexus: Arc<Nexus>,
    /// The disk, as the session has opened it.
    pub unit: Arc<dyn Unit>,
    /// What all sessions of the disk share.
    pub lun: Arc<Lun>,
    /// The disk's number in the session.
    number: u8,
    /// The size that it knows of.
    pub size_bytes: AtomicU64,
    attentions: Mutex<VecDeque<Attention>>,
    has_attention: AtomicBool,
}

/// A guest is there as long as this is.
pub struct Stay {
    /// The guest.
    pub guest: Arc<Guest>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        let Guest { nexus, lun, .. } = &*self.guest;
        // Else tasks that wait for data would keep the disk.
        nexus.tasks.stop(|_, _| true);
        lun.guests.lock().remove(&nexus.initiator);
        // A reservation of the old kind ends with the session.
        lun.reserve(|reservations| reservations.leave(&nexus.initiator));
        lun.left.notify_waiters();
    }
}

impl Guest {
    /// Who it is.
    pub fn initiator(&self) -> &Initiator {
        &self.nexus.initiator
    }

    /// Aborts its commands to this disk, and waits for their end.
    pub async fn abort(&self) {
        self.nexus.tasks.abort(|_, lun| lun == Some(self.number)).await;
    }

    /// Something that it must be told before its next command.
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

    /// What it must be told now.
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

    /// Lets an initiator port in, in place of its older session.
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

    /// Who is there, now.
    pub fn guests(&self) -> Vec<Arc<Guest>> {
        self.guests.lock().values().cloned().collect()
    }

    /// Tells all guests but one, or those of some initiators only.
    pub fn attend(&self, attention: Attention, whom: impl Fn(&Initiator) -> bool) {
        self.guests()
            .iter()
            .filter(|guest| whom(guest.initiator()))
            .for_each(|guest| guest.attend(attention));
    }

    /// Looks at reservations, or changes them.
    pub fn reserve<T>(&self, change: impl FnOnce(&mut Reservations) -> T) -> T {
        let mut reservations = self.reservations.lock();
        let changed = change(&mut reservations);
        self.is_reserved.store(reservations.is_any(), Ordering::Release);
        changed
    }

    /// Whether anybody has reserved anything: else no command is in conflict.
    pub fn is_reserved(&self) -> bool {
        self.is_reserved.load(Ordering::Acquire)
    }

    /// Aborts everything, forgets reservations of the old kind, and tells everybody.
    pub async fn reset(&self) {
        self.reserve(Reservations::reset);
        *self.modes.lock() = Modes::default();
        for guest in self.guests() {
            guest.attend(attention::DEVICE_RESET);
            guest.abort().await;
        }
    }
}

//! What the sessions of one disk share: who is there, reservations, what each must be told.
//!
//! Idea: a guest is an initiator port in a session. Who logs in with the name and identifier of a session
//! that is there takes its place, as the protocol demands: a host that lost its connection gets in again.
//!
//! Locking: `guests`, `reservations` and a guest's attentions are locked for one look or change, in that
//! order. `alone` is held across a change of the disk: shared, or alone by commands that read and then write.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_disk::Failure;
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock, watch};

use crate::login::Initiator;
use crate::scsi::reservations::Reservations;
use crate::target::{Identity, Unit};
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

/// The disks that were ever used, by target name.
#[derive(Default)]
pub struct Luns(Mutex<HashMap<String, Arc<Lun>>>);

impl Luns {
    /// What the sessions of a target share.
    ///
    /// # Errors
    /// What was kept with the disk can't be read.
    pub async fn of(&self, target: &str, unit: &dyn Unit) -> Result<Arc<Lun>, Failure> {
        let identity = unit.identity();
        let known = self.0.lock().get(target).cloned();
        if let Some(lun) = known.filter(|lun| lun.identity.id == identity.id) {
            return Ok(lun);
        }
        let reservations = unit.kept().await?.and_then(|text| Reservations::parse(&text)).unwrap_or_default();
        let lun = Arc::new(Lun::new(identity, reservations));
        let mut luns = self.0.lock();
        // Another session may have come first.
        let known = luns.get(target).filter(|known| known.identity.id == lun.identity.id).cloned();
        Ok(known.unwrap_or_else(|| {
            luns.insert(target.into(), lun.clone());
            lun
        }))
    }
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

/// An initiator port in a session.
pub struct Guest {
    /// Who it is.
    pub initiator: Initiator,
    /// Its commands under way.
    pub tasks: Tasks,
    /// The size that it knows of.
    pub size_bytes: AtomicU64,
    attentions: Mutex<VecDeque<Attention>>,
    has_attention: AtomicBool,
    sent_away: watch::Sender<bool>,
}

/// A guest is there as long as this is.
pub struct Stay {
    lun: Arc<Lun>,
    /// The guest.
    pub guest: Arc<Guest>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        // Else tasks that wait for data would keep the disk.
        self.guest.tasks.stop(|_| true);
        self.lun.guests.lock().remove(&self.guest.initiator);
        // A reservation of the old kind ends with the session.
        self.lun.reserve(|reservations| reservations.leave(&self.guest.initiator));
        self.lun.left.notify_waiters();
    }
}

impl Guest {
    /// Returns when it has to go.
    pub async fn sent_away(&self) {
        // The sender is this guest's own.
        self.sent_away.subscribe().wait_for(|is_sent| *is_sent).await.ok();
    }

    /// Makes it go.
    pub fn send_away(&self) {
        self.sent_away.send_replace(true);
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

    /// Lets an initiator in, in place of a session of the same name.
    pub async fn enter(self: &Arc<Lun>, initiator: Initiator, size_bytes: u64) -> Stay {
        let guest = Arc::new(Guest {
            initiator: initiator.clone(),
            tasks: Tasks::default(),
            size_bytes: size_bytes.into(),
            attentions: Mutex::default(),
            has_attention: false.into(),
            sent_away: watch::channel(false).0,
        });
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            left.as_mut().enable();
            {
                let mut guests = self.guests.lock();
                match guests.get(&initiator) {
                    Some(old) => old.send_away(),
                    None => {
                        guests.insert(initiator, guest.clone());
                        return Stay { lun: self.clone(), guest };
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
        self.guests().iter().filter(|guest| whom(&guest.initiator)).for_each(|guest| guest.attend(attention));
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
            guest.tasks.abort(|_| true).await;
        }
    }
}

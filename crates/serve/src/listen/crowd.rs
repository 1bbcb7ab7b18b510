//! How many clients may be in at a time.
//!
//! Idea: whoever holds a [`Room`] is counted. One address gets half of what there is, so that a single
//! machine does not lock out all others. Telling clients that there is no room costs connections, too: a few.
//!
//! Locking: `inside` for the time of counting; nothing else is locked meanwhile.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at a time of a protocol, if nothing else is said.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Clients at a time that are told that there is no room.
const TURNED_AWAY_MAX: usize = 64;

/// The clients of a protocol, at all its doors.
pub struct Crowd {
    most: usize,
    inside: Mutex<Inside>,
    turned_away: Arc<Semaphore>,
}

#[derive(Default)]
struct Inside {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

/// Room for a client, until this is dropped.
pub struct Room {
    crowd: Arc<Crowd>,
    from: Option<IpAddr>,
}

impl Crowd {
    /// At most so many.
    pub fn new(most: usize) -> Arc<Crowd> {
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        Arc::new(Crowd { most, inside: Mutex::default(), turned_away })
    }

    /// Room for one more from this address, if there is any. Processes of this machine have no address, and
    /// may take all.
    pub fn enter(self: &Arc<Crowd>, from: Option<IpAddr>) -> Option<Room> {
        let mut inside = self.inside.lock();
        if inside.all >= self.most {
            return None;
        }
        if let Some(address) = from {
            let from_there = inside.by_address.entry(address).or_default();
            if *from_there >= self.most.div_ceil(2) {
                return None;
            }
            *from_there += 1;
        }
        inside.all += 1;
        drop(inside);
        Some(Room { crowd: self.clone(), from })
    }

    /// What is needed to tell somebody that there is no room.
    pub(super) fn be_turned_away(&self) -> Option<OwnedSemaphorePermit> {
        self.turned_away.clone().try_acquire_owned().ok()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut inside = self.crowd.inside.lock();
        inside.all -= 1;
        let Some(from) = self.from else { return };
        if let Some(from_there) = inside.by_address.get_mut(&from) {
            *from_there -= 1;
            if *from_there == 0 {
                inside.by_address.remove(&from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_gets_half_of_the_room() {
        let crowd = Crowd::new(4);
        let at = |last| Some(IpAddr::from([192, 0, 2, last]));
        let one: Vec<_> = (0..3).map_while(|_| crowd.enter(at(1))).collect();
        assert_eq!(one.len(), 2);
        let two: Vec<_> = (0..3).map_while(|_| crowd.enter(at(2))).collect();
        assert_eq!(two.len(), 2);
        assert!(crowd.enter(at(3)).is_none() && crowd.enter(None).is_none());
        drop(one);
        assert!(crowd.enter(at(1)).is_some() && crowd.enter(at(2)).is_none());
        assert_eq!(crowd.inside.lock().by_address.len(), 1);
    }
}

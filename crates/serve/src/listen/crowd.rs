//! How many clients may be in at a time.
//!
//! Idea: every client that holds a [`Room`] is counted. One user of this machine, or one address, gets half
//! of what there is, so that nobody locks out all others; an eighth is kept for root and the daemon's user.
//! Telling clients that there is no room costs connections, too: a few.
//!
//! Locking: `inside` for the time of counting; nothing else is locked meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_disk::Origin;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at a time of a protocol, if nothing else is said.
pub const CONNECTIONS_MAX: usize = 1_024;
/// The part of them that is kept for root and the daemon's user.
const KEPT: usize = 8;
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
    /// Those that have a share: all but root and the daemon's user.
    strangers: usize,
    by_origin: BTreeMap<Origin, usize>,
}

/// Room for a client, until this is dropped.
pub struct Room {
    crowd: Arc<Crowd>,
    /// None: it is trusted.
    stranger: Option<Origin>,
}

impl Crowd {
    /// At most so many.
    pub fn new(most: usize) -> Arc<Crowd> {
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        Arc::new(Crowd { most, inside: Mutex::default(), turned_away })
    }

    /// Room for one more, if there is any. `stranger`: where it comes from; none: it is root's or the
    /// daemon's user's, who may take all.
    pub fn enter(self: &Arc<Crowd>, stranger: Option<Origin>) -> Option<Room> {
        let mut inside = self.inside.lock();
        if inside.all >= self.most {
            return None;
        }
        if let Some(origin) = stranger {
            if inside.strangers >= self.most - self.most / KEPT {
                return None;
            }
            let from_there = inside.by_origin.entry(origin).or_default();
            if *from_there >= self.most.div_ceil(2) {
                return None;
            }
            *from_there += 1;
            inside.strangers += 1;
        }
        inside.all += 1;
        drop(inside);
        Some(Room { crowd: self.clone(), stranger })
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
        let Some(origin) = self.stranger else { return };
        inside.strangers -= 1;
        if let Some(from_there) = inside.by_origin.get_mut(&origin) {
            *from_there -= 1;
            if *from_there == 0 {
                inside.by_origin.remove(&origin);
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
        let at = |last| Some(Origin::at(std::net::IpAddr::from([192, 0, 2, last])));
        let one: Vec<_> = (0..3).map_while(|_| crowd.enter(at(1))).collect();
        assert_eq!(one.len(), 2);
        let two: Vec<_> = (0..3).map_while(|_| crowd.enter(at(2))).collect();
        assert_eq!(two.len(), 2);
        assert!(crowd.enter(at(3)).is_none() && crowd.enter(None).is_none());
        drop(one);
        assert!(crowd.enter(at(1)).is_some() && crowd.enter(at(2)).is_none());
        assert_eq!(crowd.inside.lock().by_origin.len(), 1);
    }

    #[test]
    fn users_get_halves_too_and_leave_room_for_root() {
        let crowd = Crowd::new(16);
        let of = |uid| (0..16).map_while(|_| crowd.enter(Some(Origin::User(uid)))).collect::<Vec<_>>();
        let [one, two, three] = [1000, 1001, 1002].map(of);
        assert_eq!([one.len(), two.len(), three.len()], [8, 6, 0]);
        let root: Vec<_> = (0..16).map_while(|_| crowd.enter(None)).collect();
        assert_eq!(root.len(), 2);
        drop((one, two, root));
        assert_eq!((0..20).map_while(|_| crowd.enter(None)).collect::<Vec<_>>().len(), 16);
    }
}

//! How many clients may be in at a time: connections of a protocol, or commands at the socket.
//!
//! Idea: every client that holds a [`Room`] is counted. One user of this machine, or one address, gets a part
//! of what there is, so that nobody locks out all others; another part is kept for root and the daemon's
//! user. Telling clients that there is no room costs connections, too: a few.
//!
//! Locking: `inside` for the time of counting; nothing else is locked meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_disk::Origin;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at a time of a protocol, if nothing else is said.
pub const CONNECTIONS_MAX: usize = 1_024;
/// The part of them that is kept for root and the daemon's user...
const KEPT: usize = 8;
/// ...and that of one user or address.
const OF_ONE: usize = 2;
/// Clients at a time that are told that there is no room.
const TURNED_AWAY_MAX: usize = 64;

/// The clients of a protocol, at all its doors.
pub struct Crowd {
    most: usize,
    kept: usize,
    of_one: usize,
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
    /// At most so many: half for one origin, an eighth for root and the daemon's user alone.
    pub fn new(most: usize) -> Arc<Crowd> {
        Crowd::sharing(most, most / KEPT, most.div_ceil(OF_ONE))
    }

    /// At most so many, of them `kept` for root and the daemon's user alone, and `of_one` for one origin.
    pub(crate) fn sharing(most: usize, kept: usize, of_one: usize) -> Arc<Crowd> {
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        Arc::new(Crowd { most, kept, of_one, inside: Mutex::default(), turned_away })
    }

    /// Room for one more, if there is any. `stranger`: where it comes from; none: it is root's or the
    /// daemon's user's, who may take all.
    pub fn enter(self: &Arc<Crowd>, stranger: Option<Origin>) -> Option<Room> {
        let mut inside = self.inside.lock();
        if inside.all >= self.most {
            return None;
        }
        if let Some(origin) = stranger {
            if inside.strangers >= self.most - self.kept {
                return None;
            }
            let from_there = inside.by_origin.entry(origin).or_default();
            if *from_there >= self.of_one {
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

    #[test]
    fn users_have_shares_and_root_always_finds_room() {
        let crowd = Crowd::sharing(256, 64, 64);
        let enter = |uid: Option<u32>| crowd.enter(uid.map(Origin::User));
        let of = |uid| std::iter::from_fn(|| enter(Some(uid))).collect::<Vec<_>>();
        let mut strangers = [1000, 1001, 1002, 1003].map(of);
        assert_eq!(strangers.each_ref().map(Vec::len), [64, 64, 64, 0]);
        let root: Vec<_> = std::iter::from_fn(|| enter(None)).collect();
        assert_eq!(root.len(), 64);
        drop(root);
        strangers[0].pop();
        assert!(enter(Some(1003)).is_some());
        drop(strangers);
        let inside = crowd.inside.lock();
        assert_eq!((inside.all, inside.by_origin.len()), (0, 0));
    }
}

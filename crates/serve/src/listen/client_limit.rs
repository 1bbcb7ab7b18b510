//! Limits concurrent clients: connections of a protocol, or commands at the socket.
//!
//! Idea: every client holds a [`Room`]. One user of this machine, or one address, gets a limited share, so
//! that no client can lock out all others; another share is reserved for root and the daemon's user. Refusal
//! messages cost connections, and are limited, too.
//!
//! Locking: `inside` while counting; no other lock is taken meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_disk::Origin;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Default limit of a protocol's connections.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Divisor: share reserved for root and the daemon's user...
const KEPT: usize = 8;
/// ...and maximum share of one user or address.
const OF_ONE: usize = 2;
/// Concurrent clients that get a refusal message.
const TURNED_AWAY_MAX: usize = 64;

/// A protocol's clients, over all its doors.
pub struct ClientLimit {
    most: usize,
    kept: usize,
    of_one: usize,
    inside: Mutex<Inside>,
    turned_away: Arc<Semaphore>,
}

#[derive(Default)]
struct Inside {
    all: usize,
    /// All but root and the daemon's user.
    strangers: usize,
    by_origin: BTreeMap<Origin, usize>,
}

/// Room for a client, until dropped.
pub struct Room {
    crowd: Arc<ClientLimit>,
    /// None: trusted.
    stranger: Option<Origin>,
}

impl ClientLimit {
    /// At most this many: half for one origin, an eighth reserved for root and the daemon's user.
    pub fn new(most: usize) -> Arc<ClientLimit> {
        ClientLimit::sharing(most, most / KEPT, most.div_ceil(OF_ONE))
    }

    /// At most this many, `kept` of them reserved for root and the daemon's user, and `of_one` for one
    /// origin.
    pub(crate) fn sharing(most: usize, kept: usize, of_one: usize) -> Arc<ClientLimit> {
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        Arc::new(ClientLimit { most, kept, of_one, inside: Mutex::default(), turned_away })
    }

    /// Room for one more, if any. `stranger`: its origin; none: root or the daemon's user, without a share
    /// limit.
    pub fn enter(self: &Arc<ClientLimit>, stranger: Option<Origin>) -> Option<Room> {
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

    /// A permit to send a refusal message.
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
        let crowd = ClientLimit::new(4);
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
        let crowd = ClientLimit::new(16);
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
        let crowd = ClientLimit::sharing(256, 64, 64);
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

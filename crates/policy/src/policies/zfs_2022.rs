//! OpenZFS's ARC since version 2.2 (pull request 14359 of 2022): four resident states, recent and frequent by
//! data and metadata, each with ghosts. Three fractions set the targets: metadata of the whole, recent data
//! of the data, recent metadata of the metadata. Bytes hit in ghosts move them.
//!
//! - A block becomes frequent with its second use, if that comes at least 62 ms after the first.
//! - When the cache is too large, the states above their share shrink, in the order recent metadata, frequent
//!   metadata, recent data; frequent data gives the rest.
//! - Hits in ghosts of data lower the share of metadata by a fifth of the amount by which hits in ghosts of
//!   metadata raise it (`zfs_arc_meta_balance` 500).
//! - A state's ghosts are at most half of the other three states.
//!
//! Source: OpenZFS `arc.c` (`arc_access`, `arc_evict`, `arc_evict_adj`).

use crate::lists::{Entry, Lists};
use crate::policy::{Access, BlockId, Class, Policy};

use super::zfs_states::{self as states, FREQUENT, RECENT, TO_GHOSTS};

/// `zfs_arc_meta_balance`, in percent.
const META_BALANCE: f64 = 500.0;

/// The ARC of OpenZFS 2.2 and later.
#[derive(Debug)]
pub struct Arc2022 {
    lists: Lists<8>,
    capacity_bytes: u64,
    /// `arc_meta`, `arc_pd`, `arc_pm`, as fractions of one.
    metadata_share: f64,
    recent_share: [f64; 2],
    /// By ghost list: bytes hit since the last adjustment, and its largest size then.
    ghost_hits: [u64; 4],
    ghost_room: [u64; 4],
}

impl Arc2022 {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Arc2022 {
        Arc2022 {
            lists: Lists::new(),
            capacity_bytes,
            metadata_share: 0.25,
            recent_share: [0.5; 2],
            ghost_hits: [0; 4],
            ghost_room: [0; 4],
        }
    }

    fn shrink(&mut self, evicted: &mut Vec<BlockId>) {
        if self.resident_bytes() <= self.capacity_bytes {
            return;
        }
        self.adjust();
        let (data, metadata) = (Class::Data as usize, Class::Metadata as usize);
        let wanted_metadata = (self.capacity_bytes as f64 * self.metadata_share) as u64;
        let recent = (wanted_metadata as f64 * self.recent_share[metadata]) as u64;
        self.evict(RECENT[metadata], recent, evicted);
        let frequent = wanted_metadata.saturating_sub(self.lists.bytes(RECENT[metadata]));
        self.evict(FREQUENT[metadata], frequent, evicted);
        let metadata_bytes = self.lists.bytes(RECENT[metadata]) + self.lists.bytes(FREQUENT[metadata]);
        let rest = self.capacity_bytes.saturating_sub(metadata_bytes);
        self.evict(RECENT[data], (rest as f64 * self.recent_share[data]) as u64, evicted);
        self.evict(FREQUENT[data], 0, evicted);
        // Reached only if the cache is nearly all metadata: its shares leave nothing to data.
        for state in [RECENT[data], RECENT[metadata], FREQUENT[metadata]] {
            self.evict(state, 0, evicted);
        }
        let all: u64 = self.resident_bytes();
        for state in 0..TO_GHOSTS {
            self.ghost_room[state] = (all - self.lists.bytes(state)) / 2;
            while self.lists.bytes(state + TO_GHOSTS) > self.ghost_room[state] {
                self.lists.pop(state + TO_GHOSTS);
            }
        }
    }

    /// Demotes a state's oldest blocks to ghosts until it is down to `keep_bytes` or the cache fits.
    fn evict(&mut self, state: usize, keep_bytes: u64, evicted: &mut Vec<BlockId>) {
        while self.resident_bytes() > self.capacity_bytes && self.lists.bytes(state) > keep_bytes {
            let Some(slot) = self.lists.back(state) else { return };
            evicted.push(self.lists.entry(slot).id);
            self.lists.move_to_front(slot, state + TO_GHOSTS);
        }
    }

    fn adjust(&mut self) {
        let [recent_data, recent_metadata, frequent_data, frequent_metadata] =
            self.ghost_hits.map(|bytes| bytes as f64);
        let room = self.ghost_room.map(|bytes| bytes as f64);
        self.ghost_hits = [0; 4];
        let (data, metadata) = (recent_data + frequent_data, recent_metadata + frequent_metadata);
        self.metadata_share =
            moved(self.metadata_share, room.iter().sum(), metadata, data, 100.0 / META_BALANCE);
        let [of_data, of_metadata] = &mut self.recent_share;
        *of_data = moved(*of_data, room[0] + room[2], recent_data, frequent_data, 1.0);
        *of_metadata = moved(*of_metadata, room[1] + room[3], recent_metadata, frequent_metadata, 1.0);
    }
}

/// Moves a share by ghost hits (`arc_evict_adj`), relative to the ghosts; slower near 0 and 1.
fn moved(share: f64, ghosts: f64, up: f64, down: f64, down_weight: f64) -> f64 {
    if ghosts < 32.0 || up + down == 0.0 {
        return share;
    }
    // Ghosts hit repeatedly since the last time count for at most a sixteenth.
    let limit = (ghosts / 16.0 / (up + down)).min(1.0);
    let damped = |to: f64, from: f64| if from >= 4.0 * to { 2.0 * to / from } else { 1.0 };
    let rest = 1.0 - share;
    let up = up * limit * damped(rest, share) / ghosts;
    let down = down * limit * damped(share, rest) / ghosts * down_weight;
    (share + up - down).clamp(0.0, 1.0)
}

impl Policy for Arc2022 {
    fn touch(&mut self, access: &Access) -> bool {
        states::touch(&mut self.lists, access)
    }

    fn expect(&self, accesses: &[Access]) {
        self.lists.look_at(accesses);
    }

    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>) {
        let class = access.class as usize;
        let state = match self.lists.find(access.id) {
            Some((slot, ghosts)) => {
                self.ghost_hits[ghosts - TO_GHOSTS] += u64::from(access.bytes);
                self.lists.remove(slot);
                FREQUENT[class]
            }
            None => RECENT[class],
        };
        self.lists.push(state, Entry::from(access));
        self.shrink(evicted);
    }

    fn remove(&mut self, id: BlockId) {
        self.lists.forget(id);
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>) {
        self.capacity_bytes = capacity_bytes;
        self.shrink(evicted);
    }

    fn resident_bytes(&self) -> u64 {
        (0..TO_GHOSTS).map(|state| self.lists.bytes(state)).sum()
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        let share = |share: f64| (share * self.capacity_bytes as f64) as u64;
        vec![
            ("mru_data", self.lists.bytes(RECENT[0])),
            ("mru_metadata", self.lists.bytes(RECENT[1])),
            ("mfu_data", self.lists.bytes(FREQUENT[0])),
            ("mfu_metadata", self.lists.bytes(FREQUENT[1])),
            ("mru_ghost_data", self.lists.bytes(TO_GHOSTS)),
            ("mru_ghost_metadata", self.lists.bytes(TO_GHOSTS + 1)),
            ("mfu_ghost_data", self.lists.bytes(TO_GHOSTS + 2)),
            ("mfu_ghost_metadata", self.lists.bytes(TO_GHOSTS + 3)),
            ("meta", share(self.metadata_share)),
            ("pd", share(self.recent_share[0])),
            ("pm", share(self.recent_share[1])),
        ]
    }
}

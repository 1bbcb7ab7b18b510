//! Aggregation: waiting operations on neighbouring ranges become one.
//!
//! Idea: waiting operations are indexed by direction and offset across classes. When one starts, its
//! neighbours go along up to a size limit. A small gap between reads is read and thrown away. Between writes,
//! only unused bytes of the first one's block (RAID-Z's skip sectors) are filled with zeros. The device moves
//! all pieces in one call without copies ([`cenote_device::Device::read_pieces`]).
//!
//! ```text
//!   waiting      A......  B...      C.....           D..
//!   starts B     |<------- limit ------->|
//!   read         A......  B...      C.....
//!                       ^^ gaps ^^^^
//! ```
//!
//! A group is handed to the device at once and awaited in its own task, since its members may be busy or
//! dropped. If it fails, each member retries alone: an unreadable sector fails only its own reader.
//!
//! Users' operations of all classes join each other; background operations only their own class, so that a
//! nearby user does not speed them up.
//!
//! Source: OpenZFS `vdev_queue.c` (`vdev_queue_aggregate`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_device::Op;
use tokio::sync::oneshot;

use super::{IoClass, Permit, Queue};
use crate::vdev::patience::Haste;

/// Including gaps; the kernel takes 1,024.
const MOST_PIECES: usize = 512;

#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) class: IoClass,
    pub(crate) offset_bytes: u64,
    pub(crate) len: usize,
    pub(crate) data: Option<Bytes>,
    /// Unused bytes after a write that belong to its block.
    pub(crate) padding: usize,
    pub(crate) may_join: bool,
}

impl Ask {
    pub(crate) fn read(class: IoClass, offset_bytes: u64, len: usize) -> Ask {
        Ask { class, offset_bytes, len, data: None, padding: 0, may_join: true }
    }

    pub(crate) fn write(class: IoClass, offset_bytes: u64, data: &Bytes, padding: usize) -> Ask {
        let (len, data) = (data.len(), Some(data.clone()));
        Ask { class, offset_bytes, len, data, padding, may_join: true }
    }

    pub(crate) fn alone(self) -> Ask {
        Ask { may_join: false, ..self }
    }

    pub(super) fn end(&self) -> u64 {
        self.offset_bytes + self.len as u64
    }
}

/// A member's data (empty for a write); `None`: retry alone.
pub(super) type Outcome = Option<Bytes>;

pub(super) struct Member {
    pub(super) ask: Ask,
    pub(super) tell: oneshot::Sender<Outcome>,
}

pub(super) struct Group {
    pub(super) class: IoClass,
    pub(super) members: Vec<Member>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Size limit; 0 disables joining.
    pub(super) whole: u64,
    pub(super) read_gap: u64,
    /// Longest padding to write.
    pub(super) write_gap: u64,
}

pub(super) type Start = (u64, u64);

#[derive(Debug, Clone, Copy)]
struct Neighbour {
    class: IoClass,
    end: u64,
    padding: u64,
}

#[derive(Default)]
pub(super) struct Neighbours([BTreeMap<Start, Neighbour>; 2]);

impl Neighbours {
    pub(super) fn add(&mut self, ask: &Ask, arrival: u64) {
        if ask.may_join {
            let neighbour = Neighbour { class: ask.class, end: ask.end(), padding: ask.padding as u64 };
            self.of(ask).insert((ask.offset_bytes, arrival), neighbour);
        }
    }

    pub(super) fn remove(&mut self, ask: &Ask, arrival: u64) {
        if ask.may_join {
            self.of(ask).remove(&(ask.offset_bytes, arrival));
        }
    }

    fn of(&mut self, ask: &Ask) -> &mut BTreeMap<Start, Neighbour> {
        &mut self.0[usize::from(ask.data.is_some())]
    }

    /// Neighbours before and after `ask`, which has left the line, in order of offset.
    pub(super) fn beside(&self, ask: &Ask, limits: Limits) -> [Vec<(Start, IoClass)>; 2] {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let is_write = ask.data.is_some();
        let all = &self.0[usize::from(is_write)];
        if !ask.may_join || all.is_empty() {
            return [before, after];
        }
        let joins = |class: IoClass| match ask.class.is_background() {
            true => class == ask.class,
            false => !class.is_background(),
        };
        let is_near = |end: u64, padding: u64, next: u64| {
            let most = if is_write { limits.write_gap.min(padding) } else { limits.read_gap };
            next >= end && next - end <= most
        };
        // Each may bring a gap.
        let is_full = |count: usize| 2 * (count + 1) > MOST_PIECES;
        let (mut start, mut end, mut padding) = (ask.offset_bytes, ask.end(), ask.padding as u64);
        for (&key, found) in all.range(..(start, 0)).rev() {
            let fits = end - key.0 <= limits.whole && !is_full(before.len() + 1);
            if !(joins(found.class) && fits && is_near(found.end, found.padding, start)) {
                break;
            }
            before.push((key, found.class));
            start = key.0;
        }
        before.reverse();
        for (&key, found) in all.range((end, 0)..) {
            let fits = found.end - start <= limits.whole && !is_full(before.len() + after.len() + 1);
            if !(joins(found.class) && fits && is_near(end, padding, key.0)) {
                break;
            }
            after.push((key, found.class));
            (end, padding) = (found.end, found.padding);
        }
        [before, after]
    }
}

/// A write begins immediately, to keep its order among overlapping ones; a read when first polled.
pub(super) fn begin(queue: &Arc<Queue>, group: Group) -> impl Future<Output = ()> + Send + use<> {
    let Group { class, members } = group;
    let permit = Permit { queue: queue.clone(), class };
    let patience = queue.patience.clone();
    let (first, last) = (members.first(), members.last());
    let offset = first.map_or(0, |first| first.ask.offset_bytes);
    let bytes = last.map_or(0, |last| last.ask.end()) - offset;
    let is_write = first.is_some_and(|first| first.ask.data.is_some());
    let writing =
        is_write.then(|| patience.begin(Op::Write, |device| device.write_pieces(offset, contents(&members))));
    async move {
        let outcome = match writing {
            Some(writing) => {
                let done = patience.answer((Op::Write, offset, bytes), permit, writing, Haste::Patient).await;
                done.map(|()| vec![Bytes::new(); members.len()])
            }
            None => {
                let (lens, wanted) = ranges(&members);
                let reading = patience.begin(Op::Read, |device| device.read_pieces(offset, lens));
                let read = patience.answer((Op::Read, offset, bytes), permit, reading, Haste::Patient).await;
                read.map(|pieces| {
                    let wanted = pieces.into_iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted);
                    wanted.map(|(piece, _)| piece).collect()
                })
            }
        };
        // The permit is already returned: members may issue more operations.
        let mut pieces = outcome.unwrap_or_default().into_iter();
        for member in members {
            // The member may be gone.
            let _ = member.tell.send(pieces.next());
        }
    }
}

/// With zeros between the members' data.
fn contents(members: &[Member]) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(members.len());
    let mut reached = None;
    for Member { ask, .. } in members {
        let gap = reached.map_or(0, |end| ask.offset_bytes - end);
        if gap > 0 {
            pieces.push(Bytes::from(vec![0; gap as usize]));
        }
        pieces.extend(ask.data.clone());
        reached = Some(ask.end());
    }
    pieces
}

/// With the gaps, and which ranges are members'.
fn ranges(members: &[Member]) -> (Vec<usize>, Vec<bool>) {
    let (mut lens, mut wanted) = (Vec::new(), Vec::new());
    let mut reached = None;
    for Member { ask, .. } in members {
        let gap = reached.map_or(0, |end| ask.offset_bytes - end);
        if gap > 0 {
            lens.push(gap as usize);
            wanted.push(false);
        }
        lens.push(ask.len);
        wanted.push(true);
        reached = Some(ask.end());
    }
    (lens, wanted)
}

#[cfg(test)]
mod tests;

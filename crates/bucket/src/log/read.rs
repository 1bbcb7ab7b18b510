//! Reads: from memory as far as bytes are there, otherwise by ranges of objects.
//!
//! A segment may be deleted between the look at the map and the request, after its data have moved. Then the
//! map is looked at again.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::future::try_join_all;

use super::state::State;
use super::{Log, Over};
use crate::map::SECTOR_BYTES;
use crate::store::StoreError;
use crate::wire::Name;

/// Ranges of a segment are read together if at most this lies between them.
const GAP_BYTES: u64 = 128 << 10;
/// Times that a vanished segment is looked up anew.
const TRIES: u32 = 8;

enum Part {
    Here(Vec<Bytes>),
    Zeros(usize),
    /// Bytes of a request's answer.
    There {
        request: usize,
        skip: usize,
        len: usize,
    },
}

struct Plan {
    parts: Vec<Part>,
    requests: Vec<(Name, Range<u64>)>,
}

impl State {
    fn plan(&self, offset: u64, len: usize) -> Plan {
        let end = offset + len as u64;
        let mut plan = Plan { parts: Vec::new(), requests: Vec::new() };
        for piece in self.map.look_up(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)) {
            let start = (piece.start * SECTOR_BYTES).max(offset);
            let stop = ((piece.start + piece.sectors) * SECTOR_BYTES).min(end);
            let bytes = (stop - start) as usize;
            let source = piece.source.and_then(|(slot, at)| Some((self.segments.get(&slot)?, at)));
            let Some((segment, at)) = source else {
                plan.parts.push(Part::Zeros(bytes));
                continue;
            };
            let at = u64::from(at) * SECTOR_BYTES + (start - piece.start * SECTOR_BYTES);
            match &segment.content {
                Some(content) => plan.parts.push(Part::Here(content.slice(at as usize, bytes))),
                None => {
                    let at = u64::from(segment.base_bytes) + at;
                    plan.request(segment.name, at..at + bytes as u64);
                }
            }
        }
        plan
    }
}

impl Plan {
    fn request(&mut self, name: Name, range: Range<u64>) {
        let len = (range.end - range.start) as usize;
        let near = |(known, there): &(Name, Range<u64>)| {
            *known == name && there.start <= range.start && range.start <= there.end + GAP_BYTES
        };
        let request = self.requests.iter().position(near).unwrap_or_else(|| {
            self.requests.push((name, range.clone()));
            self.requests.len() - 1
        });
        let there = &mut self.requests[request].1;
        there.end = there.end.max(range.end);
        let skip = (range.start - there.start) as usize;
        self.parts.push(Part::There { request, skip, len });
    }

    fn assemble(self, len: usize, answers: &[Bytes]) -> Bytes {
        let piece = |part: Part| match part {
            Part::Here(pieces) => pieces,
            Part::Zeros(len) => vec![Bytes::from(vec![0; len])],
            Part::There { request, skip, len } => vec![answers[request].slice(skip..skip + len)],
        };
        let mut pieces: Vec<Bytes> = self.parts.into_iter().flat_map(piece).collect();
        if pieces.len() == 1 {
            return pieces.swap_remove(0);
        }
        let mut all = BytesMut::with_capacity(len);
        pieces.iter().for_each(|piece| all.extend_from_slice(piece));
        all.freeze()
    }
}

impl Log {
    /// `None`: a part is not in memory.
    pub(super) fn read_in_memory(&self, offset: u64, len: usize) -> Option<Bytes> {
        let plan = self.state.lock().plan(offset, len);
        plan.requests.is_empty().then(|| plan.assemble(len, &[]))
    }

    /// The meaning of a failed read. Another machine may have moved the data.
    async fn judged(&self, error: StoreError) -> Over {
        if let Some(over) = self.over() {
            return over;
        }
        let is_missing = matches!(error, StoreError::Missing(_));
        if is_missing && self.is_overtaken().await.unwrap_or(false) {
            self.end(Over::Taken);
            return Over::Taken;
        }
        Over::Failed(error)
    }

    pub(super) async fn read(self: Arc<Self>, offset: u64, len: usize) -> Result<Bytes, Over> {
        let mut tries = 0;
        loop {
            let plan = self.state.lock().plan(offset, len);
            let asked = plan.requests.iter().map(|(name, range)| {
                let (store, key, range) = (self.store.clone(), name.key(), range.clone());
                async move { store.read(&key, Some(range)).await }
            });
            match try_join_all(asked.collect::<Vec<_>>()).await {
                Ok(answers) => return Ok(plan.assemble(len, &answers)),
                Err(StoreError::Missing(_)) if tries < TRIES && self.over().is_none() => tries += 1,
                Err(error) => return Err(self.judged(error).await),
            }
        }
    }
}

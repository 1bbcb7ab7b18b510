//! Examines a batch of copies: hashes data in place, compares parity and the other leaves.

use super::decode::Decoding;
use super::targets::Target;
use super::{Examined, Fault, Finding};
use crate::check::Check;
use crate::context::ReadContext;
use crate::extents::{Extents, Fetched, Ticket};
use crate::pool::Pool;
use crate::recover::{ColumnFault, CopyError, FaultKind, Recovered, recover};
use crate::vdev::VdevTree;
use crate::vdev::map::{BlockMap, Row};
use bytes::Bytes;
use cenote_codec::raidz;
use cenote_runtime::WorkKind;
use std::sync::Arc;

/// Requested from every leaf: `tickets[row][column][leaf]`.
struct Asked {
    map: BlockMap,
    tickets: Vec<Vec<Vec<Ticket>>>,
    /// A column has no leaf.
    incomplete: bool,
}

impl Pool {
    pub(super) async fn examine_batch(
        &self,
        batch: Vec<Target>,
        heals: bool,
        decoding: &Decoding,
    ) -> Examined {
        let (vdevs, mut extents, mut inside) = (self.tree().vdevs(), Extents::default(), Vec::new());
        for target in &batch {
            inside.extend(vdevs.enter(&target.dva, target.psize, target.bp.physical_birth()).await);
        }
        let inside = Arc::new(inside);
        let asked: Vec<Option<Asked>> =
            batch.iter().map(|target| ask(&vdevs, &mut extents, target)).collect();
        let fetched = extents.fetch(self.reads()).await;
        let mut examined = Examined::default();
        let mut scratch = Vec::new();
        for (target, asked) in batch.into_iter().zip(asked) {
            let (Some(asked), Ok(check)) = (asked, target.check(self.salt())) else {
                examined.lost.push(target);
                continue;
            };
            self.runtime().work(check.work(), target.psize as u64).await;
            self.runtime().work(WorkKind::ParityGenerate, target.psize as u64).await;
            if asked.is_right(&fetched, &check, target.psize, &mut scratch) {
                if let Some(ctx) = decoding.due(target.item)
                    && let Some(stored) = asked.stored(&fetched, target.psize)
                {
                    let decoded = self.decode(&target.bp, stored, ctx).await;
                    decoding.note(target.item, &decoded);
                }
            } else {
                match self.examine_closely(&vdevs, &asked.map, &check, &target).await {
                    Ok(recovered) => {
                        examined.findings.extend(findings(&vdevs, &target, &recovered));
                        if heals {
                            let (inside, birth) = (inside.clone(), target.bp.physical_birth());
                            examined.healed.add(self.write_truth(recovered.faults, birth, inside).await);
                        }
                    }
                    Err(_) => examined.lost.push(target),
                }
            }
        }
        examined
    }

    /// The pool may have changed meanwhile: damage must show twice.
    async fn examine_closely(
        &self,
        vdevs: &VdevTree,
        map: &BlockMap,
        check: &Check<'_>,
        target: &Target,
    ) -> Result<Recovered, CopyError> {
        let ctx = ReadContext::new(target.place);
        let first = recover(self, vdevs, map, target.psize, check, &ctx).await;
        if first.is_err() && self.may_be_live() {
            recover(self, vdevs, map, target.psize, check, &ctx).await
        } else {
            first
        }
    }
}

fn findings(vdevs: &VdevTree, target: &Target, recovered: &Recovered) -> Vec<Finding> {
    let whole = target.finding(Fault::Checksum);
    // A leaf being resilvered lacks data; that is not damage.
    let is_damage = |fault: &&ColumnFault| !fault.was_lagging && !vdevs.is_lagging(&fault.leaf);
    let faults = recovered.faults.iter().filter(is_damage);
    let finding = |fault: &ColumnFault| Finding {
        leaf: Some(fault.leaf.guid),
        offset_bytes: fault.offset_bytes,
        len_bytes: fault.len as u64,
        fault: match fault.kind {
            FaultKind::Unreadable => Fault::Unreadable,
            FaultKind::WrongData => Fault::Checksum,
            FaultKind::WrongParity => Fault::Parity,
        },
        ..whole.clone()
    };
    faults.map(finding).collect()
}

fn ask(vdevs: &VdevTree, extents: &mut Extents, target: &Target) -> Option<Asked> {
    let map = vdevs.map(&target.dva, target.psize, target.bp.physical_birth()).ok()?;
    let mut incomplete = false;
    let mut tickets = Vec::with_capacity(map.rows.len());
    for row in &map.rows {
        let mut columns = Vec::with_capacity(row.columns.len());
        for (index, column) in row.columns.iter().enumerate() {
            let leaves = vdevs.leaves_of(row, column, map.birth);
            incomplete |= leaves.is_empty() && index >= row.parity && column.len > 0;
            let want = |leaf| extents.want(leaf, column.offset_bytes, column.len);
            columns.push(leaves.iter().map(want).collect());
        }
        tickets.push(columns);
    }
    Some(Asked { map, tickets, incomplete })
}

impl Asked {
    fn is_right(&self, fetched: &Fetched, check: &Check<'_>, psize: usize, scratch: &mut Vec<u8>) -> bool {
        if self.incomplete {
            return false;
        }
        let Some(rows) = self.rows(fetched) else { return false };
        if !self.checksum_is_right(&rows, check, psize, scratch) {
            return false;
        }
        self.map.rows.iter().zip(&rows).all(|(row, columns)| parity_is_right(row, columns))
    }

    /// All that was read; `None` if leaves differ.
    fn rows<'a>(&self, fetched: &'a Fetched) -> Option<Vec<Vec<Option<&'a [u8]>>>> {
        let rows = self.map.rows.iter().zip(&self.tickets);
        rows.map(|(row, tickets)| columns(row, tickets, fetched)).collect()
    }

    /// A copy of the block.
    fn stored(&self, fetched: &Fetched, psize: usize) -> Option<Bytes> {
        let mut stored = Vec::new();
        self.gather(&self.rows(fetched)?, &mut stored);
        stored.truncate(psize);
        Some(stored.into())
    }

    /// Puts the data columns in order.
    fn gather(&self, rows: &[Vec<Option<&[u8]>>], data: &mut Vec<u8>) {
        data.clear();
        data.resize(self.map.data_bytes, 0);
        for (row, columns) in self.map.rows.iter().zip(rows) {
            for (column, bytes) in row.data().iter().zip(&columns[row.parity..]) {
                let bytes = bytes.unwrap_or_default();
                data[column.data_at..column.data_at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    fn checksum_is_right(
        &self,
        rows: &[Vec<Option<&[u8]>>],
        check: &Check<'_>,
        psize: usize,
        scratch: &mut Vec<u8>,
    ) -> bool {
        if let ([row], [columns]) = (&self.map.rows[..], rows) {
            let mut left = psize;
            let mut parts = Vec::with_capacity(columns.len());
            // The data columns of a single row are in the block's order; the last may be padded to a sector.
            for column in columns[row.parity..].iter().flatten() {
                let len = column.len().min(left);
                parts.push(&column[..len]);
                left -= len;
            }
            return check.verify_parts(&parts, scratch);
        }
        self.gather(rows, scratch);
        check.verify(&scratch[..psize]).is_ok()
    }
}

/// `None` if leaves differ; a column without leaves is `None`.
fn columns<'a>(row: &Row, tickets: &[Vec<Ticket>], fetched: &'a Fetched) -> Option<Vec<Option<&'a [u8]>>> {
    let mut columns = Vec::with_capacity(row.columns.len());
    for leaves in tickets {
        let Some((first, others)) = leaves.split_first() else {
            columns.push(None);
            continue;
        };
        let bytes = fetched.slice(*first)?;
        if others.iter().any(|other| fetched.slice(*other) != Some(bytes)) {
            return None;
        }
        columns.push(Some(bytes));
    }
    Some(columns)
}

fn parity_is_right(row: &Row, columns: &[Option<&[u8]>]) -> bool {
    if row.parity == 0 {
        return true;
    }
    let (parity, data) = columns.split_at(row.parity);
    let data: Vec<&[u8]> = data.iter().map(|column| column.unwrap_or_default()).collect();
    raidz::verify_parity(parity, &data).is_ok_and(|differs| !differs.contains(&true))
}

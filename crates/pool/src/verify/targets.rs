//! Targets: the single copies that verification examines, including gang headers and pieces.

use super::{Fault, Finding, VerifyItem};
use crate::check::Check;
use crate::context::ReadContext;
use crate::gang::MAX_GANG_DEPTH;
use crate::pool::Pool;
use crate::zbookmark::Zbookmark;
use cenote_codec::checksum::{ChecksumError, ChecksumSalt};
use cenote_format::blkptr::{Blkptr, BlkptrKind, Dva};
use cenote_format::units::SPA_MAXBLOCKSIZE;

/// One copy of a block, of a gang header or of a gang's piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(super) item: usize,
    pub(crate) place: Zbookmark,
    /// Copies with the same number hold the same bytes.
    pub(crate) block: usize,
    /// The number of these copies.
    pub(crate) copies: usize,
    pub(crate) bp: Blkptr,
    pub(crate) dva: Dva,
    pub(crate) psize: usize,
}

impl Target {
    pub(crate) fn check<'a>(&self, salt: Option<&'a ChecksumSalt>) -> Result<Check<'a>, ChecksumError> {
        match Check::gang_header(&self.bp).filter(|_| self.bp.is_gang()) {
            Some(check) => Ok(check),
            None => Check::of(&self.bp, salt),
        }
    }

    pub(crate) fn finding(&self, fault: Fault) -> Finding {
        Finding {
            item: self.item,
            place: self.place,
            vdev: self.dva.vdev,
            leaf: None,
            offset_bytes: self.dva.offset_bytes,
            len_bytes: self.dva.asize.0,
            fault,
        }
    }
}

#[derive(Default)]
struct Collected {
    targets: Vec<Target>,
    findings: Vec<Finding>,
    blocks: usize,
}

impl Pool {
    /// All copies, and findings for gangs whose header leads nowhere.
    pub(crate) async fn targets(&self, items: &[VerifyItem]) -> (Vec<Target>, Vec<Finding>) {
        let mut collected = Collected::default();
        for (index, item) in items.iter().enumerate() {
            let mut pointers = vec![(item.bp, 0)];
            while let Some((bp, depth)) = pointers.pop() {
                let psize = match bp.is_gang() {
                    true => self.tree().vdevs().gang_header_bytes(bp.dvas()) as u64,
                    false => bp.psize().0,
                };
                collected.add_copies(index, item.place, &bp, psize);
                if bp.kind() == BlkptrKind::Normal && bp.is_gang() && depth < MAX_GANG_DEPTH {
                    let ctx = ReadContext::new(item.place);
                    match self.as_stored().gang_header(&bp, &ctx).await {
                        Ok(header) if header.fits(bp.psize().0) => {
                            pointers.extend(header.pieces().map(|piece| (*piece, depth + 1)));
                        }
                        Ok(_) => collected.lose(),
                        // A header that can't be read is reported through its copies.
                        Err(_) => {}
                    }
                }
            }
        }
        (collected.targets, collected.findings)
    }
}

impl Collected {
    /// Adds a finding for an invalid header, though its copies may match their checksums.
    fn lose(&mut self) {
        self.findings.extend(self.targets.last().map(|target| target.finding(Fault::Lost)));
    }

    /// `psize` is the length of a copy.
    fn add_copies(&mut self, item: usize, place: Zbookmark, bp: &Blkptr, psize: u64) {
        if bp.kind() != BlkptrKind::Normal {
            return;
        }
        let (block, copies) = (self.blocks, bp.dvas().count());
        self.blocks += 1;
        for dva in bp.dvas() {
            let target = Target {
                item,
                place,
                block,
                copies,
                bp: *bp,
                dva,
                psize: psize.min(SPA_MAXBLOCKSIZE) as usize,
            };
            if psize > SPA_MAXBLOCKSIZE {
                self.findings.push(target.finding(Fault::Lost));
            } else {
                self.targets.push(target);
            }
        }
    }
}

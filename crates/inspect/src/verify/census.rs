//! Registers every block pointer: counts it, detects repeated blocks, records their extents, and queues
//! blocks for verification.

use cenote_dataset::Mos;
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::gang::SPA_OLD_GANGBLOCKSIZE;
use cenote_format::units::Asize;
use cenote_object::Result;
use cenote_pool::{MAX_GANG_DEPTH, Pool, ReadContext, VerifyItem, Zbookmark};

use super::counts::{Counter, Under};
use super::extent::{Extent, ExtentSet};
use super::sharing::{Occurrence, Sharing};

/// Most invalid addresses kept; the rest are only counted.
const KEPT_BAD_ADDRESSES: usize = 10_000;

pub(super) struct Census {
    pool: Pool,
    metaslab_shifts: Vec<u32>,
    sharing: Sharing,
    pub(super) counter: Counter,
    /// The referenced space, if to be compared.
    pub(super) referenced: Option<ExtentSet>,
    /// Blocks to verify next.
    pub(super) window: Vec<VerifyItem>,
    /// Gang blocks whose constituents are not looked up yet, with their nesting depth.
    gangs: Vec<(Blkptr, Zbookmark, u32)>,
    /// Invalid addresses: the first [`KEPT_BAD_ADDRESSES`].
    pub(super) bad_addresses: Vec<(Zbookmark, String)>,
    /// The number of further ones.
    pub(super) more_bad_addresses: u64,
}

impl Census {
    /// An empty register.
    ///
    /// # Errors
    /// A table of shared blocks is damaged.
    pub(super) async fn open(mos: &Mos, compare_space: bool) -> Result<Census> {
        Ok(Census {
            pool: mos.pool().clone(),
            metaslab_shifts: mos.pool_config().vdevs.iter().map(|top| top.metaslab_shift).collect(),
            sharing: Sharing::load(mos).await?,
            counter: Counter::default(),
            referenced: compare_space.then(ExtentSet::default),
            window: Vec::new(),
            gangs: Vec::new(),
            bad_addresses: Vec::new(),
            more_bad_addresses: 0,
        })
    }

    /// Enters a pointer; with `verify`, its block is read (if this is the first pointer to it).
    pub(super) fn enter(&mut self, bp: Blkptr, place: Zbookmark, under: Under, verify: bool) {
        let bp = if bp.is_embedded() { bp } else { self.sharing.widen(bp) };
        let shifts = &self.metaslab_shifts;
        self.counter.add(&bp, under, |vdev| shifts.get(vdev as usize).copied().unwrap_or(63));
        if bp.is_embedded() {
            return;
        }
        match self.sharing.meet(&bp) {
            Occurrence::First => {}
            Occurrence::Deduped => return self.counter.deduped.add(bp.asize().0),
            Occurrence::Cloned => return self.counter.cloned.add(bp.asize().0),
        }
        if verify {
            self.window.push(VerifyItem { bp, place });
        }
        self.claim(bp, place);
    }

    /// Adds the space of deduplicated blocks that lost their last reference; they no longer count as blocks.
    pub(super) fn claim_unreferenced(&mut self) {
        for bp in std::mem::take(&mut self.sharing.unreferenced) {
            self.claim(bp, Zbookmark::default());
        }
    }

    /// Adds the space of copies without references, which the removal of a vdev makes.
    pub(super) fn claim_copies(&mut self, copies: &[Dva]) {
        copies.iter().for_each(|copy| self.refer(copy, copy.asize.0, Zbookmark::default()));
    }

    fn claim(&mut self, bp: Blkptr, place: Zbookmark) {
        match bp.is_gang() {
            _ if self.referenced.is_none() => {}
            true => self.gangs.push((bp, place, 0)),
            false => bp.dvas().for_each(|dva| self.refer(&dva, dva.asize.0, place)),
        }
    }

    /// Looks up the constituents of the gang blocks met so far.
    pub(super) async fn open_gangs(&mut self) {
        while let Some((bp, place, depth)) = self.gangs.pop() {
            for dva in bp.dvas() {
                let vdevs = self.pool.tree().vdevs();
                let header =
                    vdevs.psize_to_asize(dva.vdev, SPA_OLD_GANGBLOCKSIZE as u64, bp.physical_birth());
                self.refer(&dva, header.unwrap_or(dva.asize.0), place);
            }
            if depth == MAX_GANG_DEPTH {
                self.complain(place, "gang blocks are nested too deeply".into());
                continue;
            }
            // Without a valid header, verification reports the block as lost.
            let header = match self.pool.as_stored().gang_header(&bp, &ReadContext::new(place)).await {
                Ok(header) if header.fits(bp.psize().0) => header,
                _ => continue,
            };
            for piece in header.pieces() {
                if piece.is_gang() {
                    self.gangs.push((*piece, place, depth + 1));
                } else {
                    piece.dvas().for_each(|dva| self.refer(&dva, dva.asize.0, place));
                }
            }
        }
    }

    fn refer(&mut self, dva: &Dva, len_bytes: u64, place: Zbookmark) {
        let Some(referenced) = &mut self.referenced else { return };
        let range = Dva { asize: Asize(len_bytes), ..*dva };
        let places = self.pool.tree().vdevs().resolve(&range).unwrap_or_default();
        let fits = !places.is_empty()
            && places.iter().all(|p| referenced.insert(Extent::new(p.vdev, p.offset_bytes, p.asize.0)));
        if !fits {
            let why = format!("{}:{:x}:{:x}", dva.vdev, dva.offset_bytes, dva.asize.0);
            self.complain(place, why);
        }
    }

    fn complain(&mut self, place: Zbookmark, why: String) {
        match self.bad_addresses.len() < KEPT_BAD_ADDRESSES {
            true => self.bad_addresses.push((place, why)),
            false => self.more_bad_addresses += 1,
        }
    }
}

//! An image of a Ceph cluster (RBD), as a device.
//!
//! ```text
//!   RbdDevice    operations, in turn if they overlap; the watch over the lock     this module
//!   lock         takes the exclusive lock, and fences its old owner               lock, holder
//!   Image        calls of the library                                             image, library
//! ```
//!
//! Idea: Ceph repeats requests by itself if an OSD fails, so a lost OSD is a delay. This module is about the
//! lock. A writable image is opened with it, and never gives it up. If another machine breaks it, Ceph
//! refuses all that this client sends, also requests still under way. The first such refusal, or a look at
//! the lock every half a second, makes the device [`Fenced`](DeviceError::Fenced) for good, and the pool
//! stops.
//!
//! Trust: as with any disk, the cluster sees and may change all data; checksums detect changes.
//!
//! Locking: one mutex for the ears of a loss, held for one look or change.

mod error;
mod holder;
mod image;
mod library;
mod lock;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote_device::place::RbdPlace;
use cenote_device::{
    Access, Device, DeviceError, DeviceInfo, Distance, Io, Nature, Op, OpenOptions, Order, Place, Position,
    StorageLock, TellFenced,
};
use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::claim::Claim;
use crate::closing::Closing;
pub use error::RbdError;
use error::is_fenced;
use image::{Answer, Ask, Image};
use lock::NotTaken;

/// Time for opening an image: Ceph itself would wait for ever.
const OPEN: Duration = Duration::from_secs(25);
/// Neighbouring operations are joined up to this size.
const BEST_IO_BYTES: u64 = 1 << 20;
/// BlueStore's smallest allocation.
const SECTOR_BYTES: u32 = 4096;
/// Ceph gives up a silent OSD after 20 s, and then a copy must take over.
const DEADLINE: Duration = Duration::from_secs(90);
/// Interval of looks at the lock.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Why the image is fenced.
const LOST: &str = "another client has broken the lock of the RBD image";

/// An image of a Ceph cluster.
pub struct RbdDevice {
    info: DeviceInfo,
    link: Arc<Link>,
}

/// An image in use.
struct Open {
    image: Image,
    // After the image: it is free once that is closed.
    _claim: Option<Claim>,
}

/// The image, while a device or an operation needs it.
struct Link {
    /// `None` once closing.
    open: Option<Arc<Open>>,
    runtime: Runtime,
    order: Order,
    is_writable: bool,
    is_lost: AtomicBool,
    tell: Mutex<Vec<TellFenced>>,
}

/// Opens an image; for writing, under its lock.
///
/// # Errors
/// [`DeviceError::Locked`]: another client has its lock. [`DeviceError::Open`]: no library, cluster or image.
pub(crate) async fn open(
    place: &Place,
    rbd: &RbdPlace,
    options: OpenOptions,
    runtime: &Runtime,
) -> Result<Arc<dyn Device>, DeviceError> {
    let name: Arc<str> = place.to_string().into();
    let failed =
        |error: RbdError| DeviceError::Open { path: name.clone(), source: Arc::new(io::Error::other(error)) };
    let is_writable = options.access != Access::ReadOnly;
    let claim = if is_writable { Some(Claim::take(place, runtime).await?) } else { None };
    let rbd = rbd.clone();
    // If it comes too late, it is closed there.
    let opening = runtime.blocking(move || -> Result<(Open, Facts), NotTaken> {
        let image = Image::open(&rbd, !is_writable).map_err(NotTaken::Error)?;
        let open = Open { image, _claim: claim };
        if is_writable {
            lock::take(&open.image, options.takes_over)?;
        }
        let facts = Facts::of(&open.image).map_err(NotTaken::Error)?;
        Ok((open, facts))
    });
    let opened = runtime.timeout(OPEN, opening).await;
    let opened = opened.unwrap_or(Err(NotTaken::Error(RbdError::Silent(OPEN.as_secs()))));
    let (open, facts) = opened.map_err(|error| match error {
        NotTaken::Held(holder) => DeviceError::Locked { path: name.clone(), holder: holder.into() },
        NotTaken::Error(error) => failed(error),
    })?;
    let info = facts.info(&name, place, is_writable);
    Ok(Arc::new(RbdDevice { info, link: Link::new(open, is_writable, runtime) }))
}

/// Facts about an image, from the cluster.
struct Facts {
    size_bytes: u64,
    has_lock: bool,
    cluster: String,
    demands_keys: bool,
}

impl Facts {
    fn of(image: &Image) -> Result<Facts, RbdError> {
        let failed = |what| move |source| RbdError::Call { what, source };
        Ok(Facts {
            size_bytes: image.size_bytes().map_err(failed("cannot read the image's size"))?,
            has_lock: image.has_lock_feature().map_err(failed("cannot read the image's features"))?,
            cluster: image.fsid().unwrap_or_default(),
            demands_keys: image.demands_keys(),
        })
    }

    fn info(self, name: &Arc<str>, place: &Place, is_writable: bool) -> DeviceInfo {
        let storage_lock = match (is_writable, self.has_lock) {
            (true, _) => StorageLock::Held,
            (false, true) => StorageLock::Offered,
            (false, false) => StorageLock::None,
        };
        DeviceInfo {
            path: name.clone(),
            size_bytes: self.size_bytes,
            sector_bytes: SECTOR_BYTES,
            rotational: None,
            read_only: !is_writable,
            others_may_write: !self.demands_keys,
            nature: Nature {
                address: Some(place.clone().into()),
                domain: Some(self.cluster.into()),
                distance: Distance::Network,
                best_io_bytes: BEST_IO_BYTES,
                deadline: DEADLINE,
                storage_lock,
            },
        }
    }
}

impl Link {
    fn new(open: Open, is_writable: bool, runtime: &Runtime) -> Arc<Link> {
        let (order, is_lost, tell) = Default::default();
        let (open, runtime) = (Some(Arc::new(open)), runtime.clone());
        let link = Arc::new(Link { open, runtime, order, is_writable, is_lost, tell });
        if is_writable {
            let weak = Arc::downgrade(&link);
            let runtime = link.runtime.clone();
            let watching = async move {
                loop {
                    runtime.sleep(LOOK_INTERVAL).await;
                    let Some(open) = weak.upgrade().and_then(|link| link.open.clone()) else { return };
                    let owner = runtime.blocking(move || open.image.is_owner()).await;
                    let is_lost = owner.map_or_else(|error| is_fenced(&error), |is_owner| !is_owner);
                    if is_lost {
                        weak.upgrade().into_iter().for_each(|link| link.lose());
                        return;
                    }
                }
            };
            link.runtime.spawn(watching).detach();
        }
        link
    }

    fn begin(&self, ask: Ask) -> Answer {
        match &self.open {
            Some(open) => open.image.begin(ask),
            // Its sender is gone, which is an error.
            None => futures::channel::oneshot::channel().1,
        }
    }

    /// The lock is lost, for good.
    fn lose(&self) {
        if self.is_writable && !self.is_lost.swap(true, Ordering::AcqRel) {
            self.tell.lock().iter().for_each(|tell| tell(LOST));
        }
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let (open, closing) = (self.open.take(), Closing::begin());
        self.runtime.start_blocking(move || drop((open, closing)));
    }
}

/// Where an operation is, for its error.
#[derive(Clone, Copy)]
struct Range {
    op: Op,
    offset: u64,
    len: u64,
}

impl RbdDevice {
    /// An answer's data, or an error of the device.
    async fn told(
        link: &Link,
        info: &DeviceInfo,
        range: Range,
        answer: Answer,
    ) -> Result<Bytes, DeviceError> {
        let answered = answer.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        answered.map_err(|error| {
            if link.is_writable && is_fenced(&error) {
                link.lose();
            }
            match link.is_lost() {
                true => DeviceError::Fenced { path: info.path.clone(), op: range.op, why: LOST.into() },
                false => info.io_error(range.op, range.offset, range.len, error),
            }
        })
    }

    fn check_ours(&self, op: Op) -> Result<(), DeviceError> {
        match self.link.is_lost() {
            true => Err(DeviceError::Fenced { path: self.info.path.clone(), op, why: LOST.into() }),
            false => Ok(()),
        }
    }

    fn operate(&self, range: Range, ask: Ask) -> Io<Bytes> {
        let answer = self.link.begin(ask);
        let (link, info) = (self.link.clone(), self.info.clone());
        Io::pending(&self.link.runtime, async move { RbdDevice::told(&link, &info, range, answer).await })
    }

    /// A change in its turn among overlapping ones.
    fn change(&self, range: Range, ask: Ask) -> Io<()> {
        let checked = self.info.check_writable(range.op, range.offset, range.len);
        if let Err(error) = checked.and_then(|()| self.check_ours(range.op)) {
            return Io::done(Err(error));
        }
        if range.len == 0 {
            return Io::done(Ok(()));
        }
        let sent = match self.link.order.enter(range.offset, range.len) {
            Position::First(turn) => Ok((turn, self.link.begin(ask))),
            behind => Err((behind, ask)),
        };
        let (link, info) = (self.link.clone(), self.info.clone());
        Io::pending(&self.link.runtime, async move {
            let (turn, answer) = match sent {
                Ok(sent) => sent,
                Err((behind, ask)) => {
                    let turn = behind.turn().await;
                    let answer = link.begin(ask);
                    (turn, answer)
                }
            };
            let done = RbdDevice::told(&link, &info, range, answer).await;
            drop(turn);
            done.map(drop)
        })
    }
}

impl Device for RbdDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        let range = Range { op: Op::Read, offset, len: len as u64 };
        let checked = self.info.check_range(Op::Read, offset, len as u64);
        if let Err(error) = checked.and_then(|()| self.check_ours(Op::Read)) {
            return Io::done(Err(error));
        }
        match len {
            0 => Io::done(Ok(Bytes::new())),
            _ => self.operate(range, Ask::Read { offset, len }),
        }
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.write_pieces(offset, vec![data])
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.write_pieces(offset, vec![data])
    }

    fn write_pieces(&self, offset: u64, mut pieces: Vec<Bytes>) -> Io<()> {
        pieces.retain(|piece| !piece.is_empty());
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.change(Range { op: Op::Write, offset, len }, Ask::Write { offset, pieces })
    }

    fn flush(&self) -> Io<()> {
        if let Err(error) = self.check_ours(Op::Flush) {
            return Io::done(Err(error));
        }
        self.operate(Range { op: Op::Flush, offset: 0, len: 0 }, Ask::Flush).map(|done| done.map(drop))
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.change(Range { op: Op::Discard, offset, len }, Ask::Discard { offset, len })
    }

    fn size_now(&self) -> Io<u64> {
        let (info, open, runtime) = (self.info.clone(), self.link.open.clone(), self.link.runtime.clone());
        Io::pending(&self.link.runtime, async move {
            let size = runtime.blocking(move || match open {
                Some(open) => open.image.size_bytes(),
                None => Err(io::ErrorKind::NotConnected.into()),
            });
            size.await.map_err(|error| info.io_error(Op::Read, 0, 0, error))
        })
    }

    fn grown(&self) -> Io<Option<Arc<dyn Device>>> {
        let (info, link) = (self.info.clone(), self.link.clone());
        self.size_now().map(move |size| {
            let size_bytes = size?;
            let is_larger = size_bytes > info.size_bytes;
            let grown = || RbdDevice { info: DeviceInfo { size_bytes, ..info }, link };
            Ok(is_larger.then(|| Arc::new(grown()) as Arc<dyn Device>))
        })
    }

    fn on_fenced(&self, tell: TellFenced) {
        let mut all = self.link.tell.lock();
        if self.link.is_lost() {
            tell(LOST);
        }
        all.push(tell);
    }
}

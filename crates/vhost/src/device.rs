//! A connection: a virtual machine uses a disk.
//!
//! Threads: the library has one for the socket and one for all queues. The latter calls `handle_event`, which
//! only takes requests from a ring. `stop_vring` waits until they are answered; then the rings are the
//! guest's alone.
//!
//! A guest that breaks the ring rules is disconnected. An index ahead of the ring would never be reached, and
//! requests offered again before their answers would be unbounded.
//!
//! Locking: a ring is locked to take requests or to add an answer, never across a wait.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use cenote_disk::{Disk, Failure, Limits, Share};
use cenote_runtime::Runtime;
use futures::FutureExt;
use parking_lot::{Condvar, Mutex};
use vhost::vhost_user::Listener;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user_backend::{ShutdownHandle, VhostUserBackend, VhostUserDaemon, VringMutex, VringT};
use virtio_queue::{DescriptorChain, QueueOwnedT, QueueT};
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};

use crate::forgotten;
use crate::lost::Watched;
use crate::request::{
    DATA_BYTES_MAX, HEADER_BYTES, QUEUE_SIZE, QUEUES, Request, Status, config, features, range, segments,
};

const ID_BYTES: usize = 20;

type Memory = Arc<GuestMemoryMmap>;
type Chain = DescriptorChain<Memory>;
type Ring = VringMutex<GuestMemoryAtomic<GuestMemoryMmap>>;

/// A connected virtual machine.
pub struct Connection(VhostUserDaemon<Shared>);

/// Ends a connection.
pub struct Disconnect(Option<ShutdownHandle>);

impl Disconnect {
    /// Ends the connection.
    pub fn disconnect(&self) {
        if let Some(handle) = &self.0 {
            handle.shutdown();
        }
    }
}

impl Connection {
    /// Accepts a client for a disk. `serial`: ASCII, cut to 20 characters.
    ///
    /// # Errors
    /// Out of descriptors or threads.
    pub fn accept(
        listener: UnixListener,
        disk: Arc<dyn Disk>,
        serial: &str,
        runtime: &Runtime,
        limits: &Limits,
    ) -> io::Result<Connection> {
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let device = Device::new(disk, serial, memory.clone(), runtime, limits);
        let daemon = VhostUserDaemon::new("vhost-user".into(), Shared(device.clone()), memory);
        let mut daemon = daemon.map_err(|error| io::Error::other(error.to_string()))?;
        let started = daemon.start(&mut Listener::from(listener));
        started.map_err(|error| io::Error::other(error.to_string()))?;
        if let Some(end) = daemon.shutdown_handle() {
            device.end.get_or_init(|| end);
        }
        Ok(Connection(daemon))
    }

    /// Handle to end it.
    pub fn disconnect(&self) -> Disconnect {
        Disconnect(self.0.shutdown_handle())
    }

    /// Blocks until the connection ends.
    pub fn wait(mut self) {
        // Its cause does not matter.
        self.0.wait().ok();
    }
}

/// One queue without a socket, on memory of this process (for fuzzing and simulations).
pub struct LoneQueue(Shared, Ring);

impl LoneQueue {
    /// Creates a queue with these addresses of its descriptor table, available ring and used ring; `None` if
    /// a guest could not have it.
    pub fn new(
        memory: GuestMemoryMmap,
        size: u16,
        has_event_indexes: bool,
        [descriptors, available, used]: [u64; 3],
        disk: Arc<dyn Disk>,
        runtime: &Runtime,
        limits: &Limits,
    ) -> Option<LoneQueue> {
        let memory = GuestMemoryAtomic::new(memory);
        let ring = Ring::new(memory.clone(), QUEUE_SIZE).ok()?;
        ring.set_queue_size(size);
        ring.set_queue_info(descriptors, available, used).ok()?;
        ring.set_queue_event_idx(has_event_indexes);
        ring.set_queue_ready(true);
        let shared = Shared(Device::new(disk, "lone", memory.clone(), runtime, limits));
        shared.update_memory(memory).ok()?;
        Some(LoneQueue(shared, ring))
    }

    /// Kicks the queue.
    pub fn kick(&self) {
        self.0.handle_event(0, EventSet::IN, std::slice::from_ref(&self.1), 0).ok();
    }

    /// Unanswered requests.
    pub fn under_way(&self) -> usize {
        self.0.queues.lock()[0].under_way
    }
}

struct Device {
    disk: Arc<dyn Disk>,
    id: [u8; ID_BYTES],
    memory: GuestMemoryAtomic<GuestMemoryMmap>,
    runtime: Runtime,
    limits: Limits,
    share: Share,
    queues: Mutex<[Taken; QUEUES as usize]>,
    answered: Condvar,
    /// Guest memory: current, and former while in use.
    watched: Mutex<Vec<Watched>>,
    /// Set once the connection exists.
    end: OnceLock<ShutdownHandle>,
    /// The descriptor that the library leaks.
    forgotten: OnceLock<OwnedFd>,
}

#[derive(Default)]
struct Taken {
    under_way: usize,
    /// Heads of unanswered requests.
    heads: BTreeSet<u16>,
}

/// Ring rules broken, or memory lost.
struct Broken;

/// Counts a request until dropped.
struct UnderWay(Arc<Device>, usize);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.queues.lock()[self.1].under_way -= 1;
        self.0.answered.notify_all();
    }
}

/// The device, as shared with the library.
#[derive(Clone)]
struct Shared(Arc<Device>);

impl Deref for Shared {
    type Target = Device;
    fn deref(&self) -> &Device {
        &self.0
    }
}

impl VhostUserBackend for Shared {
    type Bitmap = ();
    type Vring = Ring;

    fn num_queues(&self) -> usize {
        QUEUES.into()
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE.into()
    }

    fn features(&self) -> u64 {
        features(&*self.disk)
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
    }

    fn set_event_idx(&self, _: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut config = config(&*self.disk);
        let end = (offset as usize).saturating_add(size as usize);
        // Unknown fields read as zero.
        config.resize(config.len().max(end.min(4096)), 0);
        config.get(offset as usize..end).map(<[u8]>::to_vec).unwrap_or_default()
    }

    fn update_memory(&self, memory: GuestMemoryAtomic<GuestMemoryMmap>) -> io::Result<()> {
        let watched = Watched::new(memory.memory().into_inner())?;
        let mut all = self.watched.lock();
        all.retain(|before| !before.is_left());
        all.push(watched);
        Ok(())
    }

    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        let event = new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()?;
        self.forgotten.get_or_init(|| forgotten::owned(&event.0));
        Some(event)
    }

    fn stop_vring(&self, queue: u32) -> io::Result<()> {
        let mut queues = self.queues.lock();
        while queues.get(queue as usize).is_some_and(|taken| taken.under_way > 0) {
            self.answered.wait(&mut queues);
        }
        Ok(())
    }

    fn handle_event(&self, queue: u16, _: EventSet, rings: &[Ring], _: usize) -> io::Result<()> {
        let Some(ring) = rings.get(usize::from(queue)) else { return Ok(()) };
        let mut is_announced = false;
        loop {
            ring.disable_notification().ok();
            match self.take(queue.into(), ring) {
                Ok(0) if is_announced => break,
                Ok(_) => {}
                Err(Broken) => break,
            }
            is_announced = ring.enable_notification().unwrap_or(false);
            if !is_announced {
                return Ok(());
            }
        }
        if let Some(end) = self.end.get() {
            end.shutdown();
        }
        Ok(())
    }
}

impl Shared {
    /// Takes waiting requests. Returns their number.
    fn take(&self, queue: usize, ring: &Ring) -> Result<usize, Broken> {
        let memory: Memory = self.memory.memory().into_inner();
        let mut count = 0;
        loop {
            let (next, size) = {
                let mut ring = ring.get_mut();
                let queue = ring.get_queue_mut();
                let next = queue.iter(memory.clone()).map_err(|_| Broken)?.next();
                (next, queue.size())
            };
            if self.has_lost_memory() {
                return Err(Broken);
            }
            let Some(chain) = next else { return Ok(count) };
            count += 1;
            {
                let mut queues = self.queues.lock();
                let taken = &mut queues[queue];
                if chain.head_index() >= size || !taken.heads.insert(chain.head_index()) {
                    return Err(Broken);
                }
                taken.under_way += 1;
            }
            let under_way = UnderWay(self.0.clone(), queue);
            let ring = ring.clone();
            let answering = async move {
                let device = &under_way.0;
                let written = device.answer(&chain).await;
                // Once answered, the guest may offer it again.
                device.queues.lock()[queue].heads.remove(&chain.head_index());
                if ring.add_used(chain.head_index(), written).is_ok()
                    && ring.needs_notification().unwrap_or(true)
                {
                    ring.signal_used_queue().ok();
                }
            };
            self.runtime.spawn(answering).detach();
        }
    }
}

impl Device {
    fn new(
        disk: Arc<dyn Disk>,
        serial: &str,
        memory: GuestMemoryAtomic<GuestMemoryMmap>,
        runtime: &Runtime,
        limits: &Limits,
    ) -> Arc<Device> {
        let mut id = [0; ID_BYTES];
        id.iter_mut().zip(serial.bytes()).for_each(|(to, byte)| *to = byte);
        Arc::new(Device {
            disk,
            id,
            memory,
            runtime: runtime.clone(),
            limits: limits.clone(),
            share: limits.share(None),
            queues: Mutex::default(),
            answered: Condvar::new(),
            watched: Mutex::default(),
            end: OnceLock::new(),
            forgotten: OnceLock::new(),
        })
    }

    fn has_lost_memory(&self) -> bool {
        self.watched.lock().iter().any(Watched::is_lost)
    }

    /// Executes a request. Returns the bytes written to the guest.
    async fn answer(&self, chain: &Chain) -> u32 {
        let Ok((request, brings, takes)) = outline(chain) else { return 0 };
        let permits = self.limits.take(&self.share, (brings + takes).min(DATA_BYTES_MAX) as u32).await;
        let (data, status) = match permits {
            Some(_) if brings.max(takes) <= DATA_BYTES_MAX => {
                // A panic in the engine must not leave the guest waiting.
                let work =
                    std::panic::AssertUnwindSafe(self.work(chain, request, brings, takes)).catch_unwind();
                match work.await.unwrap_or(Err(Status::IoError)) {
                    Ok(data) => (data, Status::Ok),
                    Err(status) => (Bytes::new(), status),
                }
            }
            _ => (Bytes::new(), Status::IoError),
        };
        reply(chain, takes, &data, status).unwrap_or(0)
    }

    async fn work(
        &self,
        chain: &Chain,
        request: Request,
        brings: usize,
        takes: usize,
    ) -> Result<Bytes, Status> {
        let disk = &*self.disk;
        let within = |offset, len: usize| range(disk, offset, len as u64).ok_or(Status::IoError);
        let told = |_: Failure| Status::IoError;
        let is_change = matches!(request, Request::Write(_) | Request::Discard | Request::Zero);
        if is_change && disk.is_read_only() {
            return Err(Status::IoError);
        }
        match request {
            Request::Read(offset) => match within(offset, takes)? {
                range if range.is_empty() => Ok(Bytes::new()),
                range => disk.read(range).await.map_err(told),
            },
            Request::Write(offset) => {
                let range = within(offset, brings)?;
                if !range.is_empty() {
                    let data = payload(chain, brings)?;
                    if self.has_lost_memory() {
                        // The data may be zeros in place of lost memory.
                        return Err(Status::IoError);
                    }
                    disk.write(range.start, data).await.map_err(told)?;
                }
                Ok(Bytes::new())
            }
            Request::Flush => disk.flush().await.map(|()| Bytes::new()).map_err(told),
            Request::Id => Ok(Bytes::copy_from_slice(&self.id[..takes.min(ID_BYTES)])),
            Request::Discard | Request::Zero => {
                let all = segments(disk, &payload(chain, brings)?).ok_or(Status::IoError)?;
                for range in all.into_iter().filter(|range| !range.is_empty()) {
                    match request {
                        Request::Zero => disk.zero(range).await.map_err(told)?,
                        _ => disk.trim(range).await.map_err(told)?,
                    }
                }
                Ok(Bytes::new())
            }
            Request::Unknown => Err(Status::Unsupported),
        }
    }
}

/// Parses a request. Returns it with the bytes to write, and the room for data read.
fn outline(chain: &Chain) -> io::Result<(Request, usize, usize)> {
    let wrong = |_| io::Error::from(io::ErrorKind::InvalidData);
    let mut reader = chain.clone().reader(chain.memory()).map_err(wrong)?;
    let writer = chain.clone().writer(chain.memory()).map_err(wrong)?;
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header)?;
    let takes = writer.available_bytes().checked_sub(1).ok_or(io::ErrorKind::InvalidData)?;
    Ok((Request::parse(&header), reader.available_bytes(), takes))
}

fn payload(chain: &Chain, bytes: usize) -> Result<Bytes, Status> {
    let mut reader = chain.clone().reader(chain.memory()).map_err(|_| Status::IoError)?;
    let mut data = vec![0; HEADER_BYTES + bytes];
    reader.read_exact(&mut data).map_err(|_| Status::IoError)?;
    Ok(Bytes::from(data).slice(HEADER_BYTES..))
}

/// Writes data and status. Returns the bytes written.
fn reply(chain: &Chain, takes: usize, data: &[u8], status: Status) -> io::Result<u32> {
    let wrong = |_| io::Error::from(io::ErrorKind::InvalidData);
    let mut writer = chain.clone().writer(chain.memory()).map_err(wrong)?;
    let mut last = writer.split_at(takes).map_err(wrong)?;
    writer.write_all(data)?;
    last.write_all(&[status as u8])?;
    Ok(data.len() as u32 + 1)
}

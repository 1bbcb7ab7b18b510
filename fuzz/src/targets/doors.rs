//! Local interfaces: the command socket, kernel requests (FUSE), and virtual machine rings (vhost-user).
//!
//! Inputs are a client's complete side of a session:
//!
//! ```text
//!   socket  descriptors, 1: with the first bytes, plus 8 times those with the last | length, 4 | JSON
//!   fuse    requests: opcode, 1 | node, 1 | user, 1 | length of the body, 2 | body
//!   vhost   size of the queue as a power of two, 1 | flags, 1 | writes to memory: at, 4 | length, 2 | bytes
//! ```
//!
//! A node below 16 is an index into nodes from earlier replies. A request of opcode 0 is a raw message. A
//! write to memory at [`KICK`] kicks the queue instead, which ends a round.

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cenote_cache::CacheOptions;
use cenote_control::remote::Asking;
use cenote_control::{Caller, Session, table};
use cenote_dataset::{ImportOptions, import};
use cenote_disk::Limits;
use cenote_engine::Engine;
use cenote_fs::{Timestamp, replay_logs};
use cenote_host::{Atime, Files, FilesOptions};
use cenote_pool::discover_devices;
use cenote_runtime::{Runtime, SimConfig};
use cenote_serve::socket::{Asked, Attendants, Replies, Serving, answer};
use cenote_vhost::LoneQueue;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::consume;
use super::network::Ram;
use crate::forged::{POOL, devices, forge};

/// Executes no commands, and counts them.
#[derive(Default)]
struct Idle(AtomicUsize);

impl Serving for Idle {
    fn carry_out(&self, asking: Asking, asked: Asked, replies: Replies) -> u8 {
        self.0.fetch_add(1, Ordering::Relaxed);
        replies.answer(asking.request.get().as_bytes());
        consume((&asked.here.cwd, &asked.here.env, asked.here.has_screen));
        consume((&asking.keys, &asking.command, asked.files.len(), table::row(&asking.verb).is_some()));
        0
    }

    fn session(&self, _: Caller, _: String, _: bool) -> Session {
        unreachable!("only a daemon's own parts ask for it")
    }
}

/// A root client of the command socket.
pub fn socket(data: &[u8]) {
    consume(is_carried_out(data));
}

/// Sends it. Returns whether a command came of it.
pub fn is_carried_out(data: &[u8]) -> bool {
    let Some((&descriptors, said)) = data.split_first() else { return false };
    let Ok((client, server)) = UnixStream::pair() else { return false };
    let Ok(null) = std::fs::File::open("/dev/null") else { return false };
    client.set_nonblocking(true).ok();
    let send = |bytes: &[u8], descriptors: u8| {
        let descriptors = vec![null.as_fd(); descriptors.into()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&client, &[std::io::IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).ok();
    };
    let (first, rest) = said.split_at(said.len().min(4));
    send(first, descriptors % 8);
    // Data that does not fit into the socket is dropped.
    match rest.split_last() {
        Some((last, rest)) if descriptors >= 8 => {
            (&client).write_all(rest).ok();
            send(&[*last], descriptors / 8);
        }
        _ => _ = (&client).write_all(rest).ok(),
    }
    client.shutdown(Shutdown::Write).ok();
    let idle = Idle::default();
    let Ok(attendants) = Attendants::start() else { return false };
    answer(&server, &idle, &attendants).ok();
    drop(server);
    let mut answers = Vec::new();
    (&client).read_to_end(&mut answers).ok();
    consume(answers);
    idle.0.into_inner() > 0
}

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
const CACHE_BYTES: usize = 4 << 20;
/// Steps after which a run counts as endless.
const STEP_LIMIT: u64 = 5_000_000;
/// Requests per input, and nodes remembered.
const REQUESTS_MAX: usize = 64;
const NODES_MAX: usize = 16;
/// `FUSE_LOOKUP`, `SYMLINK`, `MKNOD`, `MKDIR`, `LINK`, `TMPFILE`: replies begin with a node.
const TELL_NODES: [u8; 6] = [1, 6, 8, 9, 13, 51];

/// Kernel requests to a file system of a small pool.
pub fn fuse(data: &[u8]) {
    consume(answered(data));
}

/// Runs the requests. Returns how many succeed.
pub fn answered(data: &[u8]) -> usize {
    let image = forge(&[]);
    let config = SimConfig { step_limit: STEP_LIMIT, ..SimConfig::seed(1) };
    let run = |runtime: Runtime| async move {
        let Some(found) = discover_devices(devices(image)).await.pools.pop() else { return 0 };
        let Ok(found) = found.open_for_writing(&runtime).await else { return 0 };
        let options = ImportOptions {
            cache: CacheOptions { data: true, ..CacheOptions::metadata(CACHE_BYTES) },
            ..ImportOptions::default()
        };
        let Ok(mos) = import(&runtime, &found, &options).await else { return 0 };
        let Ok(engine) = Engine::start(&mos).await else { return 0 };
        consume(replay_logs(&engine, NOW).await);
        let options = FilesOptions {
            atime: Atime::On,
            lists_snapdir: true,
            posix_acl: true,
            user_xattrs: true,
            longest_name_bytes: 255,
        };
        let Ok(files) = Files::open(&engine, &format!("{POOL}/home"), options).await else { return 0 };
        let count = answer_all(&files, data).await;
        drop(files);
        consume(engine.sync_all().await);
        count
    };
    Runtime::simulate(config, run).0
}

async fn answer_all(files: &Files, mut data: &[u8]) -> usize {
    let (mut nodes, mut count) = (vec![1_u64], 0);
    for unique in 1..=REQUESTS_MAX as u64 {
        let Some((&[opcode, node, user, low, high], rest)) = data.split_first_chunk::<5>() else { break };
        let (body, rest) = rest.split_at(rest.len().min(u16::from_le_bytes([low, high]).into()));
        data = rest;
        let node = match usize::from(node) {
            known if known < NODES_MAX => nodes[known % nodes.len()],
            other => other as u64,
        };
        let message = if opcode == 0 { body.to_vec() } else { message(opcode, unique, node, user, body) };
        let reply = cenote_fuse::answer(files, message.into()).await;
        let Some(Ok(reply)) = reply else { continue };
        count += 1;
        if let (true, Some(told)) = (TELL_NODES.contains(&opcode), reply.first_chunk::<8>())
            && nodes.len() < NODES_MAX
        {
            nodes.push(u64::from_ne_bytes(*told));
        }
    }
    count
}

/// Encodes `fuse_in_header` and a body.
fn message(opcode: u8, unique: u64, node: u64, user: u8, body: &[u8]) -> Vec<u8> {
    let mut message = (40 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(u32::from(opcode).to_ne_bytes());
    message.extend(unique.to_ne_bytes());
    message.extend(node.to_ne_bytes());
    for id in [u32::from(user), u32::from(user), 1, 0] {
        message.extend(id.to_ne_bytes());
    }
    message.extend(body);
    message
}

const GUEST_BYTES: usize = 256 << 10;
const MEMORY_BYTES: u64 = 8 << 20;
/// Addresses of descriptor table, available ring and used ring.
const RINGS: [u64; 3] = [0x1000, 0x3000, 0x4000];
/// Write address that kicks the queue instead.
const KICK: u32 = u32::MAX;
const ROUNDS_MAX: usize = 32;
/// Longer than any request.
const ROUND: Duration = Duration::from_millis(10);

/// A guest with one queue and arbitrary memory.
pub fn vhost(data: &[u8]) {
    let Some((&[size, flags], mut writes)) = data.split_first_chunk::<2>() else { return };
    let Ok(memory) = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), GUEST_BYTES)]) else { return };
    Runtime::simulate(SimConfig { step_limit: STEP_LIMIT, ..SimConfig::seed(1) }, |runtime| async move {
        let limits = Limits::new(&runtime, MEMORY_BYTES, 1);
        let (size, has_event_indexes) = (1 << (size % 9), flags & 1 != 0);
        let disk = Arc::new(Ram::new());
        let guest = memory.clone();
        let queue = LoneQueue::new(memory, size, has_event_indexes, RINGS, disk, &runtime, &limits);
        let Some(queue) = queue else { return };
        let mut rounds = 0;
        while let Some((&[a, b, c, d, low, high], rest)) = writes.split_first_chunk::<6>() {
            let (at, len) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([low, high]));
            let (bytes, rest) = rest.split_at(rest.len().min(len.into()));
            writes = rest;
            if at != KICK {
                let within: Range<usize> = 0..GUEST_BYTES.saturating_sub(bytes.len()).max(1);
                guest.write_slice(bytes, GuestAddress((at as usize % within.end) as u64)).ok();
                continue;
            }
            queue.kick();
            assert!(queue.under_way() <= usize::from(size), "more requests than descriptors");
            if flags & 2 == 0 {
                runtime.sleep(ROUND).await;
            }
            rounds += 1;
            if rounds == ROUNDS_MAX {
                break;
            }
        }
        runtime.sleep(ROUND).await;
        assert_eq!(queue.under_way(), 0, "a request is not answered");
    });
}

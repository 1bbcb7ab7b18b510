//! Child processes: their output, their errors, and streams from one to another.
//!
//! These functions run on threads for blocking calls. When a transfer stops, its pipes close; the receiver
//! sees the end of its stream, and keeps its part. An interrupted run waits until its children have ended
//! ([`Meter::ended`]): a receiver that still works would be in the next run's way.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use cenote_runtime::Runtime;
use cenote_stream::{Content, StreamReader, content_of};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes carried at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Longest error text kept of a command.
const ERROR_BYTES: u64 = 16 << 10;
/// Longest sleep of a slowed transfer before it looks whether to stop.
const NAP: Duration = Duration::from_millis(100);
/// Longest wait for stopped transfers. A host that is gone may keep one.
const ENDING_MAX: Duration = Duration::from_secs(15);
/// `zfs send -t` ends with it if the stream can't be resumed.
const UNRESUMABLE: i32 = 255;

/// A command that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failed {
    pub text: String,
    /// The sender has nothing to resume.
    pub is_unresumable: bool,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed { text: error.to_string(), is_unresumable: false }
    }
}

/// Counts and slows down the streams of a run.
#[derive(Debug)]
pub struct Meter {
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
    rate: Option<u64>,
    /// When the next bytes may go.
    next: Mutex<Instant>,
    is_stopped: AtomicBool,
    /// Transfers with children.
    running: AtomicUsize,
}

/// A transfer under way.
struct Running<'a>(&'a Meter);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Meter {
    pub fn new(rate: Option<u64>) -> Meter {
        let (total_bytes, done_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let (next, is_stopped) = (Mutex::new(Instant::now()), AtomicBool::new(false));
        Meter { total_bytes, done_bytes, rate, next, is_stopped, running: AtomicUsize::new(0) }
    }

    pub fn expect(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed).max(self.done_bytes())
    }

    pub fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// Ends all transfers.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Waits until stopped transfers have ended, for a while.
    pub async fn ended(&self, runtime: &Runtime) {
        let mut naps = (ENDING_MAX.as_millis() / NAP.as_millis()) as usize;
        while self.running.load(Ordering::Acquire) > 0 && naps > 0 {
            runtime.sleep(NAP).await;
            naps -= 1;
        }
    }

    fn running(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::AcqRel);
        Running(self)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Counts bytes, and waits until they may go.
    fn pass(&self, bytes: usize) {
        self.done_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let Some(rate) = self.rate else { return };
        let until = {
            let mut next = self.next.lock();
            let now = Instant::now();
            let wait = next.saturating_duration_since(now);
            *next = (*next).max(now) + Duration::from_secs_f64(bytes as f64 / rate as f64);
            now + wait
        };
        while !self.is_stopped() {
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return,
                wait => sleep(wait.min(NAP)),
            }
        }
    }
}

/// Runs a command and returns its output.
pub fn output(mut command: Command) -> Result<String, Failed> {
    let done = command.stdin(Stdio::null()).output()?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(Failed {
            text: cleaned(&String::from_utf8_lossy(&done.stderr), &format!("{}", done.status)),
            is_unresumable: done.status.code() == Some(UNRESUMABLE),
        }),
    }
}

/// Carries a stream from `send` to `receive`; returns its bytes.
pub fn pipe(mut send: Command, mut receive: Command, meter: &Meter) -> Result<u64, Failed> {
    let _running = meter.running();
    if meter.is_stopped() {
        return Err(interrupted());
    }
    let mut sender = send.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let sender_errors = errors_of(&mut sender);
    let started = receive.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut receiver = match started {
        Ok(receiver) => receiver,
        Err(error) => {
            drop(sender.stdout.take());
            sender.wait()?;
            return Err(error.into());
        }
    };
    let receiver_errors = errors_of(&mut receiver);
    let (from, to) = (sender.stdout.take(), receiver.stdin.take());
    let carried = match (from, to) {
        (Some(from), Some(to)) => carry(from, to, meter),
        _ => Ok(0),
    };
    let (sent, received) = (sender.wait()?, receiver.wait()?);
    let (sender_errors, receiver_errors) = (join(sender_errors), join(receiver_errors));
    if meter.is_stopped() {
        return Err(interrupted());
    }
    // A receiver that gave up is the cause of its sender's broken pipe, and a lost sender that of an early
    // end.
    let has_sender_failed = !sent.success() && (carried.is_ok() || received.success());
    if has_sender_failed {
        let is_unresumable = sent.code() == Some(UNRESUMABLE);
        return Err(Failed { text: cleaned(&sender_errors, &format!("send: {sent}")), is_unresumable });
    }
    match received.success() {
        true => Ok(carried?),
        false => {
            let text = cleaned(&receiver_errors, &format!("receive: {received}"));
            Err(Failed { text, is_unresumable: false })
        }
    }
}

fn interrupted() -> Failed {
    Failed { text: "interrupted".into(), is_unresumable: false }
}

fn carry(mut from: impl Read, mut to: impl Write, meter: &Meter) -> io::Result<u64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut carried = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return to.flush().map(|()| carried),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if meter.is_stopped() {
            return Ok(carried);
        }
        meter.pass(read);
        to.write_all(&buffer[..read])?;
        carried += read as u64;
    }
}

/// The content of the stream that a command writes.
pub fn content(mut command: Command, meter: &Arc<Meter>) -> Result<Content, Failed> {
    let _running = meter.running();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let errors = errors_of(&mut child);
    let Some(stream) = child.stdout.take() else { return Ok(Content::default()) };
    let source = io::BufReader::with_capacity(BUFFER_BYTES, stream);
    let mut reader = StreamReader::new(Box::new(Blocking(source, meter.clone())));
    let content = at_once(content_of(&mut reader));
    drop(reader);
    let done = child.wait()?;
    let errors = join(errors);
    if meter.is_stopped() {
        return Err(interrupted());
    }
    let failed = |text: String| Failed { text, is_unresumable: false };
    if !done.success() {
        return Err(failed(cleaned(&errors, &format!("send: {done}"))));
    }
    content.map_err(|error| failed(error.to_string()))
}

/// A reader that blocks, on a thread that may, and fails when the run stops.
struct Blocking<R>(R, Arc<Meter>);

impl<R: Read + Unpin> AsyncRead for Blocking<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.1.is_stopped() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let read = self.0.read(buffer.initialize_unfilled())?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

/// Runs a future that only waits for a [`Blocking`] reader, and so never waits.
fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

/// Collects a child's error texts, so that it never waits for a reader.
fn errors_of(child: &mut Child) -> Option<JoinHandle<String>> {
    let errors = child.stderr.take()?;
    Some(spawn(move || {
        let mut kept = Vec::new();
        let mut errors = errors;
        // Text beyond the limit is read and dropped.
        let _ = (&mut errors).take(ERROR_BYTES).read_to_end(&mut kept);
        let _ = io::copy(&mut errors, &mut io::sink());
        String::from_utf8_lossy(&kept).into_owned()
    }))
}

fn join(errors: Option<JoinHandle<String>>) -> String {
    errors.and_then(|errors| errors.join().ok()).unwrap_or_default()
}

/// A command's error text without the program's name.
fn cleaned(errors: &str, otherwise: &str) -> String {
    let lines: Vec<&str> =
        errors.trim().lines().map(|line| line.strip_prefix("cenote: ").unwrap_or(line)).collect();
    if lines.is_empty() { otherwise.to_owned() } else { lines.join("\n") }
}

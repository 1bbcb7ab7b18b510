//! A session: runs many commands at once and answers them in order of completion.
//!
//! ```text
//!   reader: header, data --> admitted? --> task: memory, R2T, order --> SCSI --> queue
//!   writer: numbers, digests; sends all queued PDUs with one call
//! ```
//!
//! SIMPLE commands run concurrently. An ORDERED command waits for those before it and holds up those after
//! it. A command whose data is in memory is answered at once, without spawning a task.
//!
//! Memory: see the crate. Futures may be dropped: the engine completes changes once begun.

mod command;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote_disk::{Ended, Limits, Result, Share, Stream};
use cenote_runtime::Runtime;
use futures::future::BoxFuture;
use tokio::io::ReadHalf;
use tokio::sync::{Notify, RwLock, mpsc};

use crate::login::{LoggedIn, Purpose, login};
use crate::lun::{Guest, Luns, Nexus};
use crate::pdu::{BHS_BYTES, Bhs, CONTINUES, FINAL, PduReader, RESERVED_TAG, at, opcode};
use crate::send::{Answers, Number, Outgoing, Window, send};
use crate::target::{Accounts, Portal, Targets};
use crate::tasks::{AbortedBy, After};
use crate::text::{self, Params, RECEIVE_BYTES, TEXT_BYTES_MAX};

/// Time an initiator gets to log out on request.
const FAREWELL: Duration = Duration::from_secs(3);

/// Task management functions.
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;

type Connection = PduReader<ReadHalf<Box<dyn Stream>>>;

/// State shared by all commands of a session.
struct Session {
    /// `None` in a discovery session.
    used: Option<Used>,
    params: Params,
    window: Arc<Window>,
    queue: mpsc::UnboundedSender<Outgoing>,
    order: Arc<RwLock<()>>,
    memory: Share,
    limits: Limits,
    luns: Luns,
    runtime: Runtime,
}

/// The target of a session.
struct Used {
    name: String,
    nexus: Arc<Nexus>,
    /// Units by number.
    guests: BTreeMap<u8, Arc<Guest>>,
    numbers: Vec<u8>,
    /// Signals the reader to stop. Queued answers are still sent.
    ending: Notify,
    /// The reason: solicited data did not arrive.
    has_stalled: AtomicBool,
}

/// A client connection.
pub struct Visit {
    /// Its stream.
    pub stream: Box<dyn Stream>,
    /// Its share of the memory limits.
    pub share: Share,
    /// Resolves when the client must leave: it is then asked to log out, within `FAREWELL`.
    pub leaving: BoxFuture<'static, ()>,
}

/// Serves a client until its connection ends.
///
/// # Errors
/// Protocol error, stall, or the connection is lost.
pub async fn serve(
    Visit { stream, share, mut leaving }: Visit,
    runtime: &Runtime,
    limits: &Limits,
    targets: &dyn Targets,
    accounts: &Accounts,
    portal: &Portal,
    luns: &Luns,
) -> Result<()> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = PduReader::new(reader);
    let logging_in = login(&mut reader, &mut writer, runtime, targets, accounts, luns);
    let logged_in = tokio::select! {
        biased;
        () = &mut leaving => return Ok(()),
        logged_in = runtime.timeout(limits.patience, logging_in) => logged_in.unwrap_or(Err(Ended::Stalled))?,
    };
    let Some(LoggedIn { purpose, params, exp_cmd_sn, stat_sn }) = logged_in else { return Ok(()) };
    let mut stay = None;
    let used = match purpose {
        Purpose::Discovery => None,
        Purpose::Target(name, nexus, stays) => {
            let guests: BTreeMap<u8, _> = stays.iter().map(|(at, stay)| (*at, stay.guest.clone())).collect();
            let numbers = guests.keys().copied().collect();
            stay = Some((nexus.clone(), stays));
            Some(Used { name, nexus, guests, numbers, ending: Notify::new(), has_stalled: false.into() })
        }
    };
    reader.digests = params.digests;
    let window = Arc::new(Window::new(exp_cmd_sn));
    let (queue, waiting) = mpsc::unbounded_channel();
    let (digests, farewell) = (params.digests, queue.downgrade());
    let session = Arc::new(Session {
        used,
        params,
        window: window.clone(),
        queue,
        order: Arc::default(),
        memory: share.clone(),
        limits: limits.clone(),
        luns: luns.clone(),
        runtime: runtime.clone(),
    });
    let sent_away = async {
        match &stay {
            Some((nexus, _)) => nexus.sent_away().await,
            None => std::future::pending().await,
        }
    };
    let talking = async {
        let receiving = receive(&mut reader, session, targets, portal);
        let sending = send(&mut writer, waiting, &window, stat_sn, digests, (limits, &share));
        let (mut receiving, mut sending) = (std::pin::pin!(receiving), std::pin::pin!(sending));
        tokio::select! {
            biased;
            received = &mut receiving => {
                // No more data can arrive, so waiting commands are aborted. Answers are still sent.
                let aborting = async {
                    if let Some((nexus, _)) = &stay {
                        nexus.tasks.abort(AbortedBy::Own, |_, _| true).await;
                    }
                };
                let ((), sent) = futures::join!(aborting, sending);
                received.and(sent)
            }
            sent = &mut sending => sent,
        }
    };
    let mut talking = std::pin::pin!(talking);
    let ended = tokio::select! {
        biased;
        () = sent_away => Ok(()),
        () = leaving => {
            if let (Some(queue), Some(_)) = (farewell.upgrade(), &stay) {
                queue.send(logout_request()).ok();
            }
            runtime.timeout(FAREWELL, talking).await.unwrap_or(Ok(()))
        }
        ended = &mut talking => ended,
    };
    // Changes of this session must not land after those of the port's next session.
    if let Some((nexus, _)) = &stay {
        nexus.tasks.abort(AbortedBy::Own, |_, _| true).await;
    }
    ended
}

/// Asks the initiator to log out.
fn logout_request() -> Outgoing {
    const LOGOUT_REQUESTED: u8 = 1;
    let mut bhs = Bhs::new(opcode::ASYNC, FINAL).with(at::ITT, RESERVED_TAG);
    bhs.0[36] = LOGOUT_REQUESTED;
    bhs.0[42..44].copy_from_slice(&(FAREWELL.as_secs() as u16).to_be_bytes());
    Outgoing::response(bhs, Bytes::new(), Answers::Nothing)
}

/// Reads PDUs until the initiator logs out or leaves.
async fn receive(
    reader: &mut Connection,
    session: Arc<Session>,
    targets: &dyn Targets,
    portal: &Portal,
) -> Result<()> {
    let (limits, share) = (&session.limits, &session.memory);
    let mut rest_of_text = Bytes::new();
    loop {
        let head = tokio::select! {
            biased;
            ended = session.ending() => return ended,
            has_begun = reader.has_begun() => match has_begun? {
                true => limits.patiently(share, BHS_BYTES, reader.head()).await?,
                false => None,
            },
        };
        let Some(bhs) = head else { return Ok(()) };
        if bhs.data_bytes() > RECEIVE_BYTES as usize {
            return Err(Ended::Protocol("a message has more data than was agreed on"));
        }
        if bhs.opcode() == opcode::DATA_OUT {
            let taking = session.take_data(reader, &bhs);
            limits.patiently(share, bhs.data_bytes(), taking).await?;
            continue;
        }
        let data = reader.data(bhs.data_bytes());
        let data = limits.patiently(share, bhs.data_bytes(), data).await?;
        let answers = answers(&bhs);
        match answers {
            Answers::Immediate => session.window.admit_immediate()?,
            _ if !session.window.admit(bhs.word(at::CMD_SN))? => continue,
            _ => {}
        }
        match bhs.opcode() {
            opcode::SCSI_COMMAND => session.command(bhs, data)?,
            opcode::NOP_OUT if bhs.itt() == RESERVED_TAG => session.window.answered(answers),
            opcode::NOP_OUT => {
                let reply =
                    Bhs::new(opcode::NOP_IN, FINAL).with(at::ITT, bhs.itt()).with(at::TTT, RESERVED_TAG);
                let mut data = data.slice(..data.len().min(session.params.send_bytes as usize));
                let permits = session.limits.try_take(&session.memory, data.len() as u32);
                // Without memory for its data, the ping is answered with none.
                data.truncate(if permits.is_some() { data.len() } else { 0 });
                session.say(Outgoing { _permits: permits, ..Outgoing::response(reply, data, answers) });
            }
            opcode::TASK_MANAGEMENT => session.manage(bhs, answers),
            opcode::TEXT => {
                if bhs.word(at::TTT) == RESERVED_TAG {
                    rest_of_text = session.text(&data, targets, portal).await?;
                }
                let most = session.params.send_bytes as usize;
                let part = rest_of_text.split_to(rest_of_text.len().min(most));
                let (flags, tag) = match rest_of_text.is_empty() {
                    true => (FINAL, RESERVED_TAG),
                    false => (CONTINUES, 1),
                };
                let reply =
                    Bhs::new(opcode::TEXT_RESPONSE, flags).with(at::ITT, bhs.itt()).with(at::TTT, tag);
                session.say(Outgoing::response(reply, part, answers));
            }
            opcode::LOGOUT => {
                // Reason 2 is connection recovery, which is not supported.
                let response = if bhs.flags() & 0x7f == 2 { 2 } else { 0 };
                let mut reply = Bhs::new(opcode::LOGOUT_RESPONSE, FINAL).with(at::ITT, bhs.itt());
                reply.0[2] = response;
                reply.put(at::OFFSET, 2 << 16);
                session.say(Outgoing::response(reply, Bytes::new(), answers));
                if response == 0 {
                    return Ok(());
                }
            }
            _ => {
                const NOT_SUPPORTED: u8 = 0x05;
                let mut reply = Bhs::new(opcode::REJECT, FINAL).with(at::ITT, RESERVED_TAG);
                reply.0[2] = NOT_SUPPORTED;
                session.say(Outgoing::response(reply, Bytes::copy_from_slice(&bhs.0), answers));
            }
        }
    }
}

impl Used {
    /// Stops the reader. The session ends once queued answers are sent.
    fn end(&self, has_stalled: bool) {
        self.has_stalled.fetch_or(has_stalled, Ordering::Relaxed);
        self.ending.notify_one();
    }
}

/// Window counter that the answer to a request releases.
fn answers(bhs: &Bhs) -> Answers {
    if bhs.is_immediate() { Answers::Immediate } else { Answers::Numbered }
}

impl Session {
    /// Waits for the signal to stop. Fails if the initiator has stalled.
    async fn ending(&self) -> Result<()> {
        let Some(used) = &self.used else { return std::future::pending().await };
        used.ending.notified().await;
        match used.has_stalled.load(Ordering::Relaxed) {
            true => Err(Ended::Stalled),
            false => Ok(()),
        }
    }

    fn say(&self, outgoing: Outgoing) {
        // Fails only while the connection is ending.
        self.queue.send(outgoing).ok();
    }

    /// Handles Data-Out for a command.
    async fn take_data(&self, reader: &mut Connection, bhs: &Bhs) -> Result<()> {
        let tasks = self.used.as_ref().map(|used| &used.nexus.tasks);
        let Some(mut buffer) = tasks.and_then(|tasks| tasks.piece(bhs)) else {
            reader.data(bhs.data_bytes()).await?;
            return Ok(());
        };
        reader.data_to(&mut buffer, bhs.data_bytes()).await?;
        if let Some(tasks) = tasks {
            self.after(tasks.came(bhs, buffer, self.params.burst_bytes as usize));
        }
        Ok(())
    }

    fn after(&self, after: After) {
        if let After::Ask(bhs) = after {
            let (data, number) = (Bytes::new(), Number::Shows);
            self.say(Outgoing { bhs, data, number, answers: Answers::Nothing, _permits: None });
        }
    }

    /// Task management.
    fn manage(self: &Arc<Session>, bhs: Bhs, answers: Answers) {
        let session = self.clone();
        let work = async move {
            let response = session.managed(&bhs).await;
            let mut reply = Bhs::new(opcode::TASK_MANAGEMENT_RESPONSE, FINAL).with(at::ITT, bhs.itt());
            reply.0[2] = response;
            session.say(Outgoing::response(reply, Bytes::new(), answers));
            if let (Some(used), TARGET_COLD_RESET) = (&session.used, bhs.flags() & 0x7f) {
                used.end(false);
            }
        };
        self.runtime.spawn(work).detach();
    }

    async fn managed(&self, bhs: &Bhs) -> u8 {
        const COMPLETE: u8 = 0;
        const NO_TASK: u8 = 1;
        const NO_LUN: u8 = 2;
        const NOT_SUPPORTED: u8 = 5;
        let Some(used) = &self.used else { return NOT_SUPPORTED };
        let guest = bhs.lun().and_then(|number| used.guests.get(&number));
        match (bhs.flags() & 0x7f, guest) {
            // ABORT TASK
            (1, _) => {
                let referenced = bhs.word(at::TTT);
                if !used.nexus.tasks.has(referenced) {
                    return NO_TASK;
                }
                used.nexus.tasks.abort(AbortedBy::Own, |itt, _| itt == referenced).await;
            }
            // ABORT TASK SET, CLEAR TASK SET: both affect this session only (QUEUE ALGORITHM MODIFIER, TST).
            (2 | 4, Some(guest)) => guest.abort(&used.nexus.initiator).await,
            // LOGICAL UNIT RESET
            (5, Some(guest)) => guest.lun.reset(&used.nexus.initiator).await,
            (2 | 4 | 5, None) => return NO_LUN,
            (TARGET_WARM_RESET | TARGET_COLD_RESET, _) => {
                for guest in used.guests.values() {
                    guest.lun.reset(&used.nexus.initiator).await;
                }
            }
            _ => return NOT_SUPPORTED,
        }
        if bhs.flags() & 0x7f == TARGET_COLD_RESET {
            // All sessions end; this one after its response.
            let all = used.guests.values().flat_map(|guest| guest.lun.guests());
            let others = all.filter(|guest| !Arc::ptr_eq(&guest.nexus, &used.nexus));
            others.for_each(|guest| guest.nexus.send_away());
        }
        COMPLETE
    }

    async fn text(&self, data: &[u8], targets: &dyn Targets, portal: &Portal) -> Result<Bytes> {
        let asked = match data.len() <= TEXT_BYTES_MAX {
            true => text::parse(data).ok_or(Ended::Protocol("a text is malformed"))?,
            false => return Err(Ended::Protocol("a text is too long")),
        };
        let mut answer: Vec<(&str, String)> = Vec::new();
        for (key, value) in &asked {
            if key != "SendTargets" {
                answer.push((key, "NotUnderstood".into()));
                continue;
            }
            let wanted = match (&self.used, &**value) {
                (None, "All") => None,
                (Some(used), "" | "All") => Some(used.name.clone()),
                (_, name) => Some(name.to_ascii_lowercase()),
            };
            for name in targets.list().await {
                if wanted.as_ref().is_some_and(|wanted| *wanted != name) {
                    continue;
                }
                answer.push(("TargetName", name));
                // The address that the client used comes first.
                let others = portal.all.iter().filter(|address| **address != portal.here);
                for address in std::iter::once(&portal.here).chain(others) {
                    answer.push(("TargetAddress", format!("{address},1")));
                }
            }
        }
        let text = text::format(answer.iter().map(|(key, value)| (*key, value.as_str())));
        Ok(text)
    }
}

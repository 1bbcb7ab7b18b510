//! A session: commands come, many at once, and are answered in whatever order they are done.
//!
//! ```text
//!   reader: header, data --> admitted? --> task: memory, R2T, order --> SCSI --> queue
//!   writer: numbers, digests; takes all that waits, and sends it with one call
//! ```
//!
//! Simple commands run side by side; one that is ordered waits for those before it, and those after it wait.
//! What is in memory is answered at once, without a task of the runtime.
//!
//! Memory: see the crate. Futures may be dropped: changes that have begun come to their end in the engine.

mod command;

use std::sync::Arc;

use bytes::Bytes;
use cenote_disk::{Ended, Limits, Result, Stream};
use cenote_runtime::Runtime;
use tokio::io::ReadHalf;
use tokio::sync::{RwLock, Semaphore, mpsc};

use crate::login::{LoggedIn, Purpose, login};
use crate::lun::{Guest, Lun, Luns};
use crate::pdu::{Bhs, CONTINUES, FINAL, PduReader, RESERVED_TAG, at, opcode};
use crate::send::{Answers, Number, Outgoing, Window, send};
use crate::target::{Accounts, Portal, Targets, Unit};
use crate::tasks::After;
use crate::text::{self, Params, RECEIVE_BYTES, TEXT_BYTES_MAX};

type Connection = PduReader<ReadHalf<Box<dyn Stream>>>;

/// What all commands of a session share.
struct Session {
    /// None in a discovery session.
    used: Option<Used>,
    params: Params,
    window: Arc<Window>,
    queue: mpsc::UnboundedSender<Outgoing>,
    order: Arc<RwLock<()>>,
    memory: Arc<Semaphore>,
    limits: Limits,
    runtime: Runtime,
}

/// The target of a session.
struct Used {
    name: String,
    unit: Arc<dyn Unit>,
    lun: Arc<Lun>,
    guest: Arc<Guest>,
}

/// Serves a client to the end of its connection.
///
/// # Errors
/// It does not speak the protocol, stalls, or has gone without a word.
pub async fn serve(
    stream: Box<dyn Stream>,
    runtime: &Runtime,
    limits: &Limits,
    targets: &dyn Targets,
    accounts: &Accounts,
    portal: &Portal,
    luns: &Luns,
) -> Result<()> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = PduReader::new(reader);
    let logging_in = login(&mut reader, &mut writer, runtime, targets, accounts);
    let logged_in = runtime.timeout(limits.patience, logging_in).await.unwrap_or(Err(Ended::Stalled))?;
    let Some(LoggedIn { initiator, purpose, params, exp_cmd_sn, stat_sn }) = logged_in else { return Ok(()) };
    let mut stay = None;
    let used = match purpose {
        Purpose::Discovery => None,
        Purpose::Target(name, unit) => {
            let lun = luns.of(&name, &*unit).await;
            let lun = lun.map_err(|failure| Ended::Io(std::io::Error::other(failure)))?;
            let guest = stay.insert(lun.enter(initiator, unit.size_bytes()).await).guest.clone();
            Some(Used { name, unit, lun, guest })
        }
    };
    reader.digests = params.digests;
    let window = Arc::new(Window::new(exp_cmd_sn));
    let (queue, waiting) = mpsc::unbounded_channel();
    let digests = params.digests;
    let session = Arc::new(Session {
        used,
        params,
        window: window.clone(),
        queue,
        order: Arc::default(),
        memory: Limits::connection(),
        limits: limits.clone(),
        runtime: runtime.clone(),
    });
    let sent_away = async {
        match &stay {
            Some(stay) => stay.guest.sent_away().await,
            None => std::future::pending().await,
        }
    };
    let talking = async {
        let receiving = receive(&mut reader, session, targets, portal);
        let sending = send(&mut writer, waiting, &window, stat_sn, digests, runtime, limits);
        let (mut receiving, mut sending) = (std::pin::pin!(receiving), std::pin::pin!(sending));
        tokio::select! {
            received = &mut receiving => {
                // Data that is awaited does not come any more. Meanwhile answers leave.
                let aborting = async {
                    if let Some(stay) = &stay {
                        stay.guest.tasks.abort(|_| true).await;
                    }
                };
                let ((), sent) = futures::join!(aborting, sending);
                received.and(sent)
            }
            sent = &mut sending => sent,
        }
    };
    let ended = tokio::select! {
        () = sent_away => Ok(()),
        ended = talking => ended,
    };
    // What it still does must not come after what its next session does.
    if let Some(stay) = &stay {
        stay.guest.tasks.abort(|_| true).await;
    }
    ended
}

/// Reads PDUs until the initiator logs out or leaves.
async fn receive(
    reader: &mut Connection,
    session: Arc<Session>,
    targets: &dyn Targets,
    portal: &Portal,
) -> Result<()> {
    let patience = session.limits.patience;
    let mut rest_of_text = Bytes::new();
    loop {
        let Some(bhs) = reader.head().await? else { return Ok(()) };
        if bhs.data_bytes() > RECEIVE_BYTES as usize {
            return Err(Ended::Protocol("a message has more data than was agreed on"));
        }
        if bhs.opcode() == opcode::DATA_OUT {
            let taking = session.take_data(reader, &bhs);
            session.runtime.timeout(patience, taking).await.unwrap_or(Err(Ended::Stalled))?;
            continue;
        }
        let data = reader.data(bhs.data_bytes());
        let data = session.runtime.timeout(patience, data).await.unwrap_or(Err(Ended::Stalled))?;
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
                // It gets its ping back, without what it sent along if there is no memory for that.
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
                // Reason 2 is recovery, of which there is none.
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

/// What a reply to a request answers.
fn answers(bhs: &Bhs) -> Answers {
    if bhs.is_immediate() { Answers::Immediate } else { Answers::Numbered }
}

impl Session {
    fn say(&self, outgoing: Outgoing) {
        // Nobody listens any more: the connection is ending.
        self.queue.send(outgoing).ok();
    }

    /// Data comes for a command.
    async fn take_data(&self, reader: &mut Connection, bhs: &Bhs) -> Result<()> {
        let tasks = self.used.as_ref().map(|used| &used.guest.tasks);
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
        };
        self.runtime.spawn(work).detach();
    }

    async fn managed(&self, bhs: &Bhs) -> u8 {
        const COMPLETE: u8 = 0;
        const NO_TASK: u8 = 1;
        const NO_LUN: u8 = 2;
        const NOT_SUPPORTED: u8 = 5;
        let Some(used) = &self.used else { return NOT_SUPPORTED };
        let is_lun = bhs.lun() & !(0x40 << 56) == 0;
        match bhs.flags() & 0x7f {
            // ABORT TASK
            1 => {
                let referenced = bhs.word(at::TTT);
                if !used.guest.tasks.has(referenced) {
                    return NO_TASK;
                }
                used.guest.tasks.abort(|itt| itt == referenced).await;
                COMPLETE
            }
            // ABORT TASK SET; CLEAR TASK SET: of all, as QUEUE ALGORITHM and TST say
            2 | 4 if is_lun => {
                used.guest.tasks.abort(|_| true).await;
                COMPLETE
            }
            // LOGICAL UNIT RESET, TARGET WARM RESET, TARGET COLD RESET
            5 if is_lun => {
                used.lun.reset().await;
                COMPLETE
            }
            6 => {
                used.lun.reset().await;
                COMPLETE
            }
            7 => {
                used.lun.reset().await;
                // All sessions end.
                used.lun.guests().iter().for_each(|guest| guest.send_away());
                COMPLETE
            }
            2 | 4 | 5 => NO_LUN,
            _ => NOT_SUPPORTED,
        }
    }

    /// Answers a text request.
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
                // The address that it came by first.
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

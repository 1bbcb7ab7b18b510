//! Login: identifies the initiator and its target, and negotiates parameters.
//!
//! ```text
//!   stage 0, security: AuthMethod, CHAP --> stage 1, operational: everything else --> stage 3, full feature
//! ```
//!
//! Idea: a login request is text, answered key by key. The initiator asks for each stage transition and gets
//! it once the stage has served its purpose. The target is opened last, so an unauthenticated initiator
//! learns nothing about targets.
//!
//! Source: RFC 7143, sections 6.3 and 11.12, 11.13.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cenote_disk::stream::write_pieces;
use cenote_disk::{Ended, Errno, Failure, Result, Stream};
use cenote_runtime::Runtime;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::chap::{self, Algorithm};
use crate::lun::{Luns, Nexus, Stay};
use crate::pdu::{Bhs, CONTINUES, Digests, FINAL, PduReader, at, opcode, put_pdu};
use crate::target::{Account, Accounts, Targets};
use crate::text::{self, Pairs, Params, TEXT_BYTES_MAX};

/// Longest name the protocol allows.
const NAME_BYTES_MAX: usize = 223;
/// Prefixes of valid names.
const NAME_TYPES: [&str; 3] = ["iqn.", "eui.", "naa."];
/// Requests per login. No honest initiator needs this many.
const REQUESTS_MAX: usize = 64;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// Reason for refusing a login: status class and detail.
type Status = u16;
const INITIATOR_ERROR: Status = 0x0200;
const AUTHENTICATION_FAILURE: Status = 0x0201;
const AUTHORIZATION_FAILURE: Status = 0x0202;
const NOT_FOUND: Status = 0x0203;
const UNSUPPORTED_VERSION: Status = 0x0205;
const MISSING_PARAMETER: Status = 0x0207;
const UNSUPPORTED_SESSION_TYPE: Status = 0x0209;
const NO_SUCH_SESSION: Status = 0x020a;
const TARGET_ERROR: Status = 0x0300;
const OUT_OF_RESOURCES: Status = 0x0302;

/// An initiator port: its name and the session identifier it chose.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Initiator {
    /// iSCSI name.
    pub name: String,
    /// ISID.
    pub isid: [u8; 6],
}

impl Initiator {
    /// Normalizes a name for comparison and storage; `None` if invalid. Names consist of lower-case letters,
    /// digits, `-`, `.`, `:` and non-ASCII letters. `_` is accepted because some hosts have it in their
    /// names.
    ///
    /// Source: RFC 7143, section 4.2.7.2.
    pub fn name_of(text: &str) -> Option<String> {
        let name = text.to_lowercase();
        let is_of_names = |c: char| c.is_alphanumeric() || "-.:_".contains(c);
        let is_name = name.len() <= NAME_BYTES_MAX
            && NAME_TYPES.iter().any(|kind| name.strip_prefix(kind).is_some_and(|rest| !rest.is_empty()))
            && name.chars().all(is_of_names);
        is_name.then_some(name)
    }
}

/// Purpose of a session.
pub enum Purpose {
    /// Finding targets.
    Discovery,
    /// Access to a target: its name, the nexus, and its units by number.
    Target(String, Arc<Nexus>, BTreeMap<u8, Stay>),
}

/// A successful login.
pub struct LoggedIn {
    /// Purpose of the session.
    pub purpose: Purpose,
    /// Negotiated parameters.
    pub params: Params,
    /// Next expected CmdSN.
    pub exp_cmd_sn: u32,
    /// StatSN of the next response.
    pub stat_sn: u32,
}

enum Chap {
    Outside,
    Chosen,
    Challenged { algorithm: Algorithm, id: u8, challenge: [u8; chap::CHALLENGE_BYTES] },
    Done(String),
}

struct Login<'a> {
    runtime: &'a Runtime,
    targets: &'a dyn Targets,
    accounts: &'a Accounts,
    luns: &'a Luns,
    initiator: Option<String>,
    target: Option<String>,
    is_discovery: bool,
    has_begun: bool,
    params: Params,
    chap: Chap,
    tsih: u16,
}

/// Logs a client in; `None` if it is refused or leaves.
///
/// # Errors
/// Protocol error, or the connection is lost.
pub async fn login<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut PduReader<R>,
    writer: &mut W,
    runtime: &Runtime,
    targets: &dyn Targets,
    accounts: &Accounts,
    luns: &Luns,
) -> Result<Option<LoggedIn>> {
    let mut login = Login {
        runtime,
        targets,
        accounts,
        luns,
        initiator: None,
        target: None,
        is_discovery: false,
        has_begun: false,
        params: Params::default(),
        chap: Chap::Outside,
        tsih: (runtime.random_u64() as u16).max(1),
    };
    let mut text = BytesMut::new();
    let mut stat_sn = None;
    for _ in 0..REQUESTS_MAX {
        let Some(bhs) = reader.head().await? else { return Ok(None) };
        if bhs.opcode() != opcode::LOGIN {
            return Err(Ended::Protocol("it does not log in"));
        }
        if text.len() + bhs.data_bytes() > TEXT_BYTES_MAX {
            return Err(Ended::Protocol("the text of its login is too long"));
        }
        reader.data_to(&mut text, bhs.data_bytes()).await?;
        let number = stat_sn.get_or_insert(bhs.word(at::EXP_CMD_SN));
        let mut reply = reply_to(&bhs, *number);
        *number = number.wrapping_add(1);
        if bhs.flags() & CONTINUES != 0 {
            send(writer, reply, Bytes::new()).await?;
            continue;
        }
        let answered = match text::parse(&text) {
            Some(pairs) => login.answer(&bhs, &pairs).await,
            None => Err(INITIATOR_ERROR),
        };
        text.clear();
        let (answer, next, purpose) = match answered {
            Ok(answered) => answered,
            Err(status) => {
                refuse(writer, reply, status).await?;
                return Ok(None);
            }
        };
        if let Some(next) = next {
            reply.0[1] |= FINAL | next;
        }
        if purpose.is_some() {
            reply.0[14..16].copy_from_slice(&login.tsih.to_be_bytes());
        }
        let answer = text::format(answer.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        send(writer, reply, answer).await?;
        if let Some(purpose) = purpose {
            let (params, exp_cmd_sn) = (login.params, bhs.word(at::CMD_SN));
            let stat_sn = stat_sn.unwrap_or_default();
            return Ok(Some(LoggedIn { purpose, params, exp_cmd_sn, stat_sn }));
        }
    }
    Err(Ended::Protocol("its login has no end"))
}

/// Refuses a login: the target is out of resources.
///
/// # Errors
/// Protocol error, or the connection is lost.
pub async fn turn_away(stream: Box<dyn Stream>) -> Result<()> {
    let (reader, mut writer) = tokio::io::split(stream);
    let Some(bhs) = PduReader::new(reader).head().await? else { return Ok(()) };
    if bhs.opcode() != opcode::LOGIN {
        return Err(Ended::Protocol("it does not log in"));
    }
    refuse(&mut writer, reply_to(&bhs, bhs.word(at::EXP_CMD_SN)), OUT_OF_RESOURCES).await
}

fn reply_to(bhs: &Bhs, stat_sn: u32) -> Bhs {
    let mut reply = Bhs::new(opcode::LOGIN_RESPONSE, bhs.flags() & 0x0c);
    reply.0[8..14].copy_from_slice(&bhs.0[8..14]);
    reply
        .with(at::ITT, bhs.itt())
        .with(at::STAT_SN, stat_sn)
        .with(at::EXP_CMD_SN, bhs.word(at::CMD_SN))
        .with(at::MAX_CMD_SN, bhs.word(at::CMD_SN))
}

async fn refuse(writer: &mut (impl AsyncWrite + Unpin), mut reply: Bhs, status: Status) -> Result<()> {
    reply.0[36..38].copy_from_slice(&status.to_be_bytes());
    send(writer, reply, Bytes::new()).await
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), bhs: Bhs, data: Bytes) -> Result<()> {
    let (mut pieces, mut arena) = (Vec::new(), BytesMut::new());
    put_pdu(&mut pieces, &mut arena, &bhs.with_data_bytes(data.len()), &data, Digests::default());
    write_pieces(writer, &mut pieces).await
}

impl Login<'_> {
    /// Answers a request. Returns the reply's text, the next stage if the transition is granted, and the
    /// session's purpose if the login is complete.
    async fn answer(
        &mut self,
        bhs: &Bhs,
        pairs: &Pairs,
    ) -> std::result::Result<(Pairs, Option<u8>, Option<Purpose>), Status> {
        let (stage, next) = (bhs.flags() >> 2 & 3, bhs.flags() & 3);
        let mut answer = Pairs::new();
        if !self.has_begun {
            if bhs.0[3] > 0 {
                return Err(UNSUPPORTED_VERSION);
            }
            if bhs.0[14..16] != [0, 0] {
                return Err(NO_SUCH_SESSION);
            }
            self.begin(pairs, &mut answer)?;
        }
        match stage {
            SECURITY => self.security(pairs, &mut answer)?,
            OPERATIONAL if self.is_known() => {
                for (key, value) in pairs {
                    answer.extend(self.params.negotiate(key, value, self.is_discovery));
                }
            }
            OPERATIONAL => return Err(AUTHENTICATION_FAILURE),
            _ => return Err(INITIATOR_ERROR),
        }
        if !bhs.is_final() {
            return Ok((answer, None, None));
        }
        if next <= stage || next == 2 {
            return Err(INITIATOR_ERROR);
        }
        if !self.is_known() {
            // The login proceeds once the initiator has authenticated.
            return match self.chap {
                Chap::Outside => Err(AUTHENTICATION_FAILURE),
                _ => Ok((answer, None, None)),
            };
        }
        let purpose = if next == FULL_FEATURE { Some(self.open(bhs).await?) } else { None };
        self.params.first_burst_bytes = self.params.first_burst_bytes.min(self.params.burst_bytes);
        Ok((answer, Some(next), purpose))
    }

    fn begin(&mut self, pairs: &Pairs, answer: &mut Pairs) -> std::result::Result<(), Status> {
        let value = |wanted: &str| pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| value);
        let name = value("InitiatorName").ok_or(MISSING_PARAMETER)?;
        self.initiator = Some(Initiator::name_of(name).ok_or(INITIATOR_ERROR)?);
        self.is_discovery = match value("SessionType").map(String::as_str) {
            None | Some("Normal") => false,
            Some("Discovery") => true,
            _ => return Err(UNSUPPORTED_SESSION_TYPE),
        };
        if !self.is_discovery {
            self.target = Some(value("TargetName").ok_or(MISSING_PARAMETER)?.to_ascii_lowercase());
            answer.push(("TargetPortalGroupTag".into(), "1".into()));
        }
        self.has_begun = true;
        Ok(())
    }

    fn is_known(&self) -> bool {
        self.accounts.initiators.is_empty() || matches!(self.chap, Chap::Done(_))
    }

    fn security(&mut self, pairs: &Pairs, answer: &mut Pairs) -> std::result::Result<(), Status> {
        let value = |wanted: &str| pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| &**value);
        let mut say = |key: &str, value: &str| answer.push((key.into(), value.into()));
        if let Some(methods) = value("AuthMethod") {
            let wanted = if self.accounts.initiators.is_empty() { "None" } else { "CHAP" };
            if !methods.split(',').any(|method| method == wanted) {
                return Err(AUTHENTICATION_FAILURE);
            }
            say("AuthMethod", wanted);
            if wanted == "CHAP" {
                self.chap = Chap::Chosen;
            }
        }
        if let Some(algorithms) = value("CHAP_A") {
            let Chap::Chosen = self.chap else { return Err(INITIATOR_ERROR) };
            let algorithm = Algorithm::choose(algorithms).ok_or(AUTHENTICATION_FAILURE)?;
            let mut random = [0; chap::CHALLENGE_BYTES + 1];
            self.runtime.fill_secret(&mut random);
            let [id, challenge @ ..] = random;
            say("CHAP_A", algorithm.number());
            say("CHAP_I", &id.to_string());
            say("CHAP_C", &chap::hex(&challenge));
            self.chap = Chap::Challenged { algorithm, id, challenge };
        }
        if let Some(user) = value("CHAP_N") {
            let Chap::Challenged { algorithm, id, challenge } = self.chap else {
                return Err(INITIATOR_ERROR);
            };
            let is_name =
                |name: &String| self.initiator.as_ref().is_some_and(|it| it.eq_ignore_ascii_case(name));
            let may_come = |account: &Account| account.names.is_empty() || account.names.iter().any(is_name);
            let response = value("CHAP_R").and_then(chap::binary).ok_or(MISSING_PARAMETER)?;
            let account = self.accounts.initiators.iter().find(|account| account.user == user);
            let is_right =
                account.is_some_and(|account| algorithm.is_right(id, &account.secret, &challenge, &response));
            if !is_right {
                return Err(AUTHENTICATION_FAILURE);
            }
            if let (Some(id), Some(theirs)) = (value("CHAP_I"), value("CHAP_C")) {
                let target = self.accounts.target.as_ref().ok_or(AUTHENTICATION_FAILURE)?;
                let id = id.parse().map_err(|_| INITIATOR_ERROR)?;
                let theirs = chap::binary(theirs).ok_or(INITIATOR_ERROR)?;
                // An initiator that sends our challenge back wants us to compute its own response (reflection
                // attack).
                if theirs.is_empty() || theirs == challenge {
                    return Err(AUTHENTICATION_FAILURE);
                }
                say("CHAP_N", &target.user);
                say("CHAP_R", &chap::hex(&algorithm.response(id, &target.secret, &theirs)));
            }
            if !account.is_some_and(may_come) {
                return Err(AUTHORIZATION_FAILURE);
            }
            self.chap = Chap::Done(user.to_owned());
        }
        Ok(())
    }

    async fn open(&mut self, bhs: &Bhs) -> std::result::Result<Purpose, Status> {
        let Some(target) = self.target.take() else { return Ok(Purpose::Discovery) };
        let refused = |failure: Failure| match failure.errno {
            Errno::Invalid => NOT_FOUND,
            Errno::Perm => AUTHORIZATION_FAILURE,
            _ => TARGET_ERROR,
        };
        let units = self.targets.open(&target).await.map_err(refused)?;
        let mut isid = [0; 6];
        isid.copy_from_slice(&bhs.0[8..14]);
        let user = match &self.chap {
            Chap::Done(user) => Some(user.clone()),
            _ => None,
        };
        let name = self.initiator.clone().unwrap_or_default();
        let nexus = Nexus::new(Initiator { name, isid }, user);
        let stays = self.luns.enter(&nexus, units).await.map_err(refused)?;
        Ok(Purpose::Target(target, nexus, stays))
    }
}

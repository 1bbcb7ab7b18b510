//! Login, from the initiator's side: names, CHAP, parameters.
//!
//! ```text
//!   security: AuthMethod --> [CHAP_A --> CHAP_N, CHAP_R] --> operational: parameters --> full feature
//! ```
//!
//! Idea: each request is answered before the next one. A login with the name and identifier of an older
//! session replaces that one, so its commands are over before the new session begins.
//!
//! Bounds: texts of 16 KiB, 16 requests. The caller limits the time.
//!
//! Source: RFC 7143, sections 6.3, 11.12, 11.13, 12 and 13.

use bytes::{Bytes, BytesMut};
use cenote_disk::Stream;
use cenote_disk::stream::write_pieces;
use cenote_iscsi::chap::{Algorithm, CHALLENGE_BYTES, binary, hex};
use cenote_iscsi::pdu::{Bhs, CONTINUES, Digests, FINAL, PduReader, at, opcode, put_pdu};
use cenote_iscsi::text::{self, Pairs, TEXT_BYTES_MAX};
use cenote_runtime::Runtime;
use tokio::io::{ReadHalf, WriteHalf};

use super::owner::Owner;
use super::secrets::Chap;
use crate::error::{ServerError, cleaned};

/// Largest data segment that this client accepts.
pub(super) const RECEIVE_BYTES: u32 = 256 << 10;
/// Most data of a burst that this client offers.
const BURST_BYTES: u32 = 1 << 20;
/// Most requests of a login.
const REQUESTS_MAX: usize = 16;
/// Digests that this client knows. FreeBSD's target only takes the list with a single one.
const ALGORITHMS: [&str; 2] = ["7,5", "5"];
const IMMEDIATE: u8 = 0x40;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
const MOVED: u8 = 1;
const AUTHENTICATION_FAILURE: u16 = 0x0201;

/// How to log in, and to which disk.
#[derive(Clone)]
pub struct Login {
    /// The target's name.
    pub target: String,
    /// Number of the logical unit.
    pub lun: u8,
    /// This machine's name.
    pub initiator: String,
    /// Its secrets.
    pub chap: Option<Chap>,
    /// The process that reserves the disk.
    pub owner: Owner,
}

type Result<T> = std::result::Result<T, ServerError>;

/// Everything agreed about a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Params {
    pub(super) digests: Digests,
    /// Largest data segment that the target accepts.
    pub(super) send_bytes: u32,
    /// Most data that a command carries; 0: none.
    pub(super) immediate_bytes: u32,
}

/// A connection in the full feature phase.
pub(super) struct Connection {
    pub(super) reader: PduReader<ReadHalf<Box<dyn Stream>>>,
    pub(super) writer: WriteHalf<Box<dyn Stream>>,
    pub(super) params: Params,
    /// Number of the next command.
    pub(super) cmd_sn: u32,
    /// The last one allowed.
    pub(super) max_cmd_sn: u32,
    /// Number of the next response.
    pub(super) exp_stat_sn: u32,
}

/// Logs in on new connections: with the next list of digests, if a target refuses one.
pub(super) async fn log_in(
    login: &Login,
    isid: [u8; 6],
    dial: &dyn crate::Dial,
    wrap: impl Fn(Box<dyn Stream>) -> Box<dyn Stream>,
    runtime: &Runtime,
) -> Result<Connection> {
    let mut refused = ServerError::Protocol("it takes no digest of CHAP");
    for algorithms in ALGORITHMS {
        let stream = wrap(dial.dial().await.map_err(|error| ServerError::Connect(error.into()))?);
        let (reader, writer) = tokio::io::split(stream);
        let mut talk = Talk {
            login,
            isid,
            reader: PduReader::new(reader),
            writer,
            exp_stat_sn: 0,
            max_cmd_sn: FIRST_CMD_SN,
            requests: 0,
        };
        match talk.security(algorithms, runtime).await {
            Ok(()) => return talk.operational().await,
            Err(NotIn::Algorithms(error)) => refused = error,
            Err(NotIn::Error(error)) => return Err(error),
        }
    }
    Err(refused)
}

/// Number of a session's first command.
const FIRST_CMD_SN: u32 = 1;

enum NotIn {
    /// The target refuses the list of digests.
    Algorithms(ServerError),
    Error(ServerError),
}

impl From<ServerError> for NotIn {
    fn from(error: ServerError) -> NotIn {
        NotIn::Error(error)
    }
}

struct Talk<'a> {
    login: &'a Login,
    isid: [u8; 6],
    reader: PduReader<ReadHalf<Box<dyn Stream>>>,
    writer: WriteHalf<Box<dyn Stream>>,
    exp_stat_sn: u32,
    max_cmd_sn: u32,
    requests: usize,
}

fn value<'a>(pairs: &'a Pairs, wanted: &str) -> Option<&'a str> {
    pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| &**value)
}

impl Talk<'_> {
    async fn security(&mut self, algorithms: &str, runtime: &Runtime) -> std::result::Result<(), NotIn> {
        let chap = self.login.chap.as_ref();
        let method = match chap {
            None => "None",
            // A target that must prove itself can't go without.
            Some(chap) if chap.target_secret.is_some() => "CHAP",
            Some(_) => "CHAP,None",
        };
        let first = [
            ("InitiatorName", &*self.login.initiator),
            ("TargetName", &self.login.target),
            ("SessionType", "Normal"),
            ("AuthMethod", method),
        ];
        let (pairs, is_over) = self.ask(SECURITY, chap.is_none().then_some(OPERATIONAL), &first).await?;
        let chosen = value(&pairs, "AuthMethod").unwrap_or("None");
        let chap = match (chap, chosen) {
            (Some(chap), "CHAP") => chap,
            (_, "None") if method != "CHAP" => {
                if !is_over {
                    self.pass(SECURITY, OPERATIONAL).await?;
                }
                return Ok(());
            }
            _ => return Err(ServerError::Authentication.into()),
        };
        let (pairs, _) = match self.ask(SECURITY, None, &[("CHAP_A", algorithms)]).await {
            Ok(answer) => answer,
            Err(error @ (ServerError::Authentication | ServerError::Lost(_) | ServerError::Login { .. })) => {
                return Err(NotIn::Algorithms(error));
            }
            Err(error) => return Err(error.into()),
        };
        let malformed = || ServerError::Protocol("its challenge is malformed");
        let algorithm =
            value(&pairs, "CHAP_A").filter(|chosen| algorithms.split(',').any(|it| it == *chosen));
        let algorithm = algorithm.and_then(Algorithm::choose).ok_or_else(malformed)?;
        let id: u8 = value(&pairs, "CHAP_I").and_then(|id| id.parse().ok()).ok_or_else(malformed)?;
        let theirs = value(&pairs, "CHAP_C").and_then(binary).filter(|it| !it.is_empty());
        let theirs = theirs.ok_or_else(malformed)?;
        let response = hex(&algorithm.response(id, &chap.secret, &theirs));
        let mut answer = vec![("CHAP_N", &*chap.user), ("CHAP_R", &*response)];
        let mut random = [0; CHALLENGE_BYTES + 1];
        runtime.fill_secret(&mut random);
        let [own_id, challenge @ ..] = random;
        let (own_id_text, challenge_text) = (own_id.to_string(), hex(&challenge));
        if chap.target_secret.is_some() {
            answer.extend([("CHAP_I", &*own_id_text), ("CHAP_C", &*challenge_text)]);
        }
        let (pairs, is_over) = self.ask(SECURITY, Some(OPERATIONAL), &answer).await?;
        if let (Some(user), Some(secret)) = (&chap.target_user, &chap.target_secret) {
            let response = value(&pairs, "CHAP_R").and_then(binary).unwrap_or_default();
            let is_right = algorithm.is_right(own_id, secret, &challenge, &response);
            // A target with our own challenge wants to learn its own response.
            if value(&pairs, "CHAP_N") != Some(user) || !is_right || theirs == challenge {
                return Err(ServerError::Impostor.into());
            }
        }
        if !is_over {
            return Err(ServerError::Protocol("it does not end the login's first stage").into());
        }
        Ok(())
    }

    async fn operational(mut self) -> Result<Connection> {
        let (receive, burst) = (RECEIVE_BYTES.to_string(), BURST_BYTES.to_string());
        let wanted = [
            ("HeaderDigest", "CRC32C,None"),
            ("DataDigest", "None"),
            ("MaxRecvDataSegmentLength", &*receive),
            ("MaxBurstLength", &*burst),
            ("FirstBurstLength", &*receive),
            ("InitialR2T", "Yes"),
            ("ImmediateData", "Yes"),
            ("MaxOutstandingR2T", "1"),
            ("MaxConnections", "1"),
            ("ErrorRecoveryLevel", "0"),
            ("DataPDUInOrder", "Yes"),
            ("DataSequenceInOrder", "Yes"),
            ("DefaultTime2Wait", "0"),
            ("DefaultTime2Retain", "0"),
        ];
        let (mut pairs, is_over) = self.ask(OPERATIONAL, Some(FULL_FEATURE), &wanted).await?;
        if !is_over {
            pairs.extend(self.pass(OPERATIONAL, FULL_FEATURE).await?);
        }
        let params = agreed(&pairs)?;
        let Talk { mut reader, writer, exp_stat_sn, max_cmd_sn, .. } = self;
        reader.digests = params.digests;
        Ok(Connection { reader, writer, params, cmd_sn: FIRST_CMD_SN, max_cmd_sn, exp_stat_sn })
    }

    /// Asks for the next stage until it is granted. Returns the texts of the answers.
    async fn pass(&mut self, stage: u8, next: u8) -> Result<Pairs> {
        let mut all = Pairs::new();
        loop {
            let (pairs, is_over) = self.ask(stage, Some(next), &[]).await?;
            all.extend(pairs);
            if is_over {
                return Ok(all);
            }
        }
    }

    /// Sends a request. Returns the answer's text, and whether the next stage is granted.
    async fn ask(&mut self, stage: u8, next: Option<u8>, text: &[(&str, &str)]) -> Result<(Pairs, bool)> {
        self.send(stage, next, text::format(text.iter().copied())).await?;
        let mut whole = BytesMut::new();
        loop {
            let bhs = self.reader.head().await?.ok_or_else(gone)?;
            if bhs.opcode() != opcode::LOGIN_RESPONSE {
                return Err(ServerError::Protocol("it does not answer the login"));
            }
            if whole.len() + bhs.data_bytes() > TEXT_BYTES_MAX {
                return Err(ServerError::Protocol("the text of its login is too long"));
            }
            self.reader.data_to(&mut whole, bhs.data_bytes()).await?;
            self.exp_stat_sn = bhs.word(at::STAT_SN).wrapping_add(1);
            self.max_cmd_sn = bhs.word(at::MAX_CMD_SN);
            if bhs.0[36] != 0 {
                return Err(refused(&bhs, &whole));
            }
            if bhs.flags() & CONTINUES != 0 {
                self.send(stage, None, Bytes::new()).await?;
                continue;
            }
            let pairs = text::parse(&whole).ok_or(ServerError::Protocol("its text is malformed"))?;
            let is_granted = bhs.is_final() && next.is_some();
            if is_granted && Some(bhs.flags() & 3) != next {
                return Err(ServerError::Protocol("it grants another stage"));
            }
            return Ok((pairs, is_granted));
        }
    }

    async fn send(&mut self, stage: u8, next: Option<u8>, text: Bytes) -> Result<()> {
        self.requests += 1;
        if self.requests > REQUESTS_MAX {
            return Err(ServerError::Protocol("its login has no end"));
        }
        let transit = next.map_or(0, |next| FINAL | next);
        let mut bhs = Bhs::new(opcode::LOGIN | IMMEDIATE, transit | stage << 2)
            .with(at::CMD_SN, FIRST_CMD_SN)
            .with(at::EXP_CMD_SN, self.exp_stat_sn)
            .with_data_bytes(text.len());
        bhs.0[8..14].copy_from_slice(&self.isid);
        let (mut pieces, mut arena) = (Vec::new(), BytesMut::new());
        put_pdu(&mut pieces, &mut arena, &bhs, &text, Digests::default());
        Ok(write_pieces(&mut self.writer, &mut pieces).await?)
    }
}

/// The connection ended between two messages.
pub(super) fn gone() -> ServerError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}

fn refused(bhs: &Bhs, text: &[u8]) -> ServerError {
    let status = u16::from_be_bytes([bhs.0[36], bhs.0[37]]);
    match (status, bhs.0[36]) {
        (AUTHENTICATION_FAILURE, _) => ServerError::Authentication,
        (_, MOVED) => {
            let pairs = text::parse(text).unwrap_or_default();
            let address = value(&pairs, "TargetAddress").unwrap_or_default();
            ServerError::Moved { address: cleaned(address.as_bytes()) }
        }
        _ => ServerError::Login { status, why: meaning(status) },
    }
}

fn meaning(status: u16) -> &'static str {
    match status {
        0x0202 => "this machine's name may not use the target",
        0x0203 => "there is no such target",
        0x0204 => "the target was removed",
        0x0205 => "another version of the protocol",
        0x0206 | 0x0302 => "too many connections, or too little memory",
        0x0300..=0x03ff => "an error of the target",
        _ => "no reason known",
    }
}

fn agreed(pairs: &Pairs) -> Result<Params> {
    let number = |key: &str, default: u32, most: u32| match value(pairs, key).map(str::parse::<u32>) {
        None | Some(Err(_)) => Ok(default),
        Some(Ok(number)) if (512..=most).contains(&number) => Ok(number),
        Some(Ok(_)) => Err(ServerError::Protocol("a parameter of its login is out of range")),
    };
    let send_bytes = number("MaxRecvDataSegmentLength", 8192, 0xff_ffff)?;
    let first_burst = number("FirstBurstLength", 65536, 0xff_ffff)?;
    let has_immediate = value(pairs, "ImmediateData") == Some("Yes");
    let digests = Digests { header: value(pairs, "HeaderDigest") == Some("CRC32C"), data: false };
    if value(pairs, "DataDigest") == Some("CRC32C") {
        return Err(ServerError::Protocol("it chooses a digest that was not offered"));
    }
    Ok(Params {
        digests,
        send_bytes: send_bytes.min(RECEIVE_BYTES),
        immediate_bytes: if has_immediate { send_bytes.min(first_burst).min(RECEIVE_BYTES) } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[(&str, &str)]) -> Result<Params> {
        agreed(&text.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    }

    #[test]
    fn parameters_are_checked() {
        let params = of(&[]).unwrap();
        assert_eq!((params.send_bytes, params.immediate_bytes, params.digests.header), (8192, 0, false));
        let params = of(&[
            ("MaxRecvDataSegmentLength", "65536"),
            ("FirstBurstLength", "4096"),
            ("ImmediateData", "Yes"),
            ("HeaderDigest", "CRC32C"),
        ]);
        let params = params.unwrap();
        assert_eq!((params.send_bytes, params.immediate_bytes, params.digests.header), (65536, 4096, true));
        for bytes in ["0", "511", "16777216", "4294967295"] {
            assert!(of(&[("MaxRecvDataSegmentLength", bytes)]).is_err(), "{bytes}");
        }
        assert!(of(&[("DataDigest", "CRC32C")]).is_err());
    }
}

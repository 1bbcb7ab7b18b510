//! Text keys and values, and parameter negotiation.
//!
//! Idea: each negotiable key is one line of [`Params::negotiate`] with its rule: the smaller value, OR, AND.
//!
//! Source: RFC 7143, sections 6 and 13.

use bytes::{BufMut, Bytes, BytesMut};

use crate::pdu::Digests;

/// Longest text of one negotiation.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
/// Largest data segment this target accepts, `MaxRecvDataSegmentLength`.
pub const RECEIVE_BYTES: u32 = 256 << 10;
/// `MaxBurstLength`: most data per R2T.
const BURST_BYTES: u32 = 1 << 20;
/// `FirstBurstLength`: most unsolicited data per command.
const FIRST_BURST_BYTES: u32 = 64 << 10;

/// Keys and values, in order.
pub type Pairs = Vec<(String, String)>;

/// Parses text; `None` if malformed.
pub fn parse(data: &[u8]) -> Option<Pairs> {
    let text = std::str::from_utf8(data).ok()?;
    let pairs = text.split('\0').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').map(|(key, value)| (key.into(), value.into()))).collect()
}

/// Formats text.
pub fn format<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Bytes {
    let mut text = BytesMut::new();
    for (key, value) in pairs {
        text.put_slice(key.as_bytes());
        text.put_u8(b'=');
        text.put_slice(value.as_bytes());
        text.put_u8(0);
    }
    text.freeze()
}

/// Negotiated session parameters.
#[derive(Debug, Clone)]
pub struct Params {
    /// Digests in the full feature phase.
    pub digests: Digests,
    /// Largest data segment the initiator accepts.
    pub send_bytes: u32,
    /// Longest data burst.
    pub burst_bytes: u32,
    /// Most unsolicited data per command.
    pub first_burst_bytes: u32,
    /// Non-immediate data requires an R2T.
    pub initial_r2t: bool,
    /// Commands may carry immediate data.
    pub immediate_data: bool,
    has_declared: bool,
}

impl Default for Params {
    /// Values before negotiation.
    fn default() -> Params {
        Params {
            digests: Digests::default(),
            send_bytes: 8192,
            burst_bytes: BURST_BYTES.min(262_144),
            first_burst_bytes: FIRST_BURST_BYTES,
            initial_r2t: true,
            immediate_data: true,
            has_declared: false,
        }
    }
}

impl Params {
    /// Applies the initiator's value of a key and returns the answer. `is_discovery`: the session is for
    /// discovery, where some keys are irrelevant.
    pub fn negotiate(&mut self, key: &str, value: &str, is_discovery: bool) -> Pairs {
        let number = |from: u32, to: u32| number(value).filter(|number| (from..=to).contains(number));
        let reject = || "Reject".to_owned();
        let answer = match key {
            "HeaderDigest" => self.digest(value, |digests| &mut digests.header),
            "DataDigest" => self.digest(value, |digests| &mut digests.data),
            "MaxRecvDataSegmentLength" => match number(512, 0xff_ffff) {
                Some(bytes) => {
                    self.send_bytes = bytes.min(1 << 20);
                    // Each side declares its own limit, once.
                    if std::mem::replace(&mut self.has_declared, true) {
                        return Pairs::new();
                    }
                    RECEIVE_BYTES.to_string()
                }
                None => reject(),
            },
            "MaxConnections" | "MaxOutstandingR2T" => number(1, 65535).map_or_else(reject, |_| "1".into()),
            "ErrorRecoveryLevel" => number(0, 2).map_or_else(reject, |_| "0".into()),
            "DefaultTime2Wait" => number(0, 3600).map_or_else(reject, |wait| wait.max(2).to_string()),
            "DefaultTime2Retain" => number(0, 3600).map_or_else(reject, |_| "0".into()),
            "MaxBurstLength" | "FirstBurstLength" | "InitialR2T" | "ImmediateData" if is_discovery => {
                "Irrelevant".into()
            }
            "MaxBurstLength" => match number(512, 0xff_ffff) {
                Some(bytes) => {
                    self.burst_bytes = bytes.min(BURST_BYTES);
                    self.burst_bytes.to_string()
                }
                None => reject(),
            },
            "FirstBurstLength" => match number(512, 0xff_ffff) {
                Some(bytes) => {
                    self.first_burst_bytes = bytes.min(FIRST_BURST_BYTES);
                    self.first_burst_bytes.to_string()
                }
                None => reject(),
            },
            "InitialR2T" => flag(value).map_or_else(reject, |wanted| {
                self.initial_r2t = wanted;
                yes_or_no(wanted)
            }),
            "ImmediateData" => flag(value).map_or_else(reject, |wanted| {
                self.immediate_data = wanted;
                yes_or_no(wanted)
            }),
            "DataPDUInOrder" | "DataSequenceInOrder" => flag(value).map_or_else(reject, |_| "Yes".into()),
            "OFMarker" | "IFMarker" => "No".into(),
            "OFMarkInt" | "IFMarkInt" => "Irrelevant".into(),
            "iSCSIProtocolLevel" => number(0, 31).map_or_else(reject, |level| level.min(1).to_string()),
            "TaskReporting" => "RFC3720".into(),
            // Declarations need no answer.
            "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" | "AuthMethod" => {
                return Pairs::new();
            }
            _ => "NotUnderstood".into(),
        };
        vec![(key.into(), answer)]
    }

    fn digest(&mut self, wanted: &str, which: impl Fn(&mut Digests) -> &mut bool) -> String {
        for one in wanted.split(',') {
            if one == "None" || one == "CRC32C" {
                *which(&mut self.digests) = one == "CRC32C";
                return one.into();
            }
        }
        "Reject".into()
    }
}

fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn yes_or_no(is_yes: bool) -> String {
    if is_yes { "Yes".into() } else { "No".into() }
}

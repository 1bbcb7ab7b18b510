//! Disks of iSCSI targets.
//!
//! Secrets are in a file, so no address has one. Names of targets are not encoded: letters, digits, `-`, `.`,
//! `:` and `_` need no encoding.
//!
//! Source: RFC 7143, section 4.2.7 (names); SAM-5, section 4.7 (numbers of logical units).

use std::path::PathBuf;

use super::{IN_LABELS, ISCSI, PlaceError, encode, host_and_port, parameter, put_host};

/// iSCSI's port.
pub const ISCSI_PORT: u16 = 3260;
const CHAP: &str = "chap";
/// Longest name of a target, by the protocol.
const NAME_BYTES_MAX: usize = 223;
/// Kinds of names.
const NAME_TYPES: [&str; 3] = ["iqn.", "eui.", "naa."];

/// A disk of an iSCSI target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IscsiPlace {
    /// Name or address of its server; IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Name of the target, in small letters.
    pub target: String,
    /// Number of the logical unit.
    pub lun: u8,
    /// File with secrets; `None`: the default one.
    pub chap: Option<PathBuf>,
}

impl IscsiPlace {
    /// `HOST[:PORT]/IQN/LUN[?chap=PATH]`
    pub(super) fn parse(rest: &str) -> Result<IscsiPlace, PlaceError> {
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = body.split_once('/').unwrap_or((body, ""));
        let (host, port) = host_and_port(ISCSI, authority, ISCSI_PORT)?;
        let (target, lun) = path.split_once('/').ok_or(PlaceError::Target)?;
        let target = target.to_ascii_lowercase();
        let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte);
        let is_named = |kind: &&str| target.strip_prefix(*kind).is_some_and(|rest| !rest.is_empty());
        let is_name = target.len() <= NAME_BYTES_MAX && target.bytes().all(may_be);
        if !is_name || !NAME_TYPES.iter().any(is_named) {
            return Err(PlaceError::Target);
        }
        // One text for each number.
        let is_number =
            lun.bytes().all(|byte| byte.is_ascii_digit()) && (lun == "0" || !lun.starts_with('0'));
        let lun = lun.parse().ok().filter(|_| is_number).ok_or(PlaceError::Target)?;
        let chap = parameter(ISCSI, query, &[CHAP])?.map(|(_, file)| file);
        Ok(IscsiPlace { host, port, target, lun, chap })
    }

    /// Labels come from anywhere: they don't choose files of secrets.
    pub(super) fn of_label(rest: &str) -> Option<IscsiPlace> {
        IscsiPlace::parse(rest).ok().filter(|_| !rest.contains('?'))
    }

    pub(super) fn shown(&self) -> String {
        format!("{ISCSI}://{}", self.after_scheme())
    }

    pub(super) fn in_labels(&self) -> String {
        format!("{IN_LABELS}{ISCSI}/{}", self.after_scheme())
    }

    /// `?chap=PATH`
    pub(super) fn put_parameters(&self, text: &mut String) {
        if let Some(file) = &self.chap {
            *text += &format!("?{CHAP}=");
            encode(text, &file.to_string_lossy(), true);
        }
    }

    fn after_scheme(&self) -> String {
        let mut text = String::new();
        put_host(&mut text, &self.host, self.port, ISCSI_PORT);
        text + &format!("/{}/{}", self.target, self.lun)
    }
}

//! Places: where a device is, as users, configuration files and the daemon's record name it.
//!
//! ```text
//!   typed and recorded                 shown                in labels
//!   /dev/sda, disk.img                 the same             the same, absolute
//!   nbd://HOST[:PORT]/EXPORT           the same             /dev/cenote/nbd/HOST[:PORT]/EXPORT
//!   nbds://HOST[:PORT]/EXPORT
//!       [?tls-certificates=DIR]        without the query    /dev/cenote/nbds/HOST[:PORT]/EXPORT
//!   nbd+unix:///EXPORT?socket=PATH     the same             /dev/cenote/nbd+unix/PATH/EXPORT
//!   rbd:POOL[/NAMESPACE]/IMAGE
//!       [?conf=PATH&id=USER]           without the query    /dev/rbd/POOL[/NAMESPACE]/IMAGE
//!   iscsi://HOST[:PORT]/IQN/LUN
//!       [?chap=PATH]                   without the query    /dev/cenote/iscsi/HOST[:PORT]/IQN/LUN
//!   s3://BUCKET/PREFIX
//!       [?endpoint=URL&region=NAME]    the same             /dev/cenote/s3/SERVER/BUCKET/PREFIX
//!       [&size=SIZE]                   without the size
//! ```
//!
//! SERVER is `aws` or the endpoint, with `,REGION` if one is named.
//!
//! Idea: a label's path must be absolute, or OpenZFS refuses the vdev. So a remote place has its own path
//! below `/dev/cenote`, and [`Place::from`] recognises it: lists of paths, such as the labels' paths, can
//! name remote places. The path of a socket is one part of it, with its slashes encoded. An image of RBD has
//! the path that the kernel's client gives it; where such a block device exists, the path means that one.
//!
//! Secrets: user names and passwords are refused, so no label, history or message can hold them. Errors
//! contain only an address's scheme and the names of its parameters.
//!
//! Source: the NBD project's `doc/uri.md`; OpenZFS `vdev_disk.c` (`vdev_disk_open`: absolute paths); Ceph's
//! `ceph-rbdnamer` (names below `/dev/rbd`).

mod iscsi;
mod rbd;
mod s3;

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use iscsi::{ISCSI_PORT, IscsiPlace};
pub use rbd::RbdPlace;
pub use s3::S3Place;

/// NBD's port.
pub const NBD_PORT: u16 = 10809;
/// Longest name of an export, by the protocol.
const EXPORT_BYTES_MAX: usize = 4096;
/// Longest path of a socket (`sun_path`, with its final zero).
const SOCKET_BYTES_MAX: usize = 107;
/// Longest host name (RFC 1035).
const HOST_BYTES_MAX: usize = 253;
/// The folder of remote places in labels.
const IN_LABELS: &str = "/dev/cenote/";

/// Where a device is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A file, block device or folder of this machine.
    Path(PathBuf),
    /// An export of an NBD server.
    Nbd(NbdPlace),
    /// A disk of an iSCSI target.
    Iscsi(IscsiPlace),
    /// An image of a Ceph cluster.
    Rbd(RbdPlace),
    /// A disk in an S3 object store.
    S3(S3Place),
}

/// An export of an NBD server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NbdPlace {
    /// Its server.
    pub server: NbdServer,
    /// Name of the export; empty: the server's default.
    pub export: String,
    /// Connections are encrypted, and the server shows a certificate.
    pub is_tls: bool,
    /// Folder with `ca-cert.pem` and the client's certificate; none: the default one.
    pub certificates: Option<PathBuf>,
}

/// An NBD server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NbdServer {
    /// Over the network.
    Tcp {
        /// Name or address; IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A socket in this machine's file system.
    Unix(PathBuf),
}

/// Why a text names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Another kind of address.
    #[error(
        "'{scheme}://' is not supported; a device is a path, nbd://, nbds://, nbd+unix://, iscsi://, rbd: or \
         s3://"
    )]
    Scheme {
        /// Its kind.
        scheme: String,
    },
    /// A user name or password.
    #[error(
        "{scheme}://: an address with a user name is not supported; clients are known by certificates, or by \
         CHAP, whose file ?chap=PATH names"
    )]
    User {
        /// Kind of address.
        scheme: &'static str,
    },
    /// No usable host.
    #[error("{scheme}://: the host is no name or address, such as storage1, 192.0.2.1:1234 or [::1]")]
    Host {
        /// Kind of address.
        scheme: &'static str,
    },
    /// No usable port.
    #[error("{scheme}://: the port is no number from 1 to 65535")]
    Port {
        /// Kind of address.
        scheme: &'static str,
    },
    /// No usable name of an export.
    #[error(
        "{scheme}://: the export's name is too long, or is not UTF-8 with '%' only before two hex digits"
    )]
    Export {
        /// Kind of address.
        scheme: &'static str,
    },
    /// No target, or no number of a logical unit.
    #[error("iscsi://: the address is no target and unit: iscsi://HOST/iqn.2026-11.org.example:disk/0")]
    Target,
    /// No usable bucket or prefix.
    #[error("s3://: the address is no bucket and prefix: s3://BUCKET/PREFIX")]
    Bucket,
    /// A parameter's value.
    #[error("s3://: '{name}' must be given once, as {expected}")]
    Value {
        /// Its name.
        name: &'static str,
        /// An example.
        expected: &'static str,
    },
    /// An unknown parameter.
    #[error("{}: unknown parameter '{name}'", begins(scheme))]
    Parameter {
        /// Kind of address.
        scheme: &'static str,
        /// Its name.
        name: String,
    },
    /// A parameter missing, given twice, or no absolute path.
    #[error("{}: '{name}' must be given once, as an absolute path", begins(scheme))]
    NoPath {
        /// Kind of address.
        scheme: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// No image of RBD.
    #[error("rbd: the address is not rbd:POOL/IMAGE or rbd:POOL/NAMESPACE/IMAGE")]
    Image,
    /// No user of Ceph.
    #[error("rbd: 'id' must be given once, as the user's name without 'client.'")]
    RbdUser,
}

fn begins(scheme: &str) -> String {
    if scheme == RBD { "rbd".into() } else { format!("{scheme}://") }
}

const NBD: &str = "nbd";
const NBDS: &str = "nbds";
const NBD_UNIX: &str = "nbd+unix";
const ISCSI: &str = "iscsi";
const RBD: &str = "rbd";
const SOCKET: &str = "socket";
const CERTIFICATES: &str = "tls-certificates";
const S3: &str = "s3";

impl Place {
    /// Parses a place as users type it. Paths stay relative.
    ///
    /// # Errors
    /// An address of another kind, or a malformed one.
    pub fn parse(typed: &str) -> Result<Place, PlaceError> {
        if let Some(rest) = RbdPlace::after_scheme(typed) {
            return RbdPlace::parse(rest).map(Place::Rbd);
        }
        let Some((scheme, rest)) = scheme(typed) else { return Ok(Place::from(Path::new(typed))) };
        match scheme {
            NBD => over_network(NBD, rest).map(Place::Nbd),
            NBDS => over_network(NBDS, rest).map(Place::Nbd),
            NBD_UNIX => over_socket(rest).map(Place::Nbd),
            ISCSI => IscsiPlace::parse(rest).map(Place::Iscsi),
            S3 => S3Place::parse(rest).map(Place::S3),
            other => Err(PlaceError::Scheme { scheme: other.to_owned() }),
        }
    }

    /// Parses a place typed as an operating system's string: only UTF-8 can be an address.
    ///
    /// # Errors
    /// As [`Place::parse`].
    pub fn typed(typed: &Path) -> Result<Place, PlaceError> {
        typed.to_str().map_or_else(|| Ok(Place::Path(typed.to_owned())), Place::parse)
    }

    /// The path in this machine's file systems, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Place::Path(path) => Some(path),
            Place::Nbd(_) | Place::Iscsi(_) | Place::Rbd(_) | Place::S3(_) => None,
        }
    }

    /// Whether the device is reached through a server.
    pub fn is_remote(&self) -> bool {
        self.path().is_none()
    }

    /// As shown to people, as a path: the type of answers and lists.
    pub fn shown(&self) -> PathBuf {
        match self {
            Place::Path(path) => path.clone(),
            remote => remote.to_string().into(),
        }
    }

    /// The path for labels.
    pub fn in_labels(&self) -> PathBuf {
        let nbd = match self {
            Place::Path(path) => return path.clone(),
            Place::Iscsi(iscsi) => return iscsi.in_labels().into(),
            Place::Rbd(rbd) => return rbd.in_labels(),
            Place::S3(s3) => return s3.in_labels().into(),
            Place::Nbd(nbd) => nbd,
        };
        let mut text = format!("{IN_LABELS}{}/", nbd.scheme());
        match &nbd.server {
            NbdServer::Tcp { .. } => nbd.put_server(&mut text),
            NbdServer::Unix(path) => encode(&mut text, &path.to_string_lossy(), false),
        }
        text.push('/');
        encode(&mut text, &nbd.export, true);
        text.into()
    }

    /// The complete text, from which [`Place::parse`] makes the same place: for the daemon's own record.
    pub fn recorded(&self) -> PathBuf {
        let mut text = self.to_string();
        match self {
            Place::Path(path) => return path.clone(),
            Place::Iscsi(iscsi) => iscsi.put_parameters(&mut text),
            Place::Rbd(rbd) => rbd.put_parameters(&mut text),
            Place::Nbd(NbdPlace { certificates: None, .. }) => {}
            Place::S3(s3) => s3.put_size(&mut text),
            Place::Nbd(NbdPlace { certificates: Some(folder), .. }) => {
                text += &format!("?{CERTIFICATES}=");
                encode(&mut text, &folder.to_string_lossy(), true);
            }
        }
        text.into()
    }

    /// The same with an absolute path.
    pub fn absolute(self) -> Place {
        match self {
            Place::Path(path) => Place::Path(std::path::absolute(&path).unwrap_or(path)),
            remote => remote,
        }
    }

    fn of_label(path: &str) -> Option<Place> {
        if let Some(rbd) = RbdPlace::of_label(path) {
            return Some(Place::Rbd(rbd));
        }
        let (scheme, rest) = path.strip_prefix(IN_LABELS)?.split_once('/')?;
        let parsed = match scheme {
            NBD => over_network(NBD, rest),
            NBDS => over_network(NBDS, rest),
            NBD_UNIX => {
                let (socket, export) = rest.split_once('/')?;
                let server = NbdServer::Unix(socket_path(decode(socket)?.into())?);
                let export = export_name(NBD_UNIX, export).ok()?;
                Ok(NbdPlace { server, export, is_tls: false, certificates: None })
            }
            ISCSI => return IscsiPlace::of_label(rest).map(Place::Iscsi),
            S3 => return S3Place::of_label(rest).map(Place::S3),
            _ => return None,
        };
        parsed.ok().map(Place::Nbd)
    }
}

/// Shown to people: without parameters that only this machine needs.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nbd = match self {
            Place::Path(path) => return path.display().fmt(f),
            Place::Iscsi(iscsi) => return f.write_str(&iscsi.shown()),
            Place::Rbd(rbd) => return f.write_str(&rbd.shown()),
            Place::S3(s3) => return s3.fmt(f),
            Place::Nbd(nbd) => nbd,
        };
        let mut text = format!("{}://", nbd.scheme());
        nbd.put_server(&mut text);
        text.push('/');
        encode(&mut text, &nbd.export, true);
        if let NbdServer::Unix(path) = &nbd.server {
            write!(text, "?{SOCKET}=")?;
            encode(&mut text, &path.to_string_lossy(), true);
        }
        f.write_str(&text)
    }
}

/// A path of this machine, of a label, or an address.
impl From<&Path> for Place {
    fn from(path: &Path) -> Place {
        let remote = path.to_str().and_then(|text| match scheme(text) {
            Some((NBD | NBDS | NBD_UNIX | ISCSI | S3, _)) => Place::parse(text).ok(),
            Some(_) => None,
            None if RbdPlace::after_scheme(text).is_some() => Place::parse(text).ok(),
            None => Place::of_label(text),
        });
        remote.unwrap_or_else(|| Place::Path(path.to_owned()))
    }
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Place {
        Place::from(&*path)
    }
}

impl From<&PathBuf> for Place {
    fn from(path: &PathBuf) -> Place {
        Place::from(&**path)
    }
}

impl From<&Place> for Place {
    fn from(place: &Place) -> Place {
        place.clone()
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.recorded().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Place, D::Error> {
        PathBuf::deserialize(deserializer).map(Place::from)
    }
}

impl NbdPlace {
    fn scheme(&self) -> &'static str {
        match (&self.server, self.is_tls) {
            (NbdServer::Unix(_), _) => NBD_UNIX,
            (NbdServer::Tcp { .. }, true) => NBDS,
            (NbdServer::Tcp { .. }, false) => NBD,
        }
    }

    /// `HOST[:PORT]`; nothing for a socket.
    fn put_server(&self, text: &mut String) {
        if let NbdServer::Tcp { host, port } = &self.server {
            put_host(text, host, *port, NBD_PORT);
        }
    }
}

/// `HOST[:PORT]`
fn put_host(text: &mut String, host: &str, port: u16, usual: u16) {
    match host.contains(':') {
        true => *text += &format!("[{host}]"),
        false => *text += host,
    }
    if port != usual {
        *text += &format!(":{port}");
    }
}

/// The kind of an address, and the rest after `://`.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let mut bytes = scheme.bytes();
    let is_scheme = bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte));
    is_scheme.then_some((scheme, rest))
}

/// `HOST[:PORT][/EXPORT][?QUERY]`
fn over_network(scheme: &'static str, rest: &str) -> Result<NbdPlace, PlaceError> {
    let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = body.split_once('/').unwrap_or((body, ""));
    let (host, port) = host_and_port(scheme, authority, NBD_PORT)?;
    let is_tls = scheme == NBDS;
    let known: &[&'static str] = if is_tls { &[CERTIFICATES] } else { &[] };
    let certificates = parameter(scheme, query, known)?.map(|(_, folder)| folder);
    let server = NbdServer::Tcp { host, port };
    Ok(NbdPlace { server, export: export_name(scheme, export)?, is_tls, certificates })
}

/// `HOST[:PORT]`
fn host_and_port(scheme: &'static str, authority: &str, usual: u16) -> Result<(String, u16), PlaceError> {
    if authority.contains('@') {
        return Err(PlaceError::User { scheme });
    }
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':').or(port.is_empty().then_some(""))),
        None => authority.split_once(':').map_or((authority, Some("")), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some("") if !authority.ends_with(':') => usual,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or(PlaceError::Port { scheme })?,
        None => return Err(PlaceError::Host { scheme }),
    };
    let is_v6 = authority.starts_with('[');
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte) || is_v6 && byte == b':';
    if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(may_be) {
        return Err(PlaceError::Host { scheme });
    }
    Ok((host.to_ascii_lowercase(), port))
}

/// `/EXPORT?socket=PATH`
fn over_socket(rest: &str) -> Result<NbdPlace, PlaceError> {
    let scheme = NBD_UNIX;
    let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
    let export = body.strip_prefix('/').or(body.is_empty().then_some(""));
    let export = export_name(scheme, export.ok_or(PlaceError::Host { scheme })?)?;
    let missing = PlaceError::NoPath { scheme, name: SOCKET };
    let socket = parameter(scheme, query, &[SOCKET])?.and_then(|(_, path)| socket_path(path));
    let socket = socket.ok_or(missing)?;
    Ok(NbdPlace { server: NbdServer::Unix(socket), export, is_tls: false, certificates: None })
}

fn socket_path(path: PathBuf) -> Option<PathBuf> {
    let is_short = path.as_os_str().len() <= SOCKET_BYTES_MAX;
    (is_short && path.is_absolute()).then_some(path)
}

fn export_name(scheme: &'static str, encoded: &str) -> Result<String, PlaceError> {
    let is_name = |name: &String| name.len() <= EXPORT_BYTES_MAX && !name.contains('\0');
    decode(encoded).filter(is_name).ok_or(PlaceError::Export { scheme })
}

/// The only parameter of a query, an absolute path.
fn parameter(
    scheme: &'static str,
    query: &str,
    known: &[&'static str],
) -> Result<Option<(&'static str, PathBuf)>, PlaceError> {
    let mut found = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let known = known.iter().copied().find(|known| *known == name);
        let name = known.ok_or_else(|| unknown(scheme, name))?;
        let path = decode(value).map(PathBuf::from).filter(|path| path.is_absolute());
        match path.filter(|_| found.is_none()) {
            Some(path) => found = Some((name, path)),
            None => return Err(PlaceError::NoPath { scheme, name }),
        }
    }
    Ok(found)
}

/// An error for an unknown parameter, with the beginning of its name.
fn unknown(scheme: &'static str, name: &str) -> PlaceError {
    PlaceError::Parameter { scheme, name: name.chars().take(32).collect() }
}

/// Percent-encoding of all but harmless characters.
fn encode(out: &mut String, text: &str, keeps_slashes: bool) {
    for byte in text.bytes() {
        match byte {
            b'/' if keeps_slashes => out.push('/'),
            byte if byte.is_ascii_alphanumeric() || b"-._~@+,=".contains(&byte) => out.push(byte.into()),
            byte => *out += &format!("%{byte:02X}"),
        }
    }
}

fn decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Place {
        Place::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_place_is_shown_as_it_is_typed_and_found_again_by_its_label() {
        for (typed, shown, label) in [
            ("/dev/sda", "/dev/sda", "/dev/sda"),
            ("disk.img", "disk.img", "disk.img"),
            ("nbd://a/x", "nbd://a/x", "/dev/cenote/nbd/a/x"),
            ("nbd://A:10809/x", "nbd://a/x", "/dev/cenote/nbd/a/x"),
            ("nbd://a:7/tank/vol", "nbd://a:7/tank/vol", "/dev/cenote/nbd/a:7/tank/vol"),
            ("nbd://[fe80::1]:7/x", "nbd://[fe80::1]:7/x", "/dev/cenote/nbd/[fe80::1]:7/x"),
            ("nbd://a", "nbd://a/", "/dev/cenote/nbd/a/"),
            ("nbd://a/a%20b%3F", "nbd://a/a%20b%3F", "/dev/cenote/nbd/a/a%20b%3F"),
            ("nbds://a/x?tls-certificates=/etc/c", "nbds://a/x", "/dev/cenote/nbds/a/x"),
            (
                "nbd+unix:///x?socket=/run/s%3Fx",
                "nbd+unix:///x?socket=/run/s%3Fx",
                "/dev/cenote/nbd+unix/%2Frun%2Fs%3Fx/x",
            ),
            (
                "iscsi://A:3260/IQN.2026-11.org.cenote:tank:.4fther.5f1/0",
                "iscsi://a/iqn.2026-11.org.cenote:tank:.4fther.5f1/0",
                "/dev/cenote/iscsi/a/iqn.2026-11.org.cenote:tank:.4fther.5f1/0",
            ),
            (
                "iscsi://[::1]:7/iqn.a/255?chap=/etc/c%26",
                "iscsi://[::1]:7/iqn.a/255",
                "/dev/cenote/iscsi/[::1]:7/iqn.a/255",
            ),
            ("rbd:vms/disk-1", "rbd:vms/disk-1", "/dev/rbd/vms/disk-1"),
            ("rbd:vms/a%20b/x.y", "rbd:vms/a%20b/x.y", "/dev/rbd/vms/a%20b/x.y"),
            ("rbd:vms/x?conf=/etc/c%26.conf&id=zfs", "rbd:vms/x", "/dev/rbd/vms/x"),
            ("s3://bucket/a/b%3F/", "s3://bucket/a/b%3F", "/dev/cenote/s3/aws/bucket/a/b%3F"),
            (
                "s3://my.bucket/a?region=eu-1&endpoint=https%3A%2F%2FHost:9000/",
                "s3://my.bucket/a?endpoint=https://host:9000&region=eu-1",
                "/dev/cenote/s3/https%3A%2F%2Fhost%3A9000,eu-1/my.bucket/a",
            ),
        ] {
            let place = parse(typed);
            assert_eq!(place.to_string(), shown);
            assert_eq!(place.in_labels(), PathBuf::from(label));
            assert_eq!(Place::from(place.recorded()), place, "{typed}");
            assert_eq!(Place::from(Path::new(label)).to_string(), shown);
            assert_eq!(place.is_remote(), typed.contains("://") || typed.starts_with("rbd:"));
            let json = serde_json::to_string(&place).unwrap();
            assert_eq!(serde_json::from_str::<Place>(&json).unwrap(), place);
        }
    }

    #[test]
    fn the_folder_of_certificates_is_recorded_but_not_shown() {
        let place = parse("nbds://a/x?tls-certificates=/etc/my%20c");
        assert_eq!(place.recorded(), PathBuf::from("nbds://a/x?tls-certificates=/etc/my%20c"));
        assert!(!format!("{place} {}", place.in_labels().display()).contains("etc"));
    }

    #[test]
    fn a_wrong_address_is_an_error_without_its_secrets() {
        for typed in [
            "nbd://user:secret@a/x",
            "nbd://secret@a/x",
            "nbd:///x",
            "nbd://[::1/secret",
            "nbd://[::1]secret/x",
            "nbd://a:0/x",
            "nbd://a:/x",
            "nbd://a:secret/x",
            "nbd://a/%zz",
            "nbd://a/%00",
            "nbd://a/x?password=secret",
            "nbd://a/x?tls-certificates=/secret",
            "nbds://a/x?tls-certificates=secret",
            "nbds://a/x?tls-certificates=/a&tls-certificates=/secret",
            "nbd+unix:///x",
            "nbd+unix:///x?socket=secret",
            "nbd+unix://host/x?socket=/s",
            "iscsi://user:secret@a/iqn.a/0",
            "iscsi://a/secret",
            "iscsi://a/secret/0",
            "iscsi://a/iqn.a/secret",
            "iscsi://a/iqn.a/256",
            "iscsi://a/iqn.a/00",
            "iscsi://a/iqn./0",
            "iscsi://a/iqn.a/0/secret",
            "iscsi://a/iqn.a/0?password=secret",
            "iscsi://a/iqn.a/0?chap=secret",
            "rbd://pool/secret",
            "rbd:secret",
            "rbd:pool/ns/secret/x",
            "rbd:pool//secret",
            "rbd:pool/x@secret",
            "rbd:pool/x?key=secret",
            "rbd:pool/x?conf=secret",
            "rbd:pool/x?id=se%20cret",
            "rbd:pool/x?id=a&id=secret",
            "s3://secret",
            "s3://user:secret@bucket/p",
            "s3://Bucket/secret",
            "s3://bucket/secret/../x",
            "s3://bucket//secret",
            "s3://bucket/p?password=secret",
            "s3://bucket/p?endpoint=secret",
            "s3://bucket/p?endpoint=http://user:secret@host",
            "s3://bucket/p?endpoint=https://host/secret",
            "s3://bucket/p?region=secret/x",
            "s3://bucket/p?size=secret",
            "s3://bucket/p?size=1T&size=2T",
            "s3://bucket/p?size=99999999T",
        ] {
            let error = Place::parse(typed).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{typed}: {error}");
        }
        let error = Place::parse("nvme://h/x").unwrap_err();
        assert_eq!(error, PlaceError::Scheme { scheme: "nvme".into() });
        assert!(error.to_string().contains("nbd+unix://"), "{error}");
    }

    #[test]
    fn the_size_of_a_disk_in_a_bucket_is_recorded_but_neither_shown_nor_in_labels() {
        for (size, bytes) in [("1T", 1 << 40), ("4096", 4096), ("3gib", 3 << 30), ("2MB", 2 << 20)] {
            let place = parse(&format!("s3://bucket/a?size={size}&region=x"));
            let Place::S3(s3) = &place else { panic!("{place}") };
            assert_eq!(s3.size_bytes, Some(bytes));
            assert_eq!(place.to_string(), "s3://bucket/a?region=x");
            assert_eq!(place.in_labels(), PathBuf::from("/dev/cenote/s3/aws,x/bucket/a"));
            assert_eq!(place.recorded(), PathBuf::from(format!("s3://bucket/a?region=x&size={bytes}")));
        }
    }

    #[test]
    fn paths_that_only_resemble_addresses_stay_paths() {
        let labels = ["x/a/b", "nbd", "nbd/@/x", "nbd+unix/s/x"].map(|path| format!("{IN_LABELS}{path}"));
        for path in ["a:b", "C:/x", "/a/nbd://b"].into_iter().chain(labels.iter().map(String::as_str)) {
            assert_eq!(Place::parse(path), Ok(Place::Path(path.into())));
        }
    }
}

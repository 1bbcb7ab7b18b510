//! Finds the owner of a TCP connection on this machine.
//!
//! Idea: the kernel looks up a socket's owner by its addresses (`NETLINK_SOCK_DIAG`): a local client's are
//! our end's, swapped. For a connection closed by its client, the kernel would name root; then, or if the
//! kernel can't be asked, the owner is unknown.
//!
//! ```text
//!   request   nlmsghdr 16 | family, protocol, extensions, -, states 4 | sockid 48
//!   answer    nlmsghdr 16 | family, state, timer, retransmits 4 | sockid 48
//!             | expires 4 | receive queue 4 | send queue 4 | uid 4 | inode 4
//!   sockid    ports 2 + 2, big endian | source 16 | destination 16 | interface 4 | cookie 8
//! ```
//!
//! Source: sock_diag(7), netlink(7); `inet_diag_find_one_icsk` of Linux.

use std::net::{IpAddr, SocketAddr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

const HEADER_BYTES: usize = 16;
const SOCKID_BYTES: usize = 48;
const REQUEST_BYTES: usize = HEADER_BYTES + 8 + SOCKID_BYTES;
/// Field offsets in an answer, and its end.
const STATE_AT: usize = HEADER_BYTES + 1;
const UID_AT: usize = HEADER_BYTES + 4 + SOCKID_BYTES + 12;
const INODE_AT: usize = UID_AT + 4;
const ANSWER_BYTES: usize = INODE_AT + 4;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const TCP_ESTABLISHED: u8 = 1;

/// The user at the `client` end of a connection to `server`, if on this machine.
pub(super) fn of_client(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::SOCK_DIAG),
    );
    let kernel = kernel.ok()?;
    send(&kernel, &request(client, server), SendFlags::empty()).ok()?;
    // The answer is ready when `send` returns.
    let mut answer = [0; 512];
    let (got, _) = recv(&kernel, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    uid_of(answer.get(..got)?)
}

fn request(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let is_v4 = client.ip().to_canonical().is_ipv4();
    let family = if is_v4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut request = Vec::with_capacity(REQUEST_BYTES);
    request.extend((REQUEST_BYTES as u32).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]); // sequence number, and the kernel's address
    request.extend([family.as_raw() as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes());
    request.extend([client, server].map(|end| end.port().to_be_bytes()).concat());
    for end in [client, server] {
        match end.ip().to_canonical() {
            IpAddr::V4(ip) => request.extend([&ip.octets()[..], &[0; 12]].concat()),
            IpAddr::V6(ip) => request.extend(ip.octets()),
        }
    }
    request.extend([0; 4]);
    request.extend([0xff; 8]); // INET_DIAG_NOCOOKIE
    request
}

/// The owner in an answer, if the connection has one.
fn uid_of(answer: &[u8]) -> Option<u32> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let is_of_somebody = kind == SOCK_DIAG_BY_FAMILY
        && answer.len() >= ANSWER_BYTES
        && answer[STATE_AT] == TCP_ESTABLISHED
        && word(INODE_AT)? != 0;
    if is_of_somebody { word(UID_AT) } else { None }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_owner_of_a_connection_is_known_until_it_is_closed() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, from) = listener.accept().unwrap();
            let here = server.local_addr().unwrap();
            assert_eq!(of_client(from, here), Some(rustix::process::getuid().as_raw()), "{address}");
            drop(client);
            // A program started by another test may hold it for a moment, too.
            let begun = std::time::Instant::now();
            while of_client(from, here).is_some() {
                assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{address}");
                std::thread::yield_now();
            }
            // No client is connected from there.
            assert_eq!(of_client(SocketAddr::new([192, 0, 2, 1].into(), 7), here), None);
        }
    }
}

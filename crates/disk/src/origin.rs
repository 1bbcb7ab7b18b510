//! Origins of clients, by which shares are accounted.
//!
//! Idea: a local user is a user ID, through any protocol. A remote machine is its address, or its /64 network
//! in IPv6, since a machine usually has a whole one.

use std::net::{IpAddr, Ipv6Addr};

/// Origin of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// User of this machine.
    User(u32),
    /// IPv4 address or IPv6 /64 network.
    Address(IpAddr),
}

impl Origin {
    /// Origin of a remote address.
    pub fn at(address: IpAddr) -> Origin {
        Origin::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_machine() {
        let at = |text: &str| Origin::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1:2:3:4"), at("2001:db8::5"));
        assert_ne!(at("2001:db8:0:1::1"), at("2001:db8::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
    }
}

//! Where clients come from: shares are counted by it.
//!
//! Idea: a user of this machine is known by number, whatever they connect through. A machine elsewhere is its
//! address. A machine of IPv6 usually has a whole network of addresses (64 bits), which counts as one.

use std::net::{IpAddr, Ipv6Addr};

/// Where a client comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A user of this machine.
    User(u32),
    /// A machine, or a network of IPv6.
    Address(IpAddr),
}

impl Origin {
    /// The machine at an address.
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

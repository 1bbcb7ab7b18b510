//! Settings of fail-over, as an administrator writes them.
//!
//! ```toml
//! node = "a"                                   # this machine's name, different on each
//! witness = "etcd://w1:2379,w2:2379/cenote"    # or s3://BUCKET/PREFIX, or an absolute path
//! lease = "3 s"
//!
//! [[pool]]
//! name = "tank"
//! disks = ["nbds://s1/disk", "nbds://s2/disk"] # searched for its devices
//! addresses = ["192.0.2.10/24 eth0"]           # move with the pool
//! taken = ["/etc/cenote/taken"]                # run when it is open here
//! left = ["/etc/cenote/left"]                  # run when it is not any more
//! suspended = "60 s"                           # a pool whose devices fail this long is let go
//! ```
//!
//! Programs get the pool's name as their last argument.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::record::{LEASE_MAX, LEASE_MIN, is_node_name};

/// All settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// This machine's name.
    pub node: String,
    /// The witness.
    pub witness: String,
    /// Length of a lease.
    #[serde(default = "three_seconds", deserialize_with = "span")]
    pub lease: Duration,
    /// Pools that move among machines.
    #[serde(rename = "pool")]
    pub pools: Vec<PoolSettings>,
}

/// Settings of a pool.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// Its name.
    pub name: String,
    /// Places to search for its devices; none: those of the daemon.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Addresses that move with it.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// A program to run when the pool is open.
    #[serde(default)]
    pub taken: Vec<String>,
    /// A program to run when it is not any more.
    #[serde(default)]
    pub left: Vec<String>,
    /// A pool suspended for this long is let go.
    #[serde(default = "one_minute", deserialize_with = "span")]
    pub suspended: Duration,
}

/// An address of a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of its network.
    pub bits: u8,
    /// Name of the interface.
    pub interface: String,
}

fn three_seconds() -> Duration {
    Duration::from_secs(3)
}

fn one_minute() -> Duration {
    Duration::from_secs(60)
}

impl Settings {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// Invalid TOML, an unknown entry, or a bad value; the text says which.
    pub fn parse(text: &str) -> Result<Settings, String> {
        let settings: Settings = toml::from_str(text).map_err(|error| error.to_string())?;
        if !is_node_name(&settings.node) {
            return Err("node: letters, digits, '.', '-' and '_', at most 64".into());
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&settings.lease) {
            return Err("lease: from 500 ms to 10 min".into());
        }
        if settings.pools.is_empty() {
            return Err("no [[pool]] is named".into());
        }
        for (index, pool) in settings.pools.iter().enumerate() {
            let name = &pool.name;
            if name.is_empty() || name.contains(['/', '@']) {
                return Err(format!("'{name}' is no name of a pool"));
            }
            if settings.pools[..index].iter().any(|earlier| earlier.name == *name) {
                return Err(format!("pool '{name}' is named twice"));
            }
        }
        Ok(settings)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Address, D::Error> {
        let text = String::deserialize(from)?;
        let parsed = || {
            let (network, interface) = text.split_once(' ')?;
            let (ip, bits) = network.split_once('/')?;
            let (ip, bits): (IpAddr, u8) = (ip.parse().ok()?, bits.parse().ok()?);
            let most = if ip.is_ipv4() { 32 } else { 128 };
            // As the kernel has them (IFNAMSIZ). A name that begins with a dash would be an option.
            let is_name = (1..16).contains(&interface.len()) && !interface.starts_with('-');
            let is_name = is_name && !interface.contains(|c: char| c == '/' || c.is_whitespace());
            (bits <= most && is_name).then(|| Address { ip, bits, interface: interface.into() })
        };
        parsed()
            .ok_or_else(|| serde::de::Error::custom(format!("'{text}' is no address, as 192.0.2.10/24 eth0")))
    }
}

/// `500 ms`, `3 s`, `2 min`.
fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit_ms = match text[at..].trim() {
        "ms" => 1,
        "s" | "sec" => 1000,
        "m" | "min" => 60_000,
        _ => 0,
    };
    let ms = text[..at].parse::<u64>().ok().and_then(|count| count.checked_mul(unit_ms));
    let span = ms.filter(|ms| *ms > 0).map(Duration::from_millis);
    span.ok_or_else(|| serde::de::Error::custom(format!("'{text}' is no span of time, as 500 ms or 3 s")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_in_this_modules_text_are_understood() {
        let text: String = include_str!("settings.rs")
            .lines()
            .skip_while(|line| !line.contains("```toml"))
            .skip(1)
            .take_while(|line| !line.contains("```"))
            .map(|line| line.trim_start_matches("//!").to_owned() + "\n")
            .collect();
        let settings = Settings::parse(&text).unwrap();
        let pool = &settings.pools[0];
        assert_eq!((settings.lease, pool.suspended), (Duration::from_secs(3), Duration::from_secs(60)));
        let address = &pool.addresses[0];
        assert_eq!((address.ip.to_string().as_str(), address.bits), ("192.0.2.10", 24));
        assert_eq!(address.interface, "eth0");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let head = "node = \"a\"\nwitness = \"/w\"\n";
        for (text, why) in [
            ("node = \"a b\"\nwitness = \"/w\"\n[[pool]]\nname = \"t\"".to_owned(), "node"),
            (format!("{head}lease = \"1 h\"\n[[pool]]\nname = \"t\""), "span of time"),
            (format!("{head}lease = \"100 ms\"\n[[pool]]\nname = \"t\""), "500 ms"),
            (format!("{head}pool = []"), "no [[pool]]"),
            (format!("{head}[[pool]]\nname = \"t/x\""), "no name of a pool"),
            (format!("{head}[[pool]]\nname = \"t\"\n[[pool]]\nname = \"t\""), "twice"),
            (format!("{head}[[pool]]\nname = \"t\"\naddresses = [\"1.2.3.4/33 eth0\"]"), "no address"),
            (format!("{head}[[pool]]\nname = \"t\"\naddresses = [\"1.2.3.4/3 -x\"]"), "no address"),
            (format!("{head}[[pool]]\nname = \"t\"\nadresses = []"), "adresses"),
        ] {
            let error = Settings::parse(&text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}

//! dRAID as typed: `draid2:4d:11c:1s`, with 2 parity and 4 data devices per group, 11 devices in all and 1
//! distributed spare.
//!
//! Source: OpenZFS `zpool_vdev.c` (`draid_config_by_type`), including the wording.

use cenote_pool::create::DraidConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Data devices per group, by default.
const DEFAULT_DATA: u64 = 8;
/// `VDEV_DRAID_MAXPARITY`, `VDEV_DRAID_MAX_CHILDREN`.
const MAX_PARITY: usize = 3;
const MAX_CHILDREN: u64 = 255;
const MAX_SPARES: u64 = 100;

/// A requested geometry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Draid {
    /// Data devices per group; none: 8, or as many as there are.
    #[serde(default)]
    pub data: Option<u64>,
    /// Total devices, if typed: must match.
    #[serde(default)]
    pub children: Option<u64>,
    /// Distributed spares.
    #[serde(default)]
    pub spares: u64,
}

/// Parses a word: parity devices per group, and the rest; `None` if it does not begin with `draid`.
pub fn parse(word: &str) -> Option<Result<(usize, Draid), String>> {
    let mut parts = word.strip_prefix("draid")?.split(':');
    let parity = match parts.next() {
        None | Some("") => Ok(1),
        Some(number) => {
            number.parse().ok().filter(|parity| (1..=MAX_PARITY).contains(parity)).ok_or_else(|| {
                format!("invalid dRAID parity level {number}; must be between 1 and {MAX_PARITY}")
            })
        }
    };
    Some(parity.and_then(|parity| {
        let mut typed = Draid::default();
        for part in parts {
            let wrong = || format!("invalid dRAID syntax; expected [:<number><c|d|s>] not '{word}'");
            let (at, suffix) = part.char_indices().next_back().ok_or_else(wrong)?;
            let number = part[..at].parse().map_err(|_| wrong())?;
            match suffix.to_ascii_lowercase() {
                'c' => typed.children = Some(number),
                'd' => typed.data = Some(number),
                's' => typed.spares = number,
                _ => return Err(wrong()),
            }
        }
        Ok((parity, typed))
    }))
}

impl Draid {
    /// The geometry over this many devices, with `parity` of them per group for parity.
    ///
    /// # Errors
    /// It does not fit them.
    pub fn shape(&self, parity: usize, children: usize) -> Result<DraidConfig, String> {
        let (children, parity, spares) = (children as u64, parity as u64, self.spares);
        if let Some(wanted) = self.children.filter(|&wanted| wanted != children) {
            return Err(format!(
                "invalid number of dRAID children; {wanted} required but {children} provided"
            ));
        }
        if children > MAX_CHILDREN {
            return Err(format!(
                "{children} disks were provided, but dRAID only supports up to {MAX_CHILDREN} disks"
            ));
        }
        let most = children.saturating_sub(spares.saturating_add(parity));
        if most == 0 {
            return Err(format!(
                "request number of distributed spares {spares} and parity level {parity} leaves no disks \
                 available for data"
            ));
        }
        let data = self.data.unwrap_or(most.min(DEFAULT_DATA));
        if data == 0 || data > most {
            return Err(format!(
                "requested number of dRAID data disks per group {data} is too high, at most {most} disks are \
                 available for data"
            ));
        }
        if spares > MAX_SPARES {
            return Err(format!(
                "invalid number of dRAID spares {spares}; additional disks would be required"
            ));
        }
        // The smallest number of groups that fills whole rows.
        let (width, disks) = (data + parity, children - spares);
        let groups = (1..=disks).find(|groups| (groups * width).is_multiple_of(disks)).unwrap_or(disks);
        Ok(DraidConfig { data, groups, spares, failure_groups: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(word: &str, children: usize) -> Result<(usize, u64, u64, u64), String> {
        let (parity, typed) = parse(word).unwrap()?;
        typed.shape(parity, children).map(|shape| (parity, shape.data, shape.groups, shape.spares))
    }

    #[test]
    fn shapes_are_those_of_openzfs() {
        assert_eq!(shape("draid", 4), Ok((1, 3, 1, 0)));
        assert_eq!(shape("draid2:4d:11c:1s", 11), Ok((2, 4, 5, 1)));
        assert_eq!(shape("draid1:3d:1s", 7), Ok((1, 3, 3, 1)));
        assert_eq!(shape("draid3", 40), Ok((3, 8, 40, 0)));
        assert!(parse("raidz").is_none());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (word, children) in [
            ("draid4", 9),
            ("draid2:4d:10c", 11),
            ("draid:9d", 9),
            ("draid:4x", 9),
            ("draid:d", 9),
            ("draid:", 9),
            ("draid:0d", 9),
            ("draid1:8s", 9),
            ("draid", 256),
            ("draid1", 1),
        ] {
            assert!(shape(word, children).is_err(), "{word}");
        }
    }
}

//! Vdevs of a new pool, or additions to one, as values and as words: `mirror a b special mirror c d log e`.
//!
//! Idea: a word that is not a keyword is a device. `mirror`, `raidz` and `draid` group the devices that
//! follow; `log`, `special`, `dedup`, `spare` and `cache` set the purpose of all that follows.
//!
//! Source: OpenZFS `zpool_vdev.c` (`construct_spec`, `is_grouping`).

pub mod devices;
pub mod draid;
pub mod replication;

use cenote_pool::create::DraidConfig;
use cenote_pool::{VdevClass, VdevKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use draid::Draid;

/// `VDEV_RAIDZ_MAXPARITY`, and the maximum number of RAID-Z children.
const MAX_PARITY: usize = 3;
const MAX_RAIDZ_CHILDREN: usize = 255;

/// A requested vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// [`VdevKind::Disk`] for any single device.
    pub kind: VdevKind,
    /// RAID-Z and dRAID: parity columns.
    #[serde(default)]
    pub parity: usize,
    /// dRAID: its geometry.
    #[serde(default)]
    pub draid: Option<Draid>,
    /// Allocation class.
    #[serde(default)]
    pub class: VdevClass,
    /// Its devices: paths, names in `/dev`, or addresses of remote disks.
    pub devices: Vec<String>,
}

/// Requested vdevs and other devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Layout {
    /// Vdevs.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Hot spares.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Cache devices.
    #[serde(default)]
    pub cache: Vec<String>,
}

/// The purpose of the words that follow.
#[derive(Clone, Copy, PartialEq)]
enum Section {
    Vdevs(VdevClass),
    Spares,
    Cache,
}

impl Section {
    fn named(word: &str) -> Option<Section> {
        match word {
            "log" => Some(Section::Vdevs(VdevClass::Log)),
            "special" => Some(Section::Vdevs(VdevClass::Special)),
            "dedup" => Some(Section::Vdevs(VdevClass::Dedup)),
            "spare" => Some(Section::Spares),
            "cache" => Some(Section::Cache),
            _ => None,
        }
    }
}

/// Parses words. The error describes the mistake.
pub fn parse(words: &[String]) -> Result<Layout, String> {
    let mut layout = Layout::default();
    let (mut section, mut gathers) = (Section::Vdevs(VdevClass::Normal), false);
    for (index, word) in words.iter().enumerate() {
        let groups = &mut layout.groups;
        if let Some(named) = Section::named(word) {
            if word == "log" && groups.iter().any(|group| group.class == VdevClass::Log) {
                return Err("'log' can be given only once".into());
            }
            // An empty allocation class is harmless.
            let ends = words.get(index + 1).is_none_or(|next| Section::named(next).is_some());
            match word.as_str() {
                "cache" | "spare" if ends => return Err(format!("{word} requires at least 1 devices")),
                "log" if ends => return Err("log requires at least 1 device".into()),
                _ => {}
            }
            (section, gathers) = (named, false);
            continue;
        }
        let draid = draid::parse(word).transpose()?;
        let kind = match &draid {
            Some((parity, _)) => Some((VdevKind::Draid, *parity)),
            None => grouping(word)?,
        };
        match (section, kind) {
            (Section::Spares, None) => layout.spares.push(word.clone()),
            (Section::Cache, None) => layout.cache.push(word.clone()),
            (Section::Spares | Section::Cache, Some(_)) => {
                return Err(format!("'spare' and 'cache' devices are single, not {word}"));
            }
            (Section::Vdevs(class), Some((kind, _)))
                if kind != VdevKind::Mirror && class != VdevClass::Normal =>
            {
                return Err(format!("'{}' devices can be single or mirrors, not {word}", class.name()));
            }
            (Section::Vdevs(class), Some((kind, parity))) => {
                let draid = draid.map(|(_, geometry)| geometry);
                groups.push(Group { kind, parity, draid, class, devices: Vec::new() });
                gathers = true;
            }
            (Section::Vdevs(class), None) => match groups.last_mut().filter(|_| gathers) {
                Some(group) => group.devices.push(word.clone()),
                None => groups.push(Group::single(class, word)),
            },
        }
    }
    layout.check()?;
    Ok(layout)
}

/// `mirror`, `raidz`, `raidz1` to `raidz3`.
fn grouping(word: &str) -> Result<Option<(VdevKind, usize)>, String> {
    match word {
        "mirror" => Ok(Some((VdevKind::Mirror, 0))),
        "raidz" | "raidz1" => Ok(Some((VdevKind::Raidz, 1))),
        "raidz2" => Ok(Some((VdevKind::Raidz, 2))),
        "raidz3" => Ok(Some((VdevKind::Raidz, 3))),
        word => match word.strip_prefix("raidz") {
            Some(number) if number.bytes().all(|b| b.is_ascii_digit()) => {
                Err(format!("{word}: RAID-Z has 1 to 3 parity devices"))
            }
            _ => Ok(None),
        },
    }
}

/// A new pool needs a data vdev; additions to a pool do not.
pub fn require_data(groups: &[Group]) -> Result<(), &'static str> {
    match groups.iter().any(|group| group.class == VdevClass::Normal) {
        true => Ok(()),
        false => Err("at least one vdev must be for data; put it before 'log', 'special' and 'dedup'"),
    }
}

impl Layout {
    /// All devices, as typed.
    pub fn devices(&self) -> Vec<&str> {
        let in_groups = self.groups.iter().flat_map(|group| &group.devices);
        in_groups.chain(&self.spares).chain(&self.cache).map(String::as_str).collect()
    }

    /// Checks the values. Parsed words are valid already.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), String> {
        for group in &self.groups {
            group.check()?;
        }
        let mut all = self.devices();
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("{} is named twice", pair[0])),
            None => Ok(()),
        }
    }

    /// Checks the features that some kinds of vdevs require.
    ///
    /// # Errors
    /// The missing feature.
    pub fn check_features(&self, has: impl Fn(&str) -> bool) -> Result<(), &'static str> {
        let needs_classes = |group: &Group| matches!(group.class, VdevClass::Special | VdevClass::Dedup);
        if self.groups.iter().any(needs_classes) && !has("allocation_classes") {
            return Err("special and dedup vdevs need feature@allocation_classes");
        }
        match self.groups.iter().any(|group| group.draid.is_some()) && !has("draid") {
            true => Err("draid vdevs need feature@draid"),
            false => Ok(()),
        }
    }
}

impl Group {
    fn single(class: VdevClass, device: &str) -> Group {
        Group { kind: VdevKind::Disk, parity: 0, draid: None, class, devices: vec![device.into()] }
    }

    fn check(&self) -> Result<(), String> {
        let (kind, count) = (&self.kind, self.devices.len());
        let has_parity = matches!(kind, VdevKind::Raidz | VdevKind::Draid);
        let least = match kind {
            VdevKind::Disk | VdevKind::File => 1,
            VdevKind::Mirror => 2,
            _ if has_parity => self.parity + 1,
            _ => return Err(format!("a vdev of type '{}' can't be made", kind.name())),
        };
        let parities = if has_parity { 1..=MAX_PARITY } else { 0..=0 };
        if !parities.contains(&self.parity) || self.draid.is_some() != (*kind == VdevKind::Draid) {
            return Err(format!("{}: parity or geometry is another kind's", kind.name()));
        }
        if count < least {
            return Err(format!("{} requires at least {least} devices", self.name()));
        }
        if has_parity && self.class != VdevClass::Normal {
            let class = self.class.name();
            return Err(format!("'{class}' devices can be single or mirrors, not {}", self.name()));
        }
        match kind {
            VdevKind::Disk | VdevKind::File if count > 1 => Err("a single device is one device".into()),
            VdevKind::Raidz if count > MAX_RAIDZ_CHILDREN => {
                Err(format!("{} has at most {MAX_RAIDZ_CHILDREN} devices", self.name()))
            }
            _ => self.shape().map(drop),
        }
    }

    /// The dRAID geometry over its devices.
    ///
    /// # Errors
    /// It does not fit them.
    pub fn shape(&self) -> Result<Option<DraidConfig>, String> {
        self.draid.map(|draid| draid.shape(self.parity, self.devices.len())).transpose()
    }

    /// Its kind as typed.
    pub fn name(&self) -> String {
        match self.kind {
            VdevKind::Mirror => "mirror".into(),
            VdevKind::Raidz => format!("raidz{}", self.parity),
            VdevKind::Draid => {
                let shape = self.shape().ok().flatten();
                let (data, spares) = shape.map_or((0, 0), |shape| (shape.data, shape.spares));
                format!("draid{}:{data}d:{}c:{spares}s", self.parity, self.devices.len())
            }
            _ => "single device".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn shape(line: &str) -> Vec<(String, &'static str, usize)> {
        let words = words(line);
        let groups = parse(&words).unwrap_or_else(|why| panic!("{line}: {why}")).groups;
        groups.iter().map(|group| (group.name(), group.class.name(), group.devices.len())).collect()
    }

    #[test]
    fn words_become_vdevs() {
        let normal = VdevClass::Normal.name();
        let single = || "single device".to_owned();
        assert_eq!(shape("a b"), [(single(), normal, 1), (single(), normal, 1)]);
        assert_eq!(
            shape("mirror a b mirror c d log e special mirror f g"),
            [
                ("mirror".into(), normal, 2),
                ("mirror".into(), normal, 2),
                (single(), "log", 1),
                ("mirror".into(), "special", 2)
            ]
        );
        assert_eq!(shape("raidz a b c"), shape("raidz1 a b c"));
        let words = words("mirror a b cache c d spare f log e");
        let layout = parse(&words).unwrap();
        assert!(layout.groups.len() == 2 && layout.cache == ["c", "d"] && layout.spares == ["f"]);
        assert_eq!(shape("draid2:2d:1s a b c d e f"), [("draid2:2d:6c:1s".into(), normal, 6)]);
        assert_eq!(shape("raidz3 a b c d e")[0].0, "raidz3");
    }

    #[test]
    fn what_makes_no_pool_is_refused() {
        for line in [
            "log a",
            "mirror a",
            "raidz2 a b",
            "raidz4 a b c d e f",
            "a a",
            "a log raidz b c",
            "a spare mirror b c",
            "a spare a",
            "a cache mirror b c",
            "a cache a",
            "draid2 a b",
            "draid:4d a b c",
            "a log b log c",
            "mirror a b mirror",
            "a cache",
            "a cache spare b",
            "a spare",
            "a log",
            "a log cache b",
            "a special",
        ] {
            let words = words(line);
            let refused = parse(&words).map_or(true, |layout| require_data(&layout.groups).is_err());
            // An empty class is harmless while there are data devices.
            assert_eq!(refused, line != "a special", "{line}");
        }
    }
}

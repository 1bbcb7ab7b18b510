//! The vdevs of a new pool as typed: `mirror a b special mirror c d log e`.
//!
//! Idea: a word that is not a keyword is a device. `mirror`, `raidz` and `draid` group the devices that
//! follow; `log`, `special`, `dedup`, `spare` and `cache` set the purpose of everything that follows.
//!
//! Source: OpenZFS `zpool_vdev.c` (`construct_spec`, `is_grouping`).

use cenote_pool::create::DraidConfig;
use cenote_pool::{VdevClass, VdevKind};

use super::draid;

/// A vdev as typed.
#[derive(Debug, Clone, PartialEq)]
pub struct Group<'a> {
    /// [`VdevKind::Disk`] for a single device of either kind.
    pub kind: VdevKind,
    /// RAID-Z and dRAID: parity columns.
    pub parity: usize,
    /// dRAID: its geometry.
    pub draid: Option<DraidConfig>,
    /// Its allocation class.
    pub class: VdevClass,
    /// Its devices, as typed.
    pub devices: Vec<&'a str>,
}

/// Vdevs and other devices as typed.
#[derive(Debug, Default)]
pub struct Layout<'a> {
    /// The vdevs.
    pub groups: Vec<Group<'a>>,
    /// Devices that replace failed ones.
    pub spares: Vec<&'a str>,
    /// Devices that cache frequently read data.
    pub cache: Vec<&'a str>,
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

/// Parses the operands. The error says what is wrong with them.
pub fn parse(words: &[String]) -> Result<Layout<'_>, String> {
    let mut layout = Layout::default();
    let mut typed_draids = Vec::new();
    let (mut section, mut gathers) = (Section::Vdevs(VdevClass::Normal), false);
    for (index, word) in words.iter().enumerate() {
        let groups = &mut layout.groups;
        if let Some(named) = Section::named(word) {
            if word == "log" && groups.iter().any(|group| group.class == VdevClass::Log) {
                return Err("'log' can be given only once".into());
            }
            // A class for allocations without devices is harmless.
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
            Some(typed) => Some((VdevKind::Draid, typed.parity)),
            None => grouping(word)?,
        };
        match (section, kind) {
            (Section::Spares, None) => layout.spares.push(word),
            (Section::Cache, None) => layout.cache.push(word),
            (Section::Spares | Section::Cache, Some(_)) => {
                return Err(format!("'spare' and 'cache' devices are single, not {word}"));
            }
            (Section::Vdevs(class), Some((kind, _)))
                if kind != VdevKind::Mirror && class != VdevClass::Normal =>
            {
                return Err(format!("'{}' devices can be single or mirrors, not {word}", class.name()));
            }
            (Section::Vdevs(class), Some((kind, parity))) => {
                typed_draids.extend(draid.map(|typed| (groups.len(), typed)));
                groups.push(Group { kind, parity, draid: None, class, devices: Vec::new() });
                gathers = true;
            }
            (Section::Vdevs(class), None) => match groups.last_mut().filter(|_| gathers) {
                Some(group) => group.devices.push(word),
                None => groups.push(Group::single(class, word)),
            },
        }
    }
    for (index, typed) in typed_draids {
        let group = &mut layout.groups[index];
        group.draid = Some(typed.shape(group.devices.len())?);
    }
    check(&layout)?;
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

/// A new pool needs a vdev for data; additions to an existing pool do not.
pub fn require_data(groups: &[Group<'_>]) -> Result<(), &'static str> {
    match groups.iter().any(|group| group.class == VdevClass::Normal) {
        true => Ok(()),
        false => Err("at least one vdev must be for data; put it before 'log', 'special' and 'dedup'"),
    }
}

impl<'a> Layout<'a> {
    /// All devices, as typed.
    pub fn devices(&self) -> Vec<&'a str> {
        let in_groups = self.groups.iter().flat_map(|group| &group.devices);
        in_groups.chain(&self.spares).chain(&self.cache).copied().collect()
    }
}

fn check(layout: &Layout<'_>) -> Result<(), String> {
    for group in &layout.groups {
        let least = match group.kind {
            VdevKind::Mirror => 2,
            VdevKind::Raidz | VdevKind::Draid => group.parity + 1,
            _ => 1,
        };
        if group.devices.len() < least {
            return Err(format!("{} requires at least {least} devices", group.name()));
        }
        if group.kind == VdevKind::Raidz && group.devices.len() > 255 {
            return Err(format!("{} has at most 255 devices", group.name()));
        }
    }
    let mut all = layout.devices();
    all.sort_unstable();
    match all.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{} is named twice", pair[0])),
        None => Ok(()),
    }
}

impl<'a> Group<'a> {
    fn single(class: VdevClass, device: &'a str) -> Group<'a> {
        Group { kind: VdevKind::Disk, parity: 0, draid: None, class, devices: vec![device] }
    }

    /// Whether its class depends on a feature.
    pub fn needs_classes(&self) -> bool {
        matches!(self.class, VdevClass::Special | VdevClass::Dedup)
    }

    /// Its kind as typed.
    pub fn name(&self) -> String {
        match self.kind {
            VdevKind::Mirror => "mirror".into(),
            VdevKind::Raidz => format!("raidz{}", self.parity),
            VdevKind::Draid => {
                let (data, spares) = self.draid.map_or((0, 0), |shape| (shape.data, shape.spares));
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
            // A class keyword without devices is harmless, as long as there are data devices.
            assert_eq!(refused, line != "a special", "{line}");
        }
    }
}

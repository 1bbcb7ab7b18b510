//! Several volumes as units of one target: LUN maps.
//!
//! ```text
//!   --iscsi-lun cluster:0=tank/quorum                 the daemon's own
//!   --iscsi-lun cluster:2=4711                        the same, by the volume's guid
//!   zfs set org.cenote:iscsi.lun=cluster:1 tank/data  kept with the volume, wherever its pool is
//! ```
//!
//! A name means the volume with that name when a host connects; users who may create and rename volumes can
//! give the name to another. A guid means one volume under any name.
//!
//! A place has one volume: the daemon's own map takes precedence, then volumes in order of name. A volume
//! whose place is taken stays its own target.

use std::collections::{BTreeMap, BTreeSet};

use super::names::TargetName;
use cenote_host::volumes::VolumeInfo;

/// The administrator's map of volumes that share targets.
#[derive(Debug, Default)]
pub struct LunMap(BTreeMap<Place, String>);

/// A unit of a target.
type Place = (TargetName, u8);

fn place(typed: &str) -> Option<Place> {
    let (target, number) = typed.split_once(':')?;
    Some((TargetName::parse(target)?, number.parse().ok()?))
}

impl LunMap {
    /// Parses entries: `TARGET:NUMBER=VOLUME`, with a name or guid of the volume.
    ///
    /// # Errors
    /// A malformed entry, or two for the same place or volume; the text names it.
    pub fn parse(entries: &[String]) -> Result<LunMap, String> {
        let mut map = LunMap::default();
        for entry in entries {
            let wrong = || format!("'{entry}' is no TARGET:NUMBER=VOLUME, such as cluster:0=tank/vm");
            let (at, volume) = entry.split_once('=').ok_or_else(wrong)?;
            let at = place(at).ok_or_else(wrong)?;
            if map.may_have(volume) || map.0.insert(at, volume.into()).is_some() {
                return Err(format!("'{entry}': the volume or the place has another entry"));
            }
        }
        Ok(map)
    }

    /// Whether the map has an entry for a volume.
    pub(super) fn may_have(&self, volume: &str) -> bool {
        self.0.values().any(|mapped| mapped == volume)
    }

    /// The places of existing volumes.
    pub(super) fn places<'a>(&self, volumes: &'a [VolumeInfo]) -> Places<'a> {
        let mut places = Places::default();
        for volume in volumes {
            // Two entries may match one volume, by name and by guid: the guid takes precedence.
            let by_guid = volume.guids.1.0.to_string();
            let at = |wanted: &str| self.0.iter().find(|(_, mapped)| *mapped == wanted).map(|(at, _)| at);
            if let Some(at) = at(&by_guid).or_else(|| at(&volume.name)) {
                places.put(at.clone(), volume);
            }
        }
        let mut others: Vec<_> = volumes.iter().filter(|volume| !places.has(&volume.name)).collect();
        others.sort_by(|one, other| one.name.cmp(&other.name));
        for volume in others {
            let at = volume.lun.as_deref().and_then(place);
            if let Some(at) = at.filter(|at| !self.0.contains_key(at) && !places.0.contains_key(at)) {
                places.put(at, volume);
            }
        }
        places
    }
}

/// Volumes by place.
#[derive(Default)]
pub(super) struct Places<'a>(BTreeMap<Place, &'a str>, BTreeSet<&'a str>);

impl<'a> Places<'a> {
    fn put(&mut self, at: Place, volume: &'a VolumeInfo) {
        self.0.insert(at, &volume.name);
        self.1.insert(&volume.name);
    }

    /// Whether a volume shares a target.
    pub(super) fn has(&self, volume: &str) -> bool {
        self.1.contains(volume)
    }

    pub(super) fn targets(&self) -> impl Iterator<Item = &TargetName> {
        self.0.keys().map(|(target, _)| target).collect::<BTreeSet<_>>().into_iter()
    }

    pub(super) fn units(&self, target: &TargetName) -> impl Iterator<Item = (u8, &'a str)> {
        self.0.iter().filter(move |((of, _), _)| of == target).map(|((_, number), volume)| (*number, *volume))
    }
}

#[cfg(test)]
mod tests {
    use cenote_format::units::Guid;

    use super::*;

    #[test]
    fn volumes_have_the_places_that_are_free() {
        let volume = |name: &str, lun: Option<&str>| VolumeInfo {
            guids: (Guid(1), Guid(2)),
            name: name.into(),
            size_bytes: 1 << 20,
            block_bytes: 16 << 10,
            is_read_only: false,
            lun: lun.map(str::to_owned),
        };
        let map = LunMap::parse(&["c:0=tank/a".into(), "c:9=tank/gone".into()]).unwrap();
        let all = [
            volume("tank/a", None),
            volume("tank/d", Some("c:1")),
            volume("tank/b", Some("c:1")),
            volume("tank/e", Some("c:0")),
            volume("tank/f", Some("c:9")),
            volume("tank/g", Some("nonsense")),
            volume("tank/h", Some("other.one:255")),
        ];
        let places = map.places(&all);
        let names: Vec<&str> = places.targets().map(|target| &*target.0).collect();
        assert_eq!(names, ["c", "other.one"]);
        let units = |target: &str| places.units(&TargetName::parse(target).unwrap()).collect::<Vec<_>>();
        assert_eq!(units("c"), [(0, "tank/a"), (1, "tank/b")]);
        assert_eq!(units("other.one"), [(255, "tank/h")]);
        assert!(
            places.has("tank/b") && !places.has("tank/d") && !places.has("tank/e") && !places.has("tank/f")
        );
        // By guid it keeps its place, regardless of names.
        let map = LunMap::parse(&["c:0=2".into()]).unwrap();
        let renamed = VolumeInfo { guids: (Guid(1), Guid(3)), ..volume("tank/a", None) };
        let all = [renamed, volume("tank/other", None)];
        let places = map.places(&all);
        let target = TargetName::parse("c").unwrap();
        assert_eq!(places.units(&target).collect::<Vec<_>>(), [(0, "tank/other")]);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let parse = |entries: &[&str]| {
            LunMap::parse(&entries.iter().map(|&entry| entry.into()).collect::<Vec<String>>()).map(drop)
        };
        assert!(parse(&["c:0=tank/a", "d:0=tank/b"]).is_ok());
        for wrong in [&["c:0=tank/a", "c:0=tank/b"][..], &["c:0=tank/a", "c:1=tank/a"], &["c=tank/a"]] {
            assert!(parse(wrong).is_err());
        }
        for wrong in ["c:256=tank/a", "C:0=tank/a", "c:d:0=tank/a", ":0=tank/a", "c:0"] {
            assert!(parse(&[wrong]).unwrap_err().contains(wrong));
        }
    }
}

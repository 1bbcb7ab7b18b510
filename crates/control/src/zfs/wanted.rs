//! Names of requested properties.

use cenote_format::props::{Prop, ZFS_PROPS};
use cenote_tasks::is_user_property;

use super::owner::OwnerProp;
use crate::error::ControlError;

/// A requested property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Native property.
    Native(&'static Prop),
    /// User property.
    User(String),
    /// `written@SNAPSHOT` or `written#BOOKMARK`, without `written`.
    WrittenSince(String),
    /// `userused@NUMBER` and similar.
    OfOwner(OwnerProp),
}

/// The properties of `space`.
const SPACE: [&str; 7] = [
    "name",
    "available",
    "used",
    "usedbysnapshots",
    "usedbydataset",
    "usedbyrefreservation",
    "usedbychildren",
];

impl Wanted {
    /// Parses comma-separated names; `space` stands for several.
    pub fn parse_list(names: &str) -> Result<Vec<Wanted>, ControlError> {
        let mut all = Vec::new();
        for name in names.split(',') {
            let own = [name];
            let meant = if name == "space" { &SPACE[..] } else { &own };
            for name in meant {
                all.push(Wanted::parse(name)?);
            }
        }
        Ok(all)
    }

    /// Parses single names.
    ///
    /// # Errors
    /// An unknown property.
    pub fn parse_all(names: &[String]) -> Result<Vec<Wanted>, ControlError> {
        names.iter().map(|name| Wanted::parse(name)).collect()
    }

    /// Parses a property's name or column heading.
    pub fn parse(name: &str) -> Result<Wanted, ControlError> {
        if let Some(since) = name.strip_prefix("written").filter(|since| since.starts_with(['@', '#'])) {
            return Ok(Wanted::WrittenSince(since.into()));
        }
        if is_user_property(name) {
            return Ok(Wanted::User(name.into()));
        }
        if let Some(owner_prop) = OwnerProp::parse(name)? {
            return Ok(Wanted::OfOwner(owner_prop));
        }
        ZFS_PROPS.iter().find(|prop| prop.is_named(name)).map(Wanted::Native).ok_or_else(|| {
            ControlError::Usage(format!(
                "bad property list: invalid property '{name}'; `zfs get all DATASET` lists them"
            ))
        })
    }

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Wanted::Native(prop) => prop.name.into(),
            Wanted::User(name) => name.clone(),
            Wanted::WrittenSince(since) => format!("written{since}"),
            Wanted::OfOwner(owner_prop) => owner_prop.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_go_by_name_or_column() {
        assert_eq!(Wanted::parse("avail").unwrap().name(), "available");
        assert_eq!(Wanted::parse("refer").unwrap().name(), "referenced");
        assert_eq!(Wanted::parse("com.example:x").unwrap().name(), "com.example:x");
        assert!(Wanted::parse("colour").is_err());
        assert!(Wanted::parse("com.example:x y").is_err());
    }
}

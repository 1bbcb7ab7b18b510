//! Less than a seed gives: fewer clients, kinds of calls and troubles, and calls left out.
//!
//! Idea: a world is a program that its seed writes. Each part can be left out by name while the rest stays,
//! for [`crate::shrink`] and for the command line.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::model::ClientId;
use crate::pairs::Aim;

/// The number of the troubles with disks, among the clients.
pub const TROUBLE: ClientId = 99;

/// The number of the agent, among the clients.
pub const AGENT: ClientId = 98;

/// Numbers of clients.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // as their names say
pub struct Clients {
    pub posix: usize,
    pub volumes: usize,
    pub admins: usize,
}

impl Clients {
    /// At least as many as two verbs at once need.
    pub fn with(self, aim: &Aim) -> Clients {
        Clients {
            posix: self.posix.max(aim.count_of_files()),
            volumes: self.volumes.max(aim.count_of_volumes()),
            admins: self.admins.max(aim.count_of_administrators().0),
        }
    }
}

/// A choice of a client, by its number among the client's.
pub type Choice = Part<ClientId>;
/// A kind of call, by its number among its group's.
pub type Kind = Part<Group>;

/// `OF:NUMBER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // as their names say
pub struct Part<T> {
    pub of: T,
    pub number: u64,
}

/// A group of kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // as in `Swarm`
pub enum Group {
    Posix,
    Volume,
    Admin,
    Fault,
}

/// Parts left out of a world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Less {
    /// Most clients of files.
    pub posix: Option<usize>,
    /// Most clients of volumes.
    pub volumes: Option<usize>,
    /// Most administrators.
    pub admins: Option<usize>,
    /// Kinds of calls that nobody makes.
    pub kinds: BTreeSet<Kind>,
    /// Choices not carried out.
    pub choices: BTreeSet<Choice>,
}

impl Less {
    /// Everything.
    pub const NOTHING: Less =
        Less { posix: None, volumes: None, admins: None, kinds: BTreeSet::new(), choices: BTreeSet::new() };

    /// Remaining clients.
    pub fn clients(&self, all: Clients) -> Clients {
        let most = |count: usize, most: Option<usize>| most.map_or(count, |most| count.min(most));
        Clients {
            posix: most(all.posix, self.posix),
            volumes: most(all.volumes, self.volumes),
            admins: most(all.admins, self.admins),
        }
    }

    /// The options of `cenote-world` for it.
    pub fn options(&self) -> String {
        let counts =
            [("--posix", self.posix), ("--volumes", self.volumes), ("--admins", self.admins)].into_iter();
        let counts = counts.filter_map(|(option, count)| Some(format!(" {option} {}", count?)));
        let kinds = self.kinds.iter().map(|kind| format!("{}:{}", kind.of.name(), kind.number));
        let choices = self.choices.iter().map(|choice| format!("{}:{}", choice.of, choice.number));
        let list = |option: &str, parts: Vec<String>| match parts.is_empty() {
            true => String::new(),
            false => format!(" {option} {}", parts.join(",")),
        };
        counts.collect::<String>() + &list("--without", kinds.collect()) + &list("--skip", choices.collect())
    }
}

impl Group {
    const ALL: [Group; 4] = [Group::Posix, Group::Volume, Group::Admin, Group::Fault];

    fn name(self) -> &'static str {
        match self {
            Group::Posix => "posix",
            Group::Volume => "volume",
            Group::Admin => "admin",
            Group::Fault => "fault",
        }
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Group, String> {
        let found = Group::ALL.into_iter().find(|group| group.name() == text);
        found.ok_or_else(|| format!("{text} is not posix, volume, admin or fault"))
    }
}

impl<T: FromStr> FromStr for Part<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Part<T>, String> {
        let wrong = || format!("{text} is not OF:NUMBER");
        let (of, number) = text.split_once(':').ok_or_else(wrong)?;
        Ok(Part { of: of.parse().map_err(|_| wrong())?, number: number.parse().map_err(|_| wrong())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_they_are_written() {
        let kinds = ["fault:3", "admin:12"].map(|text| text.parse().unwrap());
        let choices = ["0:7", "99:1"].map(|text| text.parse().unwrap());
        let less = Less {
            posix: Some(2),
            kinds: kinds.into_iter().collect(),
            choices: choices.into_iter().collect(),
            ..Less::NOTHING
        };
        assert_eq!(less.options(), " --posix 2 --without admin:12,fault:3 --skip 0:7,99:1");
        assert!("admin".parse::<Kind>().is_err() && "boat:1".parse::<Kind>().is_err());
        assert_eq!(Less::NOTHING.options(), "");
    }
}

//! Delegation: a user's permissions on a dataset, from its own and its ancestors' tables.
//!
//! Idea: walk from the dataset's directory up to the root. At the first step the directory's table grants
//! permissions on the dataset itself, above it on descendants. Sets are names: the nearest directory at or
//! above the grant that defines a set decides its meaning.
//!
//! ```text
//!   tank           s-$@ops {snapshot}         definition of @ops
//!   tank/home      Ud$1000 {@ops}             user 1000, below: @ops
//!   tank/home/a    ul$1000 {rollback}         user 1000, here
//! ```
//!
//! Source: OpenZFS `dsl_deleg.c` (`dsl_deleg_access_impl`, `dsl_deleg_get`).

use std::collections::BTreeSet;

use cenote_boxed::boxed;
use cenote_format::deleg::{DelegKey, Reach, Who};
use cenote_format::units::ObjectId;
use cenote_object::{Result, Zap};

use crate::dir::Dir;
use crate::mos::Mos;

/// Requesting user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Groups of the user.
    pub gids: Vec<u32>,
}

/// Object of a permission check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// File system or volume.
    Head,
    /// Snapshot of it.
    Snapshot,
    /// Dataset that the user is about to create directly below.
    NewChild,
}

/// Table entry: grantee and scope, with permissions or sets.
pub type Delegated = (DelegKey, BTreeSet<String>);

impl Credentials {
    fn are(&self, who: &Who) -> bool {
        match who {
            Who::User(uid) => *uid == u64::from(self.uid),
            Who::Group(gid) => self.gids.iter().any(|own| *gid == u64::from(*own)),
            Who::Everyone => true,
            Who::Creator | Who::Set(_) => false,
        }
    }
}

impl Dir {
    /// Delegations of this directory by key.
    ///
    /// # Errors
    /// A table is damaged.
    #[boxed]
    pub async fn delegated(&self) -> Result<Vec<Delegated>> {
        let Some(zap) = self.zap(self.phys().deleg_zap).await? else { return Ok(Vec::new()) };
        let mut delegated = Vec::new();
        for entry in zap.to_vec().await? {
            let Some(key) = DelegKey::parse(&entry.name_text()) else { continue };
            let Some(table) = entry.value.as_u64() else { continue };
            let names = Zap::open_id(self.mos().objset(), ObjectId(table)).await?.to_vec().await?;
            delegated.push((key, names.iter().map(|name| name.name_text()).collect()));
        }
        delegated.sort();
        Ok(delegated)
    }

    /// Whether the user has a permission.
    ///
    /// # Errors
    /// A table is damaged.
    #[boxed]
    pub async fn is_allowed(&self, subject: Subject, permission: &str, who: &Credentials) -> Result<bool> {
        let mut sets = Sets::default();
        if subject == Subject::NewChild {
            // The new child grants these to its creator.
            for (key, names) in self.delegated_up().await?.into_iter().flatten() {
                match key.who {
                    Who::Creator if key.of_sets => sets.open.extend(names),
                    Who::Creator if names.contains(permission) => return Ok(true),
                    _ => {}
                }
            }
        }
        let mut reach = if subject == Subject::Head { Reach::Local } else { Reach::Descendent };
        for delegated in self.delegated_up().await? {
            let here = || delegated.iter().filter(|(key, _)| key.reach == reach && who.are(&key.who));
            if here().any(|(key, names)| !key.of_sets && names.contains(permission)) {
                return Ok(true);
            }
            sets.open.extend(here().filter(|(key, _)| key.of_sets).flat_map(|(_, names)| names.clone()));
            if sets.have(permission, &delegated) {
                return Ok(true);
            }
            reach = Reach::Descendent;
        }
        Ok(false)
    }

    async fn delegated_up(&self) -> Result<Vec<Vec<Delegated>>> {
        let (mut all, mut at) = (Vec::new(), Some(self));
        while let Some(dir) = at {
            all.push(dir.delegated().await?);
            at = dir.parent();
        }
        Ok(all)
    }
}

/// Sets granted to the user.
#[derive(Default)]
struct Sets {
    /// Sets not defined by any directory yet.
    open: BTreeSet<String>,
    known: BTreeSet<String>,
}

impl Sets {
    /// Resolves sets by a directory's definitions; returns whether one has the permission.
    fn have(&mut self, permission: &str, delegated: &[Delegated]) -> bool {
        while let Some((set, meaning)) = self.next(delegated) {
            self.open.remove(&set);
            self.known.insert(set);
            for (key, names) in meaning {
                match key.of_sets {
                    false if names.contains(permission) => return true,
                    false => {}
                    true => self.open.extend(names.difference(&self.known).cloned()),
                }
            }
        }
        false
    }

    /// Open set with the directory's definition.
    fn next<'d>(&self, delegated: &'d [Delegated]) -> Option<(String, Vec<&'d Delegated>)> {
        self.open.iter().find_map(|set| {
            let of_set = |(key, _): &&Delegated| matches!(&key.who, Who::Set(name) if name == set);
            let meaning: Vec<&Delegated> = delegated.iter().filter(of_set).collect();
            (!meaning.is_empty()).then(|| (set.clone(), meaning))
        })
    }
}

impl Mos {
    /// Whether the pool honours delegation, property `delegation`.
    ///
    /// # Errors
    /// The property table is damaged.
    #[boxed]
    pub async fn heeds_delegation(&self) -> Result<bool> {
        let properties = self.pool_properties().await?;
        let set = properties.iter().find(|entry| entry.name_text() == "delegation");
        Ok(set.and_then(|entry| entry.value.as_u64()) != Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, &str)]) -> Vec<Delegated> {
        let entry = |(key, names): &(&str, &str)| {
            (DelegKey::parse(key).unwrap(), names.split(',').map(str::to_owned).collect())
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn sets_of_sets_are_followed_and_circles_end() {
        let delegated = table(&[("S-$@a", "@b"), ("S-$@b", "@a,@c"), ("s-$@b", "mount"), ("s-$@d", "send")]);
        let given = || Sets { open: ["@a".to_owned()].into(), ..Sets::default() };
        assert!(given().have("mount", &delegated) && !given().have("send", &delegated));
        // @c is defined further up.
        let mut sets = given();
        assert!(!sets.have("hold", &delegated));
        assert!(sets.have("hold", &table(&[("s-$@c", "hold")])));
        // Known sets are not resolved again.
        assert!(!sets.have("quota", &table(&[("s-$@b", "quota")])));
    }

    #[test]
    fn users_go_by_uid_groups_and_everyone() {
        let who = Credentials { uid: 7, gids: vec![4, 5] };
        for (key, is_theirs) in
            [("ul$7", true), ("ul$4", false), ("gl$5", true), ("ed$", true), ("c-$", false)]
        {
            assert_eq!(who.are(&DelegKey::parse(key).unwrap().who), is_theirs, "{key}");
        }
    }
}

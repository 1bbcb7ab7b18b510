//! `zfs allow`: the permissions delegated in a dataset and above.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_allow_unallow_impl`), including the layout.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cenote_control::users;
use cenote_control::zfs::rights::allow::Delegation;
use cenote_control::zfs::rights::grant::{Grant, Reach, To};
use serde_json::{Value, json};

use crate::json::version;

/// The width of a heading.
const HEADING: usize = 70;

/// As text.
pub fn text(all: &[Delegation]) -> String {
    all.iter().map(|one| section(&one.dataset, &one.grants)).collect()
}

/// As JSON.
pub fn json(all: &[Delegation]) -> Value {
    let entry = |one: &Delegation| json!({"dataset": one.dataset, "permissions": as_json(&one.grants)});
    let all: Vec<Value> = all.iter().map(entry).collect();
    json!({"output_version": version("zfs allow"), "datasets": all})
}

/// Each grantee's permissions, and where each holds: (locally, below).
type Table = BTreeMap<To, BTreeMap<String, (bool, bool)>>;

fn section(name: &str, grants: &[Grant]) -> String {
    let mut table = Table::new();
    for Grant { grantee, permissions } in grants {
        let of_who = table.entry(grantee.to.clone()).or_default();
        for name in permissions {
            let (local, below) = of_who.entry(name.clone()).or_default();
            *local |= grantee.reach == Reach::Local;
            *below |= grantee.reach == Reach::Descendent;
        }
    }
    let heading = format!("---- Permissions on {name} ");
    let mut text = format!("{heading:-<HEADING$}\n");
    let mut part = |title: &str, reaches: (bool, bool), is_meant: fn(&To) -> bool| {
        let mut rows: Vec<(String, String)> = Vec::new();
        for (who, names) in table.iter().filter(|(who, _)| is_meant(who)) {
            let names = names.iter().filter(|(_, reach)| **reach == reaches).map(|(name, _)| name.as_str());
            let names: Vec<&str> = names.collect();
            if !names.is_empty() {
                rows.push((order(who), format!("\t{}{}\n", described(who), names.join(","))));
            }
        }
        // Numbers sort by their digits, as in OpenZFS.
        rows.sort();
        if !rows.is_empty() {
            let _ = writeln!(text, "{title}:");
            rows.iter().for_each(|(_, row)| text += row);
        }
    };
    part("Permission sets", (false, false), |who| matches!(who, To::Set(_)));
    part("Create time permissions", (false, false), |who| *who == To::Creator);
    part("Local permissions", (true, false), is_somebody);
    part("Descendent permissions", (false, true), is_somebody);
    part("Local+Descendent permissions", (true, true), is_somebody);
    text
}

fn is_somebody(who: &To) -> bool {
    matches!(who, To::User(_) | To::Group(_) | To::Everyone)
}

fn order(who: &To) -> String {
    match who {
        To::Set(name) => name.clone(),
        To::Creator => String::new(),
        To::User(id) => format!("0 {id}"),
        To::Group(id) => format!("1 {id}"),
        To::Everyone => "2".into(),
    }
}

/// The grantee, followed by a blank.
fn described(who: &To) -> String {
    let named = |name: Option<String>, id: &u64| name.unwrap_or_else(|| format!("(unknown: {id})"));
    match who {
        To::Set(name) => format!("{name} "),
        To::Creator => String::new(),
        To::User(id) => format!("user {} ", named(users::user(*id), id)),
        To::Group(id) => format!("group {} ", named(users::group(*id), id)),
        To::Everyone => "everyone ".into(),
    }
}

fn as_json(grants: &[Grant]) -> Value {
    let entry = |Grant { grantee, permissions }: &Grant| {
        let (kind, id, name) = match &grantee.to {
            To::Set(name) => ("set", None, Some(name.clone())),
            To::Creator => ("create", None, None),
            To::User(id) => ("user", Some(*id), users::user(*id)),
            To::Group(id) => ("group", Some(*id), users::group(*id)),
            To::Everyone => ("everyone", None, None),
        };
        let reach = match grantee.reach {
            Reach::Local => Some("local"),
            Reach::Descendent => Some("descendent"),
            Reach::Any => None,
        };
        json!({"type": kind, "id": id, "name": name, "reach": reach, "permissions": permissions})
    };
    grants.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use cenote_control::zfs::rights::grant::Grantee;

    use super::*;

    #[test]
    fn it_is_laid_out_as_in_openzfs() {
        let set = |name: &str| To::Set(name.into());
        let grants = [
            (set("@ops"), Reach::Any, "snapshot,hold"),
            (set("@ops"), Reach::Any, "@base"),
            (set("@base"), Reach::Any, "mount"),
            (To::Creator, Reach::Any, "destroy"),
            (To::User(4294967290), Reach::Local, "create,mount"),
            (To::User(4294967290), Reach::Descendent, "mount"),
            (To::User(4294967290), Reach::Descendent, "@ops"),
            (To::Everyone, Reach::Descendent, "mount"),
            (To::Everyone, Reach::Local, "mount"),
            (To::User(0), Reach::Local, "rename"),
        ];
        let grants = grants.map(|(to, reach, names)| Grant {
            grantee: Grantee { to, reach },
            permissions: names.split(',').map(str::to_owned).collect(),
        });
        let text = "---- Permissions on tank/a -------------------------------------------\n\
            Permission sets:\n\t@base mount\n\t@ops @base,hold,snapshot\n\
            Create time permissions:\n\tdestroy\n\
            Local permissions:\n\tuser root rename\n\tuser (unknown: 4294967290) create\n\
            Descendent permissions:\n\tuser (unknown: 4294967290) @ops\n\
            Local+Descendent permissions:\n\tuser (unknown: 4294967290) mount\n\teveryone mount\n";
        assert_eq!(section("tank/a", &grants), text);
    }
}

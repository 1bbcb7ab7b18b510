//! `zfs allow`, `unallow`: permissions of users other than administrators.
//!
//! ```text
//!   allow DATASET                                     shows the permissions delegated there and above
//!   allow [-ld] [-u|-g] WHO[,...] PERMISSIONS DATASET
//!   allow [-ld] -e PERMISSIONS DATASET                everyone; also with the word for WHO
//!   allow -c PERMISSIONS DATASET                      the creator of a dataset below, in that dataset
//!   allow -s @SET PERMISSIONS DATASET                 a set, usable as a permission
//! ```
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_allow_unallow_impl`), including the layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cenote_control::users;
use cenote_control::zfs::rights::allow::{self, Delegation};
use cenote_control::zfs::rights::grant::{Grant, Grantee, Reach, To};
use cenote_control::zfs::rights::unallow;
use clap::Args;
use serde_json::{Value, json};

use crate::command::json::version;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// The width of a heading.
const HEADING: usize = 70;

/// `zfs allow`
#[derive(Debug, Args)]
#[command(
    after_help = "Permissions are verbs (create, destroy, snapshot, mount...), properties, and sets @NAME, \
        comma-separated; zfs-allow(8) lists them. They apply in the daemon (`cenote serve`), to users other \
        than root and the daemon's user. Such users can't mount.\n\n\
        Examples:\n  \
        cenote zfs allow everyone create,mount,snapshot tank/home\n  \
        cenote zfs allow tank/home"
)]
pub struct Allow {
    /// Grantees and reach
    #[command(flatten)]
    pub whom: Whom,
    /// Grantees, permissions and the dataset; or only the dataset, to show its delegations
    #[arg(required = true, num_args = 1..=3, value_names = ["WHO", "PERMISSIONS", "DATASET"])]
    pub words: Vec<String>,
}

/// `zfs unallow`
#[derive(Debug, Args)]
#[command(after_help = "Without permissions, revokes all.\n\n\
    Example: cenote zfs unallow -r everyone tank/home")]
pub struct Unallow {
    /// Include all descendants
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Grantees and reach
    #[command(flatten)]
    pub whom: Whom,
    /// Grantees, permissions and the dataset
    #[arg(required = true, num_args = 1..=3, value_names = ["WHO", "PERMISSIONS", "DATASET"])]
    pub words: Vec<String>,
}

/// The kind of grantees, and the datasets that the permissions reach.
#[derive(Debug, Args)]
pub struct Whom {
    /// Only in the dataset itself
    #[arg(short = 'l')]
    pub local: bool,
    /// Only in its descendants
    #[arg(short = 'd')]
    pub descendent: bool,
    /// The grantees are users
    #[arg(short = 'u', conflicts_with_all = ["group", "everyone", "creator", "set"])]
    pub user: bool,
    /// The grantees are groups
    #[arg(short = 'g', conflicts_with_all = ["everyone", "creator", "set"])]
    pub group: bool,
    /// The grantee is everyone, and is not named
    #[arg(short = 'e', conflicts_with_all = ["creator", "set"])]
    pub everyone: bool,
    /// The grantee is the creator of a descendant, in that descendant, and is not named
    #[arg(short = 'c', conflicts_with_all = ["local", "descendent", "set"])]
    pub creator: bool,
    /// The grantee is a set of permissions, @NAME
    #[arg(short = 's')]
    pub set: bool,
}

/// The parsed words of a command.
struct Form<'a> {
    who: Option<&'a str>,
    /// `None`: all.
    permissions: Option<&'a str>,
}

impl Whom {
    fn form<'a>(&self, words: &'a [String]) -> Result<Form<'a>, CliError> {
        let wrong = || CliError::Usage("wrong number of parameters".into());
        let (_dataset, words) = words.split_last().ok_or_else(wrong)?;
        let is_named = !self.everyone && !self.creator;
        let (who, words) = match words.split_first() {
            Some((who, words)) if is_named => (Some(who.as_str()), words),
            None if is_named => return Err(wrong()),
            _ => (None, words),
        };
        let permissions = match words {
            [] => None,
            [permissions] => Some(permissions.as_str()),
            _ => return Err(wrong()),
        };
        Ok(Form { who, permissions })
    }

    /// Returns `meant`; if it is an error, a missing dataset is reported first.
    async fn or_missing<T>(
        &self,
        session: &Session,
        words: &[String],
        meant: Result<T, CliError>,
    ) -> Result<T, CliError> {
        self.form(words)?;
        if let (Err(_), Some(dataset)) = (&meant, words.last()) {
            session.control().run(allow::Allow { dataset: dataset.clone(), grants: None }).await?;
        }
        meant
    }

    fn grantees(&self, who: Option<&str>) -> Result<Vec<Grantee>, CliError> {
        let who = match who {
            None if self.creator => return Ok(vec![Grantee { to: To::Creator, reach: Reach::Any }]),
            None => vec![To::Everyone],
            Some(set) if self.set && set.starts_with('@') => {
                return Ok(vec![Grantee { to: To::Set(set.into()), reach: Reach::Any }]);
            }
            Some(_) if self.set => {
                return Err(CliError::Usage("invalid set name: missing '@' prefix".into()));
            }
            Some("everyone") if !self.user && !self.group => vec![To::Everyone],
            Some(all) => all.split(',').map(|who| self.find(who)).collect::<Result<_, _>>()?,
        };
        let both = self.local == self.descendent;
        let reaches = [(Reach::Local, self.local), (Reach::Descendent, self.descendent)];
        let reaches = reaches.into_iter().filter(|(_, asked)| both || *asked).map(|(reach, _)| reach);
        let at = |reach| who.iter().map(move |to| Grantee { to: to.clone(), reach });
        Ok(reaches.flat_map(at).collect())
    }

    /// A user or group by name or number.
    fn find(&self, typed: &str) -> Result<To, CliError> {
        let invalid = |kind: &str| CliError::Usage(format!("invalid {kind} {typed}"));
        let id = typed.parse::<u32>().ok().map(u64::from);
        match () {
            () if self.user => id.or_else(|| users::uid(typed)).map(To::User).ok_or_else(|| invalid("user")),
            () if self.group => {
                id.or_else(|| users::gid(typed)).map(To::Group).ok_or_else(|| invalid("group"))
            }
            () => {
                let uid = id.filter(|id| users::user(*id).is_some()).or_else(|| users::uid(typed));
                let gid = || id.filter(|id| users::group(*id).is_some()).or_else(|| users::gid(typed));
                let who = uid.map(To::User).or_else(|| gid().map(To::Group));
                who.ok_or_else(|| invalid("user/group"))
            }
        }
    }
}

impl Allow {
    /// Whether it only shows permissions.
    fn only_looks(&self) -> bool {
        let Whom { user, group, everyone, creator, set, .. } = self.whom;
        self.words.len() == 1 && ![user, group, everyone, creator, set].contains(&true)
    }

    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let dataset = self.words.last().cloned().unwrap_or_default();
        if self.only_looks() {
            let answered = session.control().run(allow::Allow { dataset, grants: None }).await?;
            return show(session, answered.answer).map(|()| answered.outcome);
        }
        let grants = self.whom.or_missing(session, &self.words, self.grants()).await?;
        Ok(session.control().run(allow::Allow { dataset, grants: Some(grants) }).await?.outcome)
    }

    /// The permissions to delegate.
    fn grants(&self) -> Result<Vec<Grant>, CliError> {
        let Form { who, permissions } = self.whom.form(&self.words)?;
        let missing = || CliError::Usage("wrong number of parameters".into());
        let permissions = named(permissions.ok_or_else(missing)?);
        let grant = |grantee| Grant { grantee, permissions: permissions.clone() };
        Ok(self.whom.grantees(who)?.into_iter().map(grant).collect())
    }
}

impl Unallow {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Form { who, permissions } = self.whom.form(&self.words)?;
        let request = unallow::Unallow {
            dataset: self.words.last().cloned().unwrap_or_default(),
            grantees: self.whom.or_missing(session, &self.words, self.whom.grantees(who)).await?,
            permissions: permissions.map(named),
            recursive: self.recursive,
        };
        Ok(session.control().run(request).await?.outcome)
    }
}

/// Comma-separated permissions.
fn named(permissions: &str) -> BTreeSet<String> {
    permissions.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Shows the permissions delegated in a dataset and above.
fn show(session: &Session, all: Vec<Delegation>) -> Result<(), CliError> {
    if session.json() {
        let entry = |one: &Delegation| json!({"dataset": one.dataset, "permissions": as_json(&one.grants)});
        let all: Vec<Value> = all.iter().map(entry).collect();
        return print_json(&json!({"output_version": version("zfs allow"), "datasets": all}));
    }
    print(all.iter().map(|one| section(&one.dataset, &one.grants)).collect::<String>())
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
        let grants = grants
            .map(|(to, reach, names)| Grant { grantee: Grantee { to, reach }, permissions: named(names) });
        let text = "---- Permissions on tank/a -------------------------------------------\n\
            Permission sets:\n\t@base mount\n\t@ops @base,hold,snapshot\n\
            Create time permissions:\n\tdestroy\n\
            Local permissions:\n\tuser root rename\n\tuser (unknown: 4294967290) create\n\
            Descendent permissions:\n\tuser (unknown: 4294967290) @ops\n\
            Local+Descendent permissions:\n\tuser (unknown: 4294967290) mount\n\teveryone mount\n";
        assert_eq!(section("tank/a", &grants), text);
    }
}

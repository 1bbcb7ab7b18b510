//! `zfs allow`, `unallow`: who may do what without being an administrator.
//!
//! ```text
//!   allow DATASET                                     shows what is delegated there and above
//!   allow [-ld] [-u|-g] WHO[,...] PERMISSIONS DATASET
//!   allow [-ld] -e PERMISSIONS DATASET                everyone; also with the word for WHO
//!   allow -c PERMISSIONS DATASET                      whoever makes a dataset below, in it
//!   allow -s @SET PERMISSIONS DATASET                 a set, which may stand for a permission
//! ```
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_allow_unallow_impl`), including the layout.

use cenote_control::users;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cenote_dataset::{Delegated, Dir, Mos};
use cenote_format::deleg::{DelegKey, Reach, Who};
use cenote_tasks::Withdrawn;
use clap::Args;
use serde_json::{Value, json};

use super::pool_of;
use super::refusal::cannot;
use crate::command::json::version;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, dataset, print, print_json};

/// The width of a heading.
const HEADING: usize = 70;

/// `zfs allow`
#[derive(Debug, Args)]
#[command(
    after_help = "Permissions are verbs (create, destroy, snapshot, mount...), properties, and sets @NAME, \
        comma-separated; `zfs allow`(8) lists them. They count in the daemon (`cenote serve`), for users who \
        are neither root nor the daemon's user. These mount nothing: that is left to administrators.\n\n\
        Example: cenote zfs allow ada create,mount,snapshot tank/home/ada; cenote zfs allow tank/home/ada"
)]
pub struct Allow {
    /// To whom, and where
    #[command(flatten)]
    pub whom: Whom,
    /// WHO, permissions, and the dataset; or only the dataset, to show what is delegated
    #[arg(required = true, num_args = 1..=3, value_names = ["WHO", "PERMISSIONS", "DATASET"])]
    pub words: Vec<String>,
}

/// `zfs unallow`
#[derive(Debug, Args)]
#[command(after_help = "Without permissions, all are taken back.\n\n\
    Example: cenote zfs unallow -r ada tank/home")]
pub struct Unallow {
    /// In everything below, too
    #[arg(short = 'r')]
    pub recursive: bool,
    /// From whom, and where
    #[command(flatten)]
    pub whom: Whom,
    /// WHO, permissions, and the dataset
    #[arg(required = true, num_args = 1..=3, value_names = ["WHO", "PERMISSIONS", "DATASET"])]
    pub words: Vec<String>,
}

/// To whom something is delegated, and where.
#[derive(Debug, Args)]
pub struct Whom {
    /// Only in the dataset itself
    #[arg(short = 'l')]
    pub local: bool,
    /// Only in what is below it
    #[arg(short = 'd')]
    pub descendent: bool,
    /// WHO are users
    #[arg(short = 'u', conflicts_with_all = ["group", "everyone", "creator", "set"])]
    pub user: bool,
    /// WHO are groups
    #[arg(short = 'g', conflicts_with_all = ["everyone", "creator", "set"])]
    pub group: bool,
    /// Everyone
    #[arg(short = 'e', conflicts_with_all = ["creator", "set"])]
    pub everyone: bool,
    /// Whoever makes a dataset below, in that dataset
    #[arg(short = 'c', conflicts_with_all = ["local", "descendent", "set"])]
    pub creator: bool,
    /// WHO is the name of a set, @NAME
    #[arg(short = 's')]
    pub set: bool,
}

/// The words of a command, taken apart.
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

    fn keys(&self, who: Option<&str>) -> Result<Vec<(Who, Reach)>, CliError> {
        let who = match who {
            None if self.creator => return Ok(vec![(Who::Creator, Reach::Any)]),
            None => vec![Who::Everyone],
            Some(set) if self.set && set.starts_with('@') => {
                return Ok(vec![(Who::Set(set.into()), Reach::Any)]);
            }
            Some(_) if self.set => {
                return Err(CliError::Usage("invalid set name: missing '@' prefix".into()));
            }
            Some("everyone") if !self.user && !self.group => vec![Who::Everyone],
            Some(all) => all.split(',').map(|who| self.find(who)).collect::<Result<_, _>>()?,
        };
        let both = self.local == self.descendent;
        let reaches = [(Reach::Local, self.local), (Reach::Descendent, self.descendent)];
        let reaches = reaches.into_iter().filter(|(_, asked)| both || *asked).map(|(reach, _)| reach);
        Ok(reaches.flat_map(|reach| who.iter().map(move |who| (who.clone(), reach))).collect())
    }

    /// A user or group by name or number.
    fn find(&self, typed: &str) -> Result<Who, CliError> {
        let invalid = |kind: &str| CliError::Usage(format!("invalid {kind} {typed}"));
        let id = typed.parse::<u32>().ok().map(u64::from);
        match () {
            () if self.user => id.or_else(|| users::uid(typed)).map(Who::User).ok_or_else(|| invalid("user")),
            () if self.group => {
                id.or_else(|| users::gid(typed)).map(Who::Group).ok_or_else(|| invalid("group"))
            }
            () => {
                let uid = id.filter(|id| users::user(*id).is_some()).or_else(|| users::uid(typed));
                let gid = || id.filter(|id| users::group(*id).is_some()).or_else(|| users::gid(typed));
                let who = uid.map(Who::User).or_else(|| gid().map(Who::Group));
                who.ok_or_else(|| invalid("user/group"))
            }
        }
    }
}

impl Allow {
    /// Whether it only shows what is delegated.
    pub fn only_looks(&self) -> bool {
        let Whom { user, group, everyone, creator, set, .. } = self.whom;
        self.words.len() == 1 && ![user, group, everyone, creator, set].contains(&true)
    }

    /// The dataset.
    pub fn dataset(&self) -> &str {
        self.words.last().map_or("", String::as_str)
    }

    /// What is to be delegated.
    pub fn delegated(&self) -> Result<Vec<Delegated>, CliError> {
        let Form { who, permissions } = self.whom.form(&self.words)?;
        let missing = || CliError::Usage("wrong number of parameters".into());
        let permissions = permissions.ok_or_else(missing)?;
        Ok(sorted(self.whom.keys(who)?, permissions))
    }

    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let name = self.dataset();
        if self.only_looks() {
            let mos = session.open_pool_without_asking(pool_of(name)).await?;
            let shown = dataset(&mos, name).await?;
            return show(session, shown.dir()).await.map(|()| Outcome::Done);
        }
        self.whom.form(&self.words)?;
        session
            .change_pool(pool_of(name), async |engine| {
                dataset(&engine.mos().await?, name).await?;
                let delegated = self.delegated()?;
                let allowed = cenote_tasks::allow(engine, name, delegated).await;
                allowed.map_err(cannot(format!("set permissions on '{name}'")))
            })
            .await
    }
}

impl Unallow {
    /// The dataset.
    pub fn dataset(&self) -> &str {
        self.words.last().map_or("", String::as_str)
    }

    /// All datasets that are concerned.
    pub async fn datasets(&self, mos: &Mos) -> Result<Vec<String>, CliError> {
        let head = dataset(mos, self.dataset()).await?;
        let all = if self.recursive { head.descendants().await? } else { vec![head] };
        Ok(all.iter().map(|dataset| dataset.name().to_owned()).collect())
    }

    /// What is to be taken, and from whom.
    pub fn withdrawn(&self) -> Result<Vec<Withdrawn>, CliError> {
        let Form { who, permissions } = self.whom.form(&self.words)?;
        let keys = self.whom.keys(who)?;
        Ok(match permissions {
            Some(permissions) => {
                sorted(keys, permissions).into_iter().map(|(key, names)| (key, Some(names))).collect()
            }
            None => {
                let both = |(who, reach): (Who, Reach)| {
                    [false, true].map(|of_sets| (DelegKey { who: who.clone(), reach, of_sets }, None))
                };
                keys.into_iter().flat_map(both).collect()
            }
        })
    }

    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let name = self.dataset();
        self.whom.form(&self.words)?;
        session
            .change_pool(pool_of(name), async |engine| {
                let datasets = self.datasets(&engine.mos().await?).await?;
                let withdrawn = self.withdrawn()?;
                let taken = cenote_tasks::unallow(engine, &datasets, withdrawn).await;
                taken.map_err(cannot(format!("set permissions on '{name}'")))
            })
            .await
    }
}

/// Permissions and sets, each under its own keys.
fn sorted(keys: Vec<(Who, Reach)>, permissions: &str) -> Vec<Delegated> {
    let names = permissions.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
    let (sets, permissions): (BTreeSet<String>, BTreeSet<String>) =
        names.partition(|name| name.starts_with('@'));
    let mut delegated = Vec::new();
    for (who, reach) in keys {
        for (of_sets, names) in [(false, &permissions), (true, &sets)] {
            if !names.is_empty() {
                delegated.push((DelegKey { who: who.clone(), reach, of_sets }, names.clone()));
            }
        }
    }
    delegated
}

/// Shows what is delegated in a directory and above.
async fn show(session: &Session, dir: &Dir) -> Result<(), CliError> {
    let (mut text, mut all) = (String::new(), Vec::new());
    let mut at = Some(dir);
    while let Some(dir) = at {
        let delegated = dir.delegated().await?;
        if !delegated.is_empty() {
            text += &section(dir.name(), &delegated);
            all.push(json!({"dataset": dir.name(), "permissions": as_json(&delegated)}));
        }
        at = dir.parent();
    }
    match session.json() {
        true => print_json(&json!({"output_version": version("zfs allow"), "datasets": all})),
        false => print(text),
    }
}

/// Whoever has something, and each thing with where it holds: locally, below.
type Table = BTreeMap<Who, BTreeMap<String, (bool, bool)>>;

fn section(name: &str, delegated: &[Delegated]) -> String {
    let mut table = Table::new();
    for (key, names) in delegated {
        let of_who = table.entry(key.who.clone()).or_default();
        for name in names {
            let (local, below) = of_who.entry(name.clone()).or_default();
            *local |= key.reach == Reach::Local;
            *below |= key.reach == Reach::Descendent;
        }
    }
    let heading = format!("---- Permissions on {name} ");
    let mut text = format!("{heading:-<HEADING$}\n");
    let mut part = |title: &str, reaches: (bool, bool), is_meant: fn(&Who) -> bool| {
        let mut rows: Vec<(String, String)> = Vec::new();
        for (who, names) in table.iter().filter(|(who, _)| is_meant(who)) {
            let names = names.iter().filter(|(_, reach)| **reach == reaches).map(|(name, _)| name.as_str());
            let names: Vec<&str> = names.collect();
            if !names.is_empty() {
                rows.push((order(who), format!("\t{}{}\n", described(who), names.join(","))));
            }
        }
        // Numbers go by their digits, as in OpenZFS.
        rows.sort();
        if !rows.is_empty() {
            let _ = writeln!(text, "{title}:");
            rows.iter().for_each(|(_, row)| text += row);
        }
    };
    part("Permission sets", (false, false), |who| matches!(who, Who::Set(_)));
    part("Create time permissions", (false, false), |who| *who == Who::Creator);
    part("Local permissions", (true, false), is_somebody);
    part("Descendent permissions", (false, true), is_somebody);
    part("Local+Descendent permissions", (true, true), is_somebody);
    text
}

fn is_somebody(who: &Who) -> bool {
    matches!(who, Who::User(_) | Who::Group(_) | Who::Everyone)
}

fn order(who: &Who) -> String {
    match who {
        Who::Set(name) => name.clone(),
        Who::Creator => String::new(),
        Who::User(id) => format!("0 {id}"),
        Who::Group(id) => format!("1 {id}"),
        Who::Everyone => "2".into(),
    }
}

/// With the blank that follows it.
fn described(who: &Who) -> String {
    let named = |name: Option<String>, id: &u64| name.unwrap_or_else(|| format!("(unknown: {id})"));
    match who {
        Who::Set(name) => format!("{name} "),
        Who::Creator => String::new(),
        Who::User(id) => format!("user {} ", named(users::user(*id), id)),
        Who::Group(id) => format!("group {} ", named(users::group(*id), id)),
        Who::Everyone => "everyone ".into(),
    }
}

fn as_json(delegated: &[Delegated]) -> Value {
    let entry = |(key, names): &Delegated| {
        let (kind, id, name) = match &key.who {
            Who::Set(name) => ("set", None, Some(name.clone())),
            Who::Creator => ("create", None, None),
            Who::User(id) => ("user", Some(*id), users::user(*id)),
            Who::Group(id) => ("group", Some(*id), users::group(*id)),
            Who::Everyone => ("everyone", None, None),
        };
        let reach = match key.reach {
            Reach::Local => Some("local"),
            Reach::Descendent => Some("descendent"),
            Reach::Any => None,
        };
        json!({"type": kind, "id": id, "name": name, "reach": reach, "permissions": names})
    };
    delegated.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delegated(entries: &[(&str, &str)]) -> Vec<Delegated> {
        let entry = |(key, names): &(&str, &str)| {
            (DelegKey::parse(key).unwrap(), names.split(',').map(str::to_owned).collect())
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn it_is_laid_out_as_in_openzfs() {
        let entries = [
            ("s-$@ops", "snapshot,hold"),
            ("S-$@ops", "@base"),
            ("s-$@base", "mount"),
            ("c-$", "destroy"),
            ("ul$4294967290", "create,mount"),
            ("ud$4294967290", "mount"),
            ("Ud$4294967290", "@ops"),
            ("ed$", "mount"),
            ("el$", "mount"),
            ("ul$0", "rename"),
        ];
        let text = "---- Permissions on tank/a -------------------------------------------\n\
            Permission sets:\n\t@base mount\n\t@ops @base,hold,snapshot\n\
            Create time permissions:\n\tdestroy\n\
            Local permissions:\n\tuser root rename\n\tuser (unknown: 4294967290) create\n\
            Descendent permissions:\n\tuser (unknown: 4294967290) @ops\n\
            Local+Descendent permissions:\n\tuser (unknown: 4294967290) mount\n\teveryone mount\n";
        assert_eq!(section("tank/a", &delegated(&entries)), text);
    }
}

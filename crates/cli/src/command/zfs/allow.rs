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
//! Source: OpenZFS `zfs_main.c` (`zfs_do_allow_unallow_impl`).

use std::collections::BTreeSet;

use cenote_control::users;
use cenote_control::zfs::rights::allow as verb;
use cenote_control::zfs::rights::grant::{Grant, Grantee, Reach, To};
use cenote_control::zfs::rights::unallow;
use cenote_shown::zfs::allow;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

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
            session.control().run(verb::Allow { dataset: dataset.clone(), grants: None }).await?;
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
            let answered = session.control().run(verb::Allow { dataset, grants: None }).await?;
            session.show(|| allow::text(&answered.answer), || allow::json(&answered.answer))?;
            return Ok(answered.outcome);
        }
        let grants = self.whom.or_missing(session, &self.words, self.grants()).await?;
        Ok(session.control().run(verb::Allow { dataset, grants: Some(grants) }).await?.outcome)
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

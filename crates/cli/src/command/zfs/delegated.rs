//! What users need to run a verb who are neither root nor the daemon's user: permissions that `zfs allow`
//! delegates.
//!
//! Idea: before such a user's command runs, it is worked out what it would change, by the verb's own plan,
//! and each change is looked up in what was delegated. Nobody but administrators mounts anything, or sets
//! places of keys, which the daemon reads as root when it starts.
//!
//! Source: OpenZFS `zfs_ioctl.c` (`zfs_secpolicy_*`), `zfs_main.c` (`zfs_mount_delegation_check`).

use std::collections::BTreeSet;

use cenote_dataset::{Credentials, Dataset, Mos, Subject};
use cenote_format::deleg::Who;
use cenote_fs::SpaceBy;

use super::create::nearest_above;
use super::hold::Tagged;
use super::{Zfs, pool_of, settings};
use crate::outcome::CliError;
use crate::session::{Session, dataset, key_domains};

/// Who makes or removes a name in a directory needs this too.
const MOUNT: &str = "mount";
/// Why a dataset may not remember a file.
const FILES_FOR_ADMINS: &str = "permission denied: the daemon reads this file with its own rights later, so \
    only root and its user may set it; let it prompt, or use --key and -L file:///PATH each time";
/// What names of properties begin with that `userprop` is not enough for.
const OWN_PROPERTIES: &str = "org.cenote:";
const FOR_ADMINS: &str = "permission denied: only root and the daemon's user may do that";

/// Refuses a verb that this user may not run. What the verb itself would refuse may be said here already.
pub async fn check(zfs: &Zfs, session: &Session, who: &Credentials) -> Result<(), CliError> {
    let Request { what, needs } = Request::of(zfs, session, who).await?;
    let refused = |why: &str| CliError::Refused(format!("cannot {what}: {why}"));
    // Snapshots of one dataset, of which there may be thousands, need what it needs: asked once.
    let mut asked = BTreeSet::new();
    for (dataset, subject, permission) in needs {
        let pool = dataset.mos().pool().guid();
        if !asked.insert((pool, dataset.dir().id(), subject, permission.clone())) {
            continue;
        }
        if !dataset.mos().heeds_delegation().await? {
            return Err(refused("delegated administration is disabled on pool"));
        }
        if !dataset.dir().is_allowed(subject, &permission, who).await? {
            return Err(refused("permission denied"));
        }
    }
    Ok(())
}

/// What a command would do, and the permissions that it needs.
struct Request {
    /// As messages say it.
    what: String,
    needs: Vec<(Dataset, Subject, String)>,
}

impl Request {
    async fn of(zfs: &Zfs, session: &Session, who: &Credentials) -> Result<Request, CliError> {
        let mut request = Request { what: String::new(), needs: Vec::new() };
        let open = async |name: &str| open(session, name).await;
        match zfs {
            Zfs::Create(create) => {
                request.what = format!("create '{}'", create.name);
                request.make(&open(&create.name).await?, &create.name, &create.settings()).await?;
            }
            Zfs::Destroy(destroy) => {
                let (mos, target) = (open(&destroy.target).await?, &destroy.target);
                request.what = match target.contains('@') {
                    true => "destroy snapshots".into(),
                    false => format!("destroy '{target}'"),
                };
                match target.split_once('#') {
                    Some((head, _)) => request.need(&dataset(&mos, head).await?, &["destroy"]),
                    None => request.destroy(&destroy.datasets(&mos).await?),
                }
            }
            Zfs::Snapshot(snapshot) => {
                request.what = "create snapshots ".into();
                let mos = open(&snapshot.snapshots[0]).await?;
                for name in snapshot.names(&mos).await? {
                    let head = dataset(&mos, head_of(&name)).await?;
                    request.need(&head, &["snapshot"]);
                    request.set(&head, &snapshot.options)?;
                }
            }
            Zfs::Rollback(rollback) => {
                let (mos, name) = (open(&rollback.snapshot).await?, head_of(&rollback.snapshot));
                request.what = format!("rollback '{name}'");
                let head = dataset(&mos, name).await?;
                request.need(&head, &["rollback"]);
                let (gone, has_marks) = rollback.destroys(&mos, name).await?;
                request.destroy(&gone);
                if has_marks {
                    request.need(&head, &["destroy"]);
                }
            }
            Zfs::Clone(clone) => {
                request.what = format!("create '{}'", clone.name);
                let mos = open(&clone.name).await?;
                for (origin, name) in clone.clones(&mos).await? {
                    request.need(&dataset(&mos, &origin).await?, &["clone"]);
                    request.make(&mos, &name, &clone.options).await?;
                }
            }
            Zfs::Promote(promote) => {
                request.what = format!("promote '{}'", promote.clone);
                let clone = dataset(&open(&promote.clone).await?, &promote.clone).await?;
                request.need(&clone, &["promote", MOUNT]);
                let origin = clone.origin().await?;
                origin.into_iter().for_each(|origin| request.need(&origin, &["promote"]));
            }
            Zfs::Rename(rename) => {
                request.what = format!("rename '{}'", rename.from);
                let mos = open(&rename.from).await?;
                for (from, to) in rename.renames(&mos).await? {
                    request.need(&dataset(&mos, &from).await?, &["rename", MOUNT]);
                    match to.split_once('@') {
                        Some((head, _)) => request.need(&dataset(&mos, head).await?, &["create", MOUNT]),
                        None => request.make(&mos, &to, &[]).await?,
                    }
                }
            }
            Zfs::Bookmark(mark) => {
                let (_, name) = mark.full_names().map_err(CliError::Usage)?;
                request.what = format!("create bookmark '{name}'");
                request.need(&dataset(&open(&name).await?, head_of(&name)).await?, &["bookmark"]);
            }
            Zfs::Set(set) => {
                let (options, names) = set.parts()?;
                for name in names {
                    request.what = format!("set property for '{name}'");
                    request.set(&dataset(&open(name).await?, name).await?, options)?;
                }
            }
            Zfs::Inherit(inherit) => {
                for name in &inherit.names {
                    request.what = format!("set property for '{name}'");
                    let head = dataset(&open(name).await?, name).await?;
                    let all = if inherit.recursive { head.descendants().await? } else { vec![head] };
                    let property = permission_to_set(&inherit.property)?;
                    all.iter().for_each(|dataset| request.need(dataset, &[&property]));
                }
            }
            Zfs::Hold(hold) => request.tagged(session, "hold snapshot", &hold.tagged, "hold").await?,
            Zfs::Release(release) => {
                let what = "release hold from snapshot";
                request.tagged(session, what, &release.tagged, "release").await?;
            }
            Zfs::ChangeKey(change) => {
                request.what = format!("change key of '{}'", change.name);
                let head = dataset(&open(&change.name).await?, &change.name).await?;
                request.need(&head, if change.load { &["change-key", "load-key"] } else { &["change-key"] });
                if permissions_to_set(&change.options)?.contains(&"userprop".to_owned()) {
                    request.need(&head, &["userprop"]);
                }
            }
            Zfs::LoadKey(load) => {
                request.keys(session, "load", load.name.as_deref(), load.recursive).await?;
            }
            Zfs::UnloadKey(unload) => {
                request.keys(session, "unload", unload.name.as_deref(), unload.recursive).await?;
            }
            Zfs::Allow(allow) => {
                let (name, delegated) = (allow.dataset(), allow.delegated()?);
                request.what = format!("set permissions on '{name}'");
                let head = dataset(&open(name).await?, name).await?;
                // Who was given something hands it on, but not the right to do that.
                if delegated.iter().any(|(_, names)| names.contains("allow")) {
                    return Err(request.denied());
                }
                request.need(&head, &["allow"]);
                for permission in delegated.iter().flat_map(|(_, names)| names) {
                    request.need(&head, &[permission]);
                }
            }
            Zfs::Unallow(unallow) => {
                let mos = open(unallow.dataset()).await?;
                request.what = format!("set permissions on '{}'", unallow.dataset());
                // What others have is not to be taken from them.
                let withdrawn = unallow.withdrawn()?;
                if withdrawn.iter().any(|(key, _)| key.who != Who::User(who.uid.into())) {
                    return Err(request.denied());
                }
                for name in unallow.datasets(&mos).await? {
                    request.need(&dataset(&mos, &name).await?, &["allow"]);
                }
            }
            Zfs::Diff(diff) => {
                request.what = format!("diff '{}'", diff.from);
                let mos = open(&diff.from).await?;
                for name in [diff.from.clone(), diff.later()] {
                    request.need(&dataset(&mos, &name).await?, &["diff"]);
                }
            }
            Zfs::Userspace(owners) => {
                request.owners(session, &owners.shown.dataset, &owners.kinds(SpaceBy::User)).await?;
            }
            Zfs::Groupspace(owners) => {
                request.owners(session, &owners.shown.dataset, &owners.kinds(SpaceBy::Group)).await?;
            }
            Zfs::Projectspace(owners) => {
                request.owners(session, &owners.shown.dataset, &[SpaceBy::Project]).await?;
            }
            Zfs::Send(_) => return Err(CliError::Refused(format!("cannot send: {FOR_ADMINS}"))),
            Zfs::Receive(_) => return Err(CliError::Refused(format!("cannot receive: {FOR_ADMINS}"))),
            Zfs::Mount(_) => return Err(CliError::Refused(format!("cannot mount: {FOR_ADMINS}"))),
            Zfs::Unmount(_) => return Err(CliError::Refused(format!("cannot unmount: {FOR_ADMINS}"))),
            // The table of verbs has them as everybody's.
            _ => return Err(request.denied()),
        }
        Ok(request)
    }

    fn denied(&self) -> CliError {
        CliError::Refused(format!("cannot {}: permission denied", self.what))
    }

    fn need(&mut self, dataset: &Dataset, permissions: &[&str]) {
        let subject = if dataset.is_snapshot() { Subject::Snapshot } else { Subject::Head };
        self.need_as(dataset, subject, permissions);
    }

    fn need_as(&mut self, dataset: &Dataset, subject: Subject, permissions: &[&str]) {
        self.needs.extend(permissions.iter().map(|&name| (dataset.clone(), subject, name.to_owned())));
    }

    /// To set properties.
    fn set(&mut self, dataset: &Dataset, options: &[String]) -> Result<(), CliError> {
        let permissions = permissions_to_set(options)?;
        permissions.iter().for_each(|permission| self.need(dataset, &[permission]));
        Ok(())
    }

    /// To make a dataset, and those above it that are missing, with properties.
    async fn make(&mut self, mos: &Mos, name: &str, options: &[String]) -> Result<(), CliError> {
        let above = nearest_above(mos, name).await?;
        let missing = name.strip_prefix(above.name()).unwrap_or_default().matches('/').count();
        self.need(&above, &["create", MOUNT]);
        if missing > 1 {
            self.need_as(&above, Subject::NewChild, &["create", MOUNT]);
        }
        for permission in permissions_to_set(options)? {
            // What a dataset is, rather than a setting, whoever makes it may say without further permission.
            let is_of_creation =
                cenote_tasks::KEPT_ELSEWHERE.contains(&permission.as_str()) || permission == "keylocation";
            if !is_of_creation {
                self.need_as(&above, Subject::NewChild, &[&permission]);
            }
        }
        Ok(())
    }

    fn destroy(&mut self, datasets: &[Dataset]) {
        datasets.iter().for_each(|dataset| self.need(dataset, &[MOUNT, "destroy"]));
    }

    /// To hold or release snapshots.
    async fn tagged(
        &mut self,
        session: &Session,
        what: &str,
        tagged: &Tagged,
        permission: &str,
    ) -> Result<(), CliError> {
        for name in &tagged.snapshots {
            self.what = format!("{what} '{name}'");
            let head = dataset(&open(session, name).await?, head_of(name)).await?;
            let all = if tagged.recursive { head.descendants().await? } else { vec![head] };
            all.iter().for_each(|head| self.need(head, &[permission]));
        }
        Ok(())
    }

    /// To load or unload keys.
    async fn keys(
        &mut self,
        session: &Session,
        verb: &str,
        name: Option<&str>,
        recursive: bool,
    ) -> Result<(), CliError> {
        let name = name.ok_or_else(|| CliError::Refused(format!("cannot {verb} keys: {FOR_ADMINS}")))?;
        self.what = format!("{verb} key for '{name}'");
        let mos = open(session, name).await?;
        self.need(&dataset(&mos, name).await?, &["load-key"]);
        for domain in key_domains(&mos, Some(name)).await?.iter().filter(|_| recursive) {
            self.need(&dataset(&mos, &domain.info.root).await?, &["load-key"]);
        }
        Ok(())
    }

    /// To see what owners use and may use.
    async fn owners(&mut self, session: &Session, name: &str, kinds: &[SpaceBy]) -> Result<(), CliError> {
        self.what = format!("get used/quota for {name}");
        let dataset = dataset(&open(session, name).await?, name).await?;
        for kind in kinds {
            let permissions: [&str; 4] = match kind {
                SpaceBy::User => ["userused", "userquota", "userobjused", "userobjquota"],
                SpaceBy::Group => ["groupused", "groupquota", "groupobjused", "groupobjquota"],
                SpaceBy::Project => ["projectused", "projectquota", "projectobjused", "projectobjquota"],
            };
            self.need(&dataset, &permissions);
        }
        Ok(())
    }
}

/// The pool that a name is in, as it is now.
async fn open(session: &Session, name: &str) -> Result<Mos, CliError> {
    let missing = || CliError::NotFound(format!("cannot open '{name}': dataset does not exist"));
    Ok(session.held_by_name(pool_of(name)).ok_or_else(missing)?.engine.mos().await?)
}

/// The file system or volume that a snapshot or bookmark is of.
fn head_of(name: &str) -> &str {
    name.split(['@', '#']).next().unwrap_or(name)
}

/// The permissions that `PROPERTY=VALUE` takes. A value for which the daemon would read a file as root later
/// is not to be had.
fn permissions_to_set(options: &[String]) -> Result<Vec<String>, CliError> {
    let mut permissions = Vec::new();
    for option in options {
        let (typed, value) = settings::split(option).map_err(CliError::Usage)?;
        let permission = permission_to_set(typed)?;
        // Names of properties may be typed in several ways: this is the one that is stored.
        if permission == "keylocation" && value != "prompt" {
            return Err(CliError::Refused(format!("keylocation={value}: {FILES_FOR_ADMINS}")));
        }
        permissions.push(permission);
    }
    Ok(permissions)
}

fn permission_to_set(typed: &str) -> Result<String, CliError> {
    Ok(match settings::find(typed).map_err(CliError::Usage)? {
        Some(prop) => prop.name.to_owned(),
        // What the daemon itself goes by: which volumes it serves, as which units, who has reserved them.
        None if typed.to_ascii_lowercase().starts_with(OWN_PROPERTIES) => {
            return Err(CliError::Refused(format!("{typed}: {FOR_ADMINS}")));
        }
        None if typed.contains(':') => "userprop".to_owned(),
        None => typed.split('@').next().unwrap_or(typed).to_owned(),
    })
}

//! `rm`: removes files and folders.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cenote_fs::LastLink;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Target;
use super::change::{on_each, own_reason, parent_of, resolve, until_interrupted};
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Remove files or trees from a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rm {
    /// Files.
    pub targets: Vec<Target>,
    /// Remove folders with all contents.
    #[serde(default)]
    pub recursive: bool,
}

impl Verb for Rm {
    const NAME: &'static str = "rm";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = ();

    /// # Errors
    /// A pool can't be changed; an interrupt. Files that remain are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let removed = on_each(session, &self.targets, async |putter, target| {
            let (dir, name) = parent_of(putter, target).await?;
            let path = target.path_in(&putter.fs().view()).await;
            let object = resolve(putter, path, LastLink::Keep).await?;
            // Not the file's own path, which may be that of another hard link, or of none any more.
            let mut path = putter.fs().path_of(dir).await?;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name);
            let pool = session.held_by_name(target.pool());
            let mounted = pool.and_then(|pool| {
                pool.mounts.mounted_in(&target.dataset, Path::new(OsStr::from_bytes(&path)))
            });
            if let Some(mounted) = mounted {
                return Err(ControlError::Refused(format!("'{mounted}' is mounted there")));
            }
            let work = async {
                let removed = putter.remove(dir, name, self.recursive).await;
                removed.map_err(|error| own_reason(error.into(), object, name))
            };
            match until_interrupted(session, putter, work).await? {
                ((), false) => Ok(()),
                ((), true) => Err(ControlError::Stopped(format!("interrupted; {target} is partly removed"))),
            }
        });
        Ok(removed.await?.into())
    }
}

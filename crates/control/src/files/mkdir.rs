//! `mkdir`: makes folders.

use cenote_format::units::ObjectId;
use cenote_fs::LastLink;
use cenote_fs::write::{NewFile, NewKind};
use cenote_inspect::put::Putter;
use rustix::process::{getegid, geteuid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Target;
use super::change::{on_each, own_reason, parent_of, resolve};
use crate::error::ControlError;
use crate::session::Session;
use crate::text::escape_terminal;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Create folders in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mkdir {
    /// Folders.
    pub targets: Vec<Target>,
    /// Make missing parents; an existing folder is no error.
    #[serde(default)]
    pub parents: bool,
}

impl Verb for Mkdir {
    const NAME: &'static str = "mkdir";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = ();

    /// # Errors
    /// A pool can't be changed. Failed folders are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let made = on_each(session, &self.targets, async |putter, target| match self.parents {
            true => make_all(putter, target, target.path_in(&putter.fs().view()).await).await,
            false => {
                let (dir, name) = parent_of(putter, target).await?;
                make(putter, dir, name).await.map(drop).map_err(|error| own_reason(error, dir, name))
            }
        });
        Ok(made.await?.into())
    }
}

async fn make(putter: &Putter, dir: ObjectId, name: &[u8]) -> Result<ObjectId, ControlError> {
    let (uid, gid) = (geteuid().as_raw().into(), getegid().as_raw().into());
    let new = NewFile { kind: NewKind::Directory, mode: 0o755, umask: 0, uid, gid };
    let name = name.to_vec();
    let made =
        putter.change(move |fs, change| Box::pin(async move { fs.create(change, dir, &name, &new).await }));
    Ok(made.await?)
}

/// Makes the missing folders of a path; follows links to folders, like `mkdir -p`.
async fn make_all(putter: &Putter, target: &Target, path: &[u8]) -> Result<(), ControlError> {
    let mut dir = putter.fs().root();
    let mut end = 0;
    for name in path.split(|&byte| byte == b'/') {
        end += name.len() + 1;
        if name.is_empty() || name == b"." {
            continue;
        }
        dir = match putter.fs().lookup(dir, name).await? {
            None if name != b".." => make(putter, dir, name).await?,
            _ => {
                let so_far = &path[..end - 1];
                let found = resolve(putter, so_far, LastLink::Follow).await?;
                if !putter.fs().view().attr(found).await?.is_dir() {
                    let why = format!("{} is not a folder", escape_terminal(so_far));
                    return Err(ControlError::Refused(format!("{target}: {why}")));
                }
                found
            }
        };
    }
    Ok(())
}

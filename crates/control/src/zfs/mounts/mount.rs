//! `zfs mount`: mounts file systems of the daemon's pools, or lists mounts.

use std::path::PathBuf;

use cenote_host::Atime;
use cenote_host::mounts::Temporary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::permissions::{FOR_ADMINS, Permissions};
use crate::session::{Session, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// Mount file systems of the daemon's pools, or list mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mount {
    /// File systems to mount; none: list mounts.
    #[serde(default)]
    pub which: Option<Which>,
    /// Load missing keys first.
    #[serde(default)]
    pub load_keys: bool,
    /// Options for this mount only.
    #[serde(default)]
    pub options: MountOptions,
    /// Change the options of an existing mount.
    #[serde(default)]
    pub remount: bool,
    /// Mount one that was received redacted, if the tunable `zfs_allow_redacted_dataset_mount` is 1.
    #[serde(default)]
    pub force: bool,
}

/// A choice of file systems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// All of all pools.
    All,
    /// This one.
    One(String),
    /// This one and its descendants.
    Below(String),
}

/// Options of one mount; missing ones come from the properties.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MountOptions {
    /// Read-only.
    pub read_only: Option<bool>,
    /// When access times are written.
    pub access_times: Option<AccessTimes>,
    /// Programs can be run.
    pub exec: Option<bool>,
    /// Set-user-ID and set-group-ID bits apply.
    pub setuid: Option<bool>,
    /// Device nodes work.
    pub devices: Option<bool>,
    /// Extended attributes exist.
    pub xattrs: Option<bool>,
}

/// When access times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessTimes {
    /// Never.
    Off,
    /// If older than the last change, or than a day.
    Relative,
    /// Always.
    On,
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mounted {
    /// Name.
    pub filesystem: String,
    /// Directory.
    pub mountpoint: PathBuf,
}

impl From<MountOptions> for Temporary {
    fn from(options: MountOptions) -> Temporary {
        let MountOptions { read_only, access_times, exec, setuid, devices, xattrs } = options;
        let atime = access_times.map(|times| match times {
            AccessTimes::Off => Atime::Off,
            AccessTimes::Relative => Atime::Relative,
            AccessTimes::On => Atime::On,
        });
        Temporary { read_only, atime, exec, setuid, devices, xattrs }
    }
}

impl Verb for Mount {
    const NAME: &'static str = "zfs mount";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Sometimes;
    /// Mounts, if a list was requested.
    type Answer = Vec<Mounted>;

    fn only_looks(&self) -> bool {
        self.which.is_none()
    }

    /// Mounting is for administrators: it can't be delegated.
    async fn permissions(&self, _session: &Session) -> Result<Permissions, ControlError> {
        match self.which {
            None => Ok(Permissions::to("mount")),
            Some(_) => Err(ControlError::Refused(format!("cannot mount: {FOR_ADMINS}"))),
        }
    }

    /// # Errors
    /// No daemon; the file system is missing, already mounted, or unmountable.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Mounted>>, ControlError> {
        let why =
            "no daemon runs: start `cenote serve`, or mount one file system with `cenote mount DATASET DIR`";
        let pools = session.pools().ok_or_else(|| ControlError::Refused(why.into()))?;
        let (name, recursive) = match &self.which {
            None => {
                let all = pools.all().into_iter().flat_map(|pool| pool.mounts.list());
                let mounted = |(filesystem, mountpoint)| Mounted { filesystem, mountpoint };
                return Ok(all.map(mounted).collect::<Vec<_>>().into());
            }
            Some(Which::All) => return self.mount_all(session).await,
            Some(Which::One(name)) => (name, false),
            Some(Which::Below(name)) => (name, true),
        };
        let missing = || ControlError::NotFound(format!("cannot open '{name}': dataset does not exist"));
        let pool = pools.get(pool_of(name)).ok_or_else(missing)?;
        if self.load_keys {
            let dataset = pool.engine.mos().await?.dataset(name).await?;
            if let Some(info) = dataset.dir().encryption().await? {
                session.load_key_of(&pool, &info.root).await?;
            }
        }
        if recursive {
            let outcome = session.mount_below(&pool, Some(name)).await?;
            return Ok(Answered { answer: Vec::new(), outcome });
        }
        let options = self.options.into();
        let mounted = match self.remount {
            true => pool.mounts.set_temporary(name, options).await,
            false => pool.mounts.mount(name, options, self.force).await,
        };
        mounted.map_err(|error| ControlError::Refused(error.to_string()))?;
        Ok(Vec::new().into())
    }
}

impl Mount {
    async fn mount_all(&self, session: &Session) -> Result<Answered<Vec<Mounted>>, ControlError> {
        let mut outcome = Outcome::Done;
        for pool in session.pools().map(|pools| pools.all()).unwrap_or_default() {
            if self.load_keys {
                outcome = outcome.and(session.load_keys(&pool, None).await?);
            }
            outcome = outcome.and(session.mount_all(&pool).await?);
        }
        Ok(Answered { answer: Vec::new(), outcome })
    }
}

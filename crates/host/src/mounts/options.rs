//! Mount options, from properties and `zfs mount -o`.

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_fuse::MountOptions;
use cenote_object::DatasetError;

use super::plan::Plan;
use crate::files::{Atime, FilesOptions};

/// FUSE subtype: the mount table shows `fuse.zfs`.
pub const SUBTYPE: &str = "zfs";

/// Options of a single mount: `zfs mount -o`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Temporary {
    /// `ro`, `rw`.
    pub read_only: Option<bool>,
    /// `atime`, `noatime`, `relatime`, `strictatime`.
    pub atime: Option<Atime>,
    /// `exec`, `noexec`.
    pub exec: Option<bool>,
    /// `suid`, `nosuid`.
    pub setuid: Option<bool>,
    /// `dev`, `nodev`.
    pub devices: Option<bool>,
    /// `xattr`, `noxattr`.
    pub xattrs: Option<bool>,
}

impl Temporary {
    /// Merges options: these override `those`.
    pub fn over(self, those: Temporary) -> Temporary {
        Temporary {
            read_only: self.read_only.or(those.read_only),
            atime: self.atime.or(those.atime),
            exec: self.exec.or(those.exec),
            setuid: self.setuid.or(those.setuid),
            devices: self.devices.or(those.devices),
            xattrs: self.xattrs.or(those.xattrs),
        }
    }
}

/// Options fixed when mounting: changing them needs a new mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed {
    reads_anew: bool,
}

/// A mounted file system's properties.
#[derive(Debug, Clone)]
pub struct Properties {
    pub plan: Plan,
    pub files: FilesOptions,
}

impl Properties {
    /// Reads the properties.
    #[boxed]
    pub async fn of(dataset: &Dataset, plan: Plan) -> Result<Properties, DatasetError> {
        Ok(Properties { plan, files: FilesOptions::of(dataset).await? })
    }

    /// The options of `temporary` that still apply after a change from `before`: setting a property overrides
    /// them.
    pub fn still(&self, before: &Properties, temporary: Temporary) -> Temporary {
        fn unless<T>(changed: bool, option: Option<T>) -> Option<T> {
            option.filter(|_| !changed)
        }
        let (new, old) = (&self.plan, &before.plan);
        Temporary {
            read_only: unless(new.read_only != old.read_only, temporary.read_only),
            atime: unless(self.files.atime != before.files.atime, temporary.atime),
            exec: unless(new.exec != old.exec, temporary.exec),
            setuid: unless(new.setuid != old.setuid, temporary.setuid),
            devices: unless(new.devices != old.devices, temporary.devices),
            xattrs: unless(self.files.user_xattrs != before.files.user_xattrs, temporary.xattrs),
        }
    }

    /// The effective values with `temporary`.
    pub fn with(&self, temporary: Temporary) -> Properties {
        let mut all = self.clone();
        all.plan.read_only = temporary.read_only.unwrap_or(all.plan.read_only);
        all.plan.exec = temporary.exec.unwrap_or(all.plan.exec);
        all.plan.setuid = temporary.setuid.unwrap_or(all.plan.setuid);
        all.plan.devices = temporary.devices.unwrap_or(all.plan.devices);
        all.files.atime = temporary.atime.unwrap_or(all.files.atime);
        all.files.user_xattrs = temporary.xattrs.unwrap_or(all.files.user_xattrs);
        all
    }

    pub fn fixed(&self) -> Fixed {
        Fixed { reads_anew: self.files.atime == Atime::On }
    }

    /// The kernel's mount options.
    pub fn mount_options(&self, name: &str) -> MountOptions {
        MountOptions {
            source: name.into(),
            subtype: SUBTYPE,
            read_only: self.plan.read_only,
            no_exec: !self.plan.exec,
            no_suid: !self.plan.setuid,
            no_dev: !self.plan.devices,
            allow_other: true,
            ..MountOptions::default()
        }
    }

    /// Properties that mount options can override, by `zfs get`'s names, with their numbers.
    pub fn shown(&self) -> Vec<(&'static str, u64)> {
        let (plan, atime) = (&self.plan, self.files.atime);
        let mut shown = vec![
            ("readonly", plan.read_only.into()),
            ("exec", plan.exec.into()),
            ("setuid", plan.setuid.into()),
            ("devices", plan.devices.into()),
            ("atime", (atime != Atime::Off).into()),
        ];
        // Meaningless without access times.
        shown.extend((atime != Atime::Off).then_some(("relatime", (atime == Atime::Relative).into())));
        shown
    }
}

//! Names of verbs: a kind of call each.

use super::call::{Action, DeviceVerb};

/// Names of all verbs: of files, of volumes, of datasets, of the pool, and last of devices.
pub const VERBS: [&str; 56] = [
    "open",
    "make",
    "unlink",
    "rename",
    "link",
    "chmod",
    "set xattr",
    "get xattr",
    "readlink",
    "stat",
    "list",
    "read",
    "write",
    "copy",
    "truncate",
    "fsync",
    "close", //
    "read volume",
    "write volume",
    "zero volume",
    "flush volume", //
    "create",
    "destroy",
    "snapshot",
    "destroy snapshot",
    "rollback",
    "clone",
    "receive",
    "promote",
    "rename dataset",
    "hold",
    "release",
    "set",
    "inherit",
    "command rm",
    "command mkdir", //
    "sync",
    "scrub",
    "trim",
    "verify", //
    "offline",
    "online",
    "clear",
    "reopen",
    "resilver",
    "stop scrub",
    "pause scrub",
    "replace",
    "attach",
    "expand",
    "detach",
    "add",
    "remove",
    "stop removal",
    "checkpoint",
    "discard checkpoint",
];
/// The first of volumes.
pub const FIRST_OF_VOLUMES: usize = 17;
/// The first of administrators.
pub const FIRST_OF_ADMINISTRATORS: usize = 21;
/// The number of those of devices.
pub const DEVICE_VERBS: usize = 16;

/// The name of an action's verb.
pub fn verb_of(action: &Action) -> &'static str {
    use Action::*;
    match action {
        Open { .. } => "open",
        Make { .. } => "make",
        Unlink { .. } => "unlink",
        Rename { .. } => "rename",
        Link { .. } => "link",
        Chmod { .. } => "chmod",
        SetXattr { .. } => "set xattr",
        GetXattr { .. } => "get xattr",
        Readlink { .. } => "readlink",
        Stat { .. } => "stat",
        List { .. } => "list",
        Read { .. } => "read",
        Write { .. } => "write",
        Copy { .. } => "copy",
        Truncate { .. } => "truncate",
        Fsync { .. } => "fsync",
        Close { .. } => "close",
        ReadBlocks { .. } => "read volume",
        WriteBlocks { .. } => "write volume",
        ZeroBlocks { .. } => "zero volume",
        FlushVolume { .. } => "flush volume",
        Create { .. } => "create",
        Destroy { .. } => "destroy",
        Snapshot { .. } => "snapshot",
        DestroySnapshot { .. } => "destroy snapshot",
        Rollback { .. } => "rollback",
        Clone { .. } => "clone",
        Receive { .. } => "receive",
        Promote { .. } => "promote",
        RenameDataset { .. } => "rename dataset",
        Hold { .. } => "hold",
        Release { .. } => "release",
        Set { .. } => "set",
        Inherit { .. } => "inherit",
        CommandRemove { .. } => "command rm",
        CommandMake { .. } => "command mkdir",
        Pool { verb } if verb == "scrub" => "scrub",
        Pool { verb } if verb == "trim" => "trim",
        Pool { verb } if verb == "verify" => "verify",
        Pool { .. } => "sync",
        Device { verb } => verb_of_devices(verb),
    }
}

fn verb_of_devices(verb: &DeviceVerb) -> &'static str {
    use DeviceVerb::*;
    match verb {
        Offline { .. } => "offline",
        Online(_) => "online",
        Clear => "clear",
        Reopen => "reopen",
        Resilver => "resilver",
        StopScrub => "stop scrub",
        PauseScrub => "pause scrub",
        Replace { .. } => "replace",
        Attach { .. } => "attach",
        Expand { .. } => "expand",
        Detach(_) => "detach",
        Add(_) => "add",
        Remove(_) => "remove",
        StopRemoval => "stop removal",
        Checkpoint { discard: false } => "checkpoint",
        Checkpoint { discard: true } => "discard checkpoint",
    }
}

//! Every verb, with arguments that are refused, or with read-only arguments.
//!
//! `{P}` is the pool, `{IMAGE}` one of its disks, `{OTHER}` a disk of another pool, `{NEW}` an empty file
//! that could become a disk, `{HOST}` a local file, `{MISSING}` a path that does not exist.

/// How a verb affects pools.
pub enum Verb {
    /// It changes them: refused arguments, each with the exit status.
    Changes(&'static [(&'static str, i32)]),
    /// It only reads: arguments to run it with.
    Looks(&'static str),
    /// It does not touch pools on disks, or only has subcommands.
    Apart,
}

use Verb::{Apart, Changes, Looks};

pub const VERBS: &[(&str, Verb)] = &[
    ("zpool", Apart),
    ("zpool version", Apart),
    ("zfs", Apart),
    ("zfs version", Apart),
    ("ls", Looks("{P}:/")),
    ("stat", Looks("{P}:/")),
    ("cat", Looks("{P}:/nosuch")),
    (
        "cp",
        Changes(&[
            ("{MISSING} {P}:/", 1),
            ("{HOST} {P}:/nosuch/x", 1),
            ("{HOST} {P}/nosuch:/", 1),
            ("{HOST} {HOST} {P}:/nosuch", 2),
            ("{P}:/nosuch {P}:/x", 1),
            ("{P}:/nosuch {MISSING}", 1),
        ]),
    ),
    ("mkdir", Changes(&[("{P}:/", 2), ("{P}:/nosuch/x", 1), ("{P}/nosuch:/x", 1), ("-p {P}:/", 0)])),
    ("rm", Changes(&[("{P}:/nosuch", 1), ("{P}:/", 2), ("{P}/nosuch:/x", 1), ("{P}:/no1 {P}:/no2", 1)])),
    ("find", Looks("{P}:/")),
    ("du", Looks("{P}:/")),
    ("mount", Changes(&[("{P} {MISSING}", 1), ("{P}/nosuch {MISSING}", 1), ("-o bogus {P} {MISSING}", 2)])),
    ("volume", Apart),
    ("volume cp", Changes(&[("{HOST} {P}", 1), ("{HOST} {P}/nosuch", 1), ("{MISSING} {P}", 1)])),
    ("scan", Looks("-r {P}")),
    ("verify", Looks("{P}")),
    ("rescue", Looks("{P}/nosuch {MISSING}")),
    ("lab", Apart),
    ("dump", Apart),
    ("demo", Apart),
    ("serve", Apart),
    ("zfs mount", Changes(&[("{P}", 1)])),
    ("zfs unmount", Changes(&[("{P}", 1)])),
    ("completions", Apart),
    ("man", Apart),
    (
        "zfs create",
        Changes(&[
            ("{P}", 1),
            ("{P}/nosuch/x", 1),
            ("{P}/a%b", 1),
            ("-o bogus=1 {P}/x", 1),
            ("-o compression=nosuch {P}/x", 1),
            ("-V 1000x {P}/x", 1),
        ]),
    ),
    ("zfs destroy", Changes(&[("{P}@nosuch", 1), ("{P}/nosuch", 1), ("{P}#nosuch", 1), ("{P}", 1)])),
    ("zfs snapshot", Changes(&[("{P}/nosuch@x", 1), ("{P}@a%b", 1), ("-o atime=off {P}@x", 1), ("{P}", 2)])),
    ("zfs rollback", Changes(&[("{P}@nosuch", 1), ("{P}", 2)])),
    ("zfs clone", Changes(&[("{P}@nosuch {P}/x", 1), ("-o bogus=1 {P}@nosuch {P}/x", 1)])),
    ("zfs promote", Changes(&[("{P}", 1), ("{P}/nosuch", 1)])),
    ("zfs rename", Changes(&[("{P}/nosuch {P}/x", 1), ("{P} {P}/x", 1), ("{P}@nosuch {P}@x", 1)])),
    ("zfs bookmark", Changes(&[("{P}@nosuch {P}#x", 1), ("{P}#nosuch {P}#x", 1)])),
    (
        "zfs set",
        Changes(&[
            ("bogus=1 {P}", 1),
            ("atime=off bogus=1 {P}", 1),
            ("compression=nosuch {P}", 1),
            ("used=1 {P}", 1),
            ("volsize=1G {P}", 1),
            ("atime=off {P}/nosuch", 1),
            ("userquota@1=5x {P}", 1),
        ]),
    ),
    ("zfs inherit", Changes(&[("bogus {P}", 2), ("used {P}", 1), ("atime {P}/nosuch", 1)])),
    ("zfs hold", Changes(&[("x {P}@nosuch", 1), ("-r x {P}@nosuch", 1), ("x {P}@no1 {P}@no2", 1)])),
    ("zfs release", Changes(&[("x {P}@nosuch", 1), ("-r x {P}@nosuch", 1)])),
    ("zfs change-key", Changes(&[("{P}/nosuch", 1), ("-i {P}/nosuch", 1)])),
    ("zfs load-key", Looks("{P}/nosuch")),
    ("zfs list", Looks("-t all -r {P}")),
    ("zfs get", Looks("all {P}")),
    ("zfs diff", Looks("{P}@nosuch")),
    ("zfs holds", Looks("{P}@nosuch")),
    ("zfs userspace", Looks("{P}")),
    ("zfs groupspace", Looks("{P}")),
    ("zfs projectspace", Looks("{P}")),
    (
        "zpool create",
        Changes(&[
            ("new {IMAGE}", 2),
            ("new {OTHER}", 2),
            ("new {NEW} {IMAGE}", 2),
            ("new {NEW} {MISSING}", 1),
            ("-f new mirror {NEW}", 2),
            ("-O bogus=1 new {NEW}", 2),
            ("-o bogus=1 new {NEW}", 2),
            ("1new {NEW}", 2),
            ("-n new {NEW}", 0),
        ]),
    ),
    ("zpool export", Changes(&[("nosuch", 1), ("{P}", 0)])),
    ("zpool destroy", Changes(&[("nosuch", 1)])),
    ("zpool checkpoint", Changes(&[("nosuch", 1), ("--discard {P}", 1)])),
    ("zpool sync", Changes(&[("nosuch", 1)])),
    ("zpool labelclear", Changes(&[("{IMAGE}", 2), ("{NEW}", 1), ("-f {NEW}", 1), ("{MISSING}", 1)])),
    (
        "zpool add",
        Changes(&[
            ("{P} {IMAGE}", 1),
            ("-f {P} {IMAGE}", 1),
            ("{P} {OTHER}", 1),
            ("{P} {NEW} {MISSING}", 1),
            ("-f {P} mirror {NEW}", 2),
            ("{P} {NEW} cache {OTHER}", 1),
            ("-o ashift=99 {P} {NEW}", 1),
        ]),
    ),
    (
        "zpool attach",
        Changes(&[
            ("{P} nosuch {NEW}", 1),
            ("{P} {IMAGE} {MISSING}", 1),
            ("{P} {IMAGE} {IMAGE}", 1),
            ("nosuch a b", 1),
        ]),
    ),
    ("zpool detach", Changes(&[("{P} nosuch", 1), ("{P} {IMAGE}", 1), ("nosuch a", 1)])),
    (
        "zpool set",
        Changes(&[
            ("bogus=1 {P}", 1),
            ("feature@bogus=enabled {P}", 1),
            ("ashift=99 {P}", 1),
            ("guid=1 {P}", 1),
            ("compatibility=nosuch {P}", 1),
            ("bootfs={P}/nosuch {P}", 1),
        ]),
    ),
    ("zpool upgrade", Changes(&[("nosuch", 1)])),
    (
        "zpool import",
        Changes(&[("nosuch", 1), ("nosuch new", 1), ("{P} 1new", 1), ("{P} {P}", 1), ("{P}", 0)]),
    ),
    ("zpool status", Looks("{P}")),
    ("zpool list", Looks("-v {P}")),
    ("zpool get", Looks("all {P}")),
    ("zpool history", Looks("-il {P}")),
    ("zpool events", Looks("")),
];

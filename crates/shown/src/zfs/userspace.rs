//! `zfs userspace`, `groupspace`, `projectspace`: usage and quotas of owners in a file system or snapshot.
//!
//! Source: OpenZFS `zfs_main.c` (`print_us_node`), including the columns. Owners are shown by number: see
//! `owners`.

use std::cmp::Ordering;

use cenote_control::zfs::space::owners::{Kind, Owner, Space};
use serde_json::{Map, Value, json};

use crate::json::document;
use crate::numbers::Numbers;
use crate::table::{Align, Table};

/// A column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The kind of owner.
    Type,
    /// The owner.
    Name,
    /// Bytes used.
    Used,
    /// Their limit.
    Quota,
    /// Objects used.
    ObjUsed,
    /// Their limit.
    ObjQuota,
}

/// The kind of owner whose space is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

/// Sorts by these columns, each ascending or (true) descending, then by type and name, as OpenZFS does.
pub fn sort(rows: &mut [Space], keys: &[(Field, bool)]) {
    rows.sort_by(|a, b| compare(keys, a, b));
}

/// As a table. Projects have only one type, so their table has no type column.
pub fn table(rows: &[Space], columns: &[Field], by: By, numbers: Numbers) -> Table {
    let of_projects = by == By::Project;
    let columns: Vec<Field> =
        columns.iter().copied().filter(|field| !of_projects || *field != Field::Type).collect();
    type Shows = fn(Numbers, u64) -> String;
    // Usage and quota of zero mean that nothing is recorded.
    let used = |used: u64, quota: u64, shows: Shows| match (used, quota) {
        (0, 0) => "-".into(),
        _ => shows(numbers, used),
    };
    let limit = |used: u64, quota: u64, shows: Shows| match (used, quota) {
        (0, 0) => "-".into(),
        (_, 0) if !numbers.exact => "none".into(),
        _ => shows(numbers, quota),
    };
    let mut table = Table::new(columns.iter().map(|field| field.column()));
    for row in rows {
        let &Space { used_bytes, quota_bytes, used_objects, quota_objects, .. } = row;
        table.row(columns.iter().map(|field| match field {
            Field::Type => text(row.kind).to_owned(),
            Field::Name => name(row),
            Field::Used => used(used_bytes, quota_bytes, Numbers::bytes),
            Field::Quota => limit(used_bytes, quota_bytes, Numbers::bytes),
            Field::ObjUsed => used(used_objects, quota_objects, Numbers::count),
            Field::ObjQuota => limit(used_objects, quota_objects, Numbers::count),
        }));
    }
    table
}

/// As JSON.
pub fn json(rows: &[Space], by: By) -> Value {
    let row = |row: &Space| {
        let numbers = json!({
            "type": text(row.kind),
            "name": name(row),
            "used": row.used_bytes,
            "quota": row.quota_bytes,
            "objused": row.used_objects,
            "objquota": row.quota_objects,
        });
        (name(row), numbers)
    };
    let (command, root) = match by {
        By::User => ("zfs userspace", "users"),
        By::Group => ("zfs groupspace", "groups"),
        By::Project => ("zfs projectspace", "projects"),
    };
    document(command, root, rows.iter().map(row).collect::<Map<String, Value>>())
}

fn text(kind: Kind) -> &'static str {
    match kind {
        Kind::PosixGroup => "POSIX Group",
        Kind::PosixUser => "POSIX User",
        Kind::SmbGroup => "SMB Group",
        Kind::SmbUser => "SMB User",
        Kind::Project => "Project",
    }
}

fn name(row: &Space) -> String {
    match &row.owner {
        Owner::Id(number) => number.to_string(),
        Owner::Sid(sid) => sid.clone(),
    }
}

impl Field {
    /// All, by name.
    pub const ALL: [(&str, Field); 6] = [
        ("type", Field::Type),
        ("name", Field::Name),
        ("used", Field::Used),
        ("quota", Field::Quota),
        ("objused", Field::ObjUsed),
        ("objquota", Field::ObjQuota),
    ];

    fn column(self) -> (&'static str, Align) {
        match self {
            Field::Type => ("TYPE", Align::Left),
            Field::Name => ("NAME", Align::Left),
            Field::Used => ("USED", Align::Right),
            Field::Quota => ("QUOTA", Align::Right),
            Field::ObjUsed => ("OBJUSED", Align::Right),
            Field::ObjQuota => ("OBJQUOTA", Align::Right),
        }
    }

    /// Orders numbers by value; SIDs follow all numbers.
    fn order(self, a: &Space, b: &Space) -> Ordering {
        match self {
            Field::Type => a.kind.cmp(&b.kind),
            Field::Name => a.owner.cmp(&b.owner),
            Field::Used => a.used_bytes.cmp(&b.used_bytes),
            Field::Quota => a.quota_bytes.cmp(&b.quota_bytes),
            Field::ObjUsed => a.used_objects.cmp(&b.used_objects),
            Field::ObjQuota => a.quota_objects.cmp(&b.quota_objects),
        }
    }
}

fn compare(keys: &[(Field, bool)], a: &Space, b: &Space) -> Ordering {
    let last = [(Field::Type, false), (Field::Name, false)];
    let orders = keys.iter().chain(&last).map(|&(field, down)| {
        let order = field.order(a, b);
        if down { order.reverse() } else { order }
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

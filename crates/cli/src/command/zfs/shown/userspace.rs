//! `zfs userspace`, `groupspace`, `projectspace`: usage and quotas of owners in a file system or snapshot.
//!
//! Source: OpenZFS `zfs_main.c` (`print_us_node`), including the columns. Owners are shown by number: see
//! `owners`.

use std::cmp::Ordering;

use cenote_control::zfs::space::groupspace::Groupspace;
use cenote_control::zfs::space::owners::{Kind, Owner, Space};
use cenote_control::zfs::space::projectspace::Projectspace;
use cenote_control::zfs::space::userspace::Userspace;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::command::form::TableForm;
use crate::command::json::document;
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, nice_bytes, nice_number};
use crate::session::Session;

/// The columns, by the names that `-o`, `-s` and `-S` take.
const FIELDS: &str = "type,name,used,quota,objused,objquota";

/// Help of `zfs groupspace`, which shares the options of `zfs userspace`.
pub const GROUP_HELP: &str = "Owners are shown by number: only the pool's own machine knows their names.\n\n\
    Example: cenote zfs groupspace -o name,used -S used tank/home";

/// `zfs userspace`, `groupspace`
#[derive(Debug, Args)]
#[command(after_help = "Owners are shown by number: only the pool's own machine knows their names.\n\n\
    Example: cenote zfs userspace -o name,used -S used tank/home")]
pub struct OwnersSpace {
    /// Accepted for compatibility: owners are shown by number
    #[arg(short = 'n')]
    pub numeric: bool,
    /// Accepted for compatibility: SMB owners are shown by SID
    #[arg(short = 'i')]
    pub sid_to_posix: bool,
    /// Kinds of owners, comma-separated: posixuser, smbuser, posixgroup, smbgroup, all
    #[arg(
        short = 't',
        value_name = "TYPES",
        value_delimiter = ',',
        value_parser = ["posixuser", "smbuser", "posixgroup", "smbgroup", "all"]
    )]
    pub types: Vec<String>,
    /// Columns, order and numbers
    #[command(flatten)]
    pub shown: Shown,
}

/// `zfs projectspace`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs projectspace -S used tank/home")]
pub struct ProjectSpace {
    /// Columns, order and numbers
    #[command(flatten)]
    pub shown: Shown,
}

/// Output options.
#[derive(Debug, Args)]
pub struct Shown {
    /// How to print it
    #[command(flatten)]
    pub form: TableForm,
    /// Columns, comma-separated
    #[arg(short = 'o', value_name = "COLUMNS", default_value = FIELDS, value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Sort by this column, ascending; repeatable
    #[arg(short = 's', value_name = "COLUMN")]
    pub sort: Vec<String>,
    /// Sort by this column, descending; repeatable
    #[arg(short = 'S', value_name = "COLUMN")]
    pub sort_descending: Vec<String>,
    /// File system or snapshot
    pub dataset: String,
}

/// A column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    ObjUsed,
    ObjQuota,
}

/// The kind of owner whose space is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    User,
    Group,
    Project,
}

impl OwnersSpace {
    /// Runs the command. Without -t it lists one kind of owner.
    pub async fn run(self, session: &Session, by: By) -> Result<Outcome, CliError> {
        let of = |names: &[&str]| self.types.iter().any(|kind| names.contains(&kind.as_str()));
        let is_shown = |kind: Kind| match kind {
            _ if self.types.is_empty() => true,
            Kind::PosixGroup => of(&["posixgroup", "all"]),
            Kind::PosixUser => of(&["posixuser", "all"]),
            Kind::SmbGroup => of(&["smbgroup", "all"]),
            Kind::SmbUser => of(&["smbuser", "all"]),
            Kind::Project => false,
        };
        let (dataset, all) = (self.shown.dataset.clone(), !self.types.is_empty());
        let answered = match by {
            By::Group => session.control().run(Groupspace { dataset, all }).await?,
            _ => session.control().run(Userspace { dataset, all }).await?,
        };
        let mut rows = answered.answer;
        rows.retain(|row| is_shown(row.kind));
        self.shown.print(session, rows, by)
    }
}

impl ProjectSpace {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Projectspace { dataset: self.shown.dataset.clone() };
        let rows = session.control().run(request).await?.answer;
        self.shown.print(session, rows, By::Project)
    }
}

impl Shown {
    fn print(&self, session: &Session, mut rows: Vec<Space>, by: By) -> Result<Outcome, CliError> {
        let columns = self.columns.iter().map(|name| Field::parse("-o", name));
        let columns: Vec<Field> = columns.collect::<Result<_, _>>()?;
        let ascending = self.sort.iter().map(|name| Ok((Field::parse("-s", name)?, false)));
        let descending = self.sort_descending.iter().map(|name| Ok((Field::parse("-S", name)?, true)));
        let keys: Vec<(Field, bool)> = ascending.chain(descending).collect::<Result<_, CliError>>()?;
        rows.sort_by(|a, b| compare(&keys, a, b));
        let table = || self.table(&rows, &columns, by == By::Project);
        self.form.print(session, table, || json_of(&rows, by))?;
        Ok(Outcome::Done)
    }

    /// Projects have only one type, so their table has no type column.
    fn table(&self, rows: &[Space], columns: &[Field], of_projects: bool) -> Table {
        let columns: Vec<Field> =
            columns.iter().copied().filter(|field| !of_projects || *field != Field::Type).collect();
        let exact = self.form.values.exact();
        let number =
            |number: u64, nice: fn(u64) -> String| if exact { number.to_string() } else { nice(number) };
        // Usage and quota of zero mean that nothing is recorded.
        let used = |used: u64, quota: u64, nice| match (used, quota) {
            (0, 0) => "-".into(),
            _ => number(used, nice),
        };
        let limit = |used: u64, quota: u64, nice| match (used, quota) {
            (0, 0) => "-".into(),
            (_, 0) if !exact => "none".into(),
            _ => number(quota, nice),
        };
        let mut table = Table::new(columns.iter().map(|field| field.column()));
        for row in rows {
            let &Space { used_bytes, quota_bytes, used_objects, quota_objects, .. } = row;
            table.row(columns.iter().map(|field| match field {
                Field::Type => text(row.kind).to_owned(),
                Field::Name => name(row),
                Field::Used => used(used_bytes, quota_bytes, nice_bytes),
                Field::Quota => limit(used_bytes, quota_bytes, nice_bytes),
                Field::ObjUsed => used(used_objects, quota_objects, nice_number),
                Field::ObjQuota => limit(used_objects, quota_objects, nice_number),
            }));
        }
        table
    }
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
    fn parse(option: &str, name: &str) -> Result<Field, CliError> {
        Ok(match name {
            "type" => Field::Type,
            "name" => Field::Name,
            "used" => Field::Used,
            "quota" => Field::Quota,
            "objused" => Field::ObjUsed,
            "objquota" => Field::ObjQuota,
            _ => return Err(CliError::Usage(format!("{option} {name}: use {FIELDS}"))),
        })
    }

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

/// Orders by the requested keys, then by type and name, as OpenZFS does.
fn compare(keys: &[(Field, bool)], a: &Space, b: &Space) -> Ordering {
    let last = [(Field::Type, false), (Field::Name, false)];
    let orders = keys.iter().chain(&last).map(|&(field, down)| {
        let order = field.order(a, b);
        if down { order.reverse() } else { order }
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

fn json_of(rows: &[Space], by: By) -> Value {
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

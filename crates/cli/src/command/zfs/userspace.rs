//! `zfs userspace`, `groupspace`, `projectspace`: usage and quotas of owners in a file system or snapshot.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_userspace`, `print_us_node`), including the columns. Owners are
//! shown by number: see `owner`.

use std::cmp::Ordering;

use cenote_format::znode::Fuid;
use cenote_fs::{Filesystem, OwnerSpace, SpaceBy};
use clap::Args;
use serde_json::{Map, Value, json};

use super::pool_of;
use crate::command::form::TableForm;
use crate::command::json::document;
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, nice_bytes, nice_number};
use crate::session::{Session, dataset};

/// The columns, by the names that `-o`, `-s` and `-S` take.
const FIELDS: &str = "type,name,used,quota,objused,objquota";

/// `zfs userspace`, `groupspace`
#[derive(Debug, Args)]
#[command(after_help = "Owners are shown by number: only the machine that the pool comes from knows their \
    names.\n\n\
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

/// The kind of an owner, in the order in which OpenZFS sorts them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    PosixGroup,
    PosixUser,
    SmbGroup,
    SmbUser,
    Project,
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

/// An owner with its usage and quotas.
struct Row {
    kind: Kind,
    /// Its SID or, without one, its number.
    name: Result<String, u64>,
    space: OwnerSpace,
}

impl OwnersSpace {
    /// The kinds of owners that are looked at.
    pub(super) fn kinds(&self, by: SpaceBy) -> Vec<SpaceBy> {
        if self.types.is_empty() { vec![by] } else { vec![SpaceBy::User, SpaceBy::Group] }
    }

    /// Runs the command. Without -t it lists one kind of owner.
    pub async fn run(self, session: &Session, by: SpaceBy) -> Result<Outcome, CliError> {
        let of = |names: &[&str]| self.types.iter().any(|kind| names.contains(&kind.as_str()));
        let is_shown = |kind: Kind| match kind {
            _ if self.types.is_empty() => true,
            Kind::PosixGroup => of(&["posixgroup", "all"]),
            Kind::PosixUser => of(&["posixuser", "all"]),
            Kind::SmbGroup => of(&["smbgroup", "all"]),
            Kind::SmbUser => of(&["smbuser", "all"]),
            Kind::Project => false,
        };
        let mut rows = self.shown.rows(session, &self.kinds(by)).await?;
        rows.retain(|row| is_shown(row.kind));
        self.shown.print(session, rows, by)
    }
}

impl ProjectSpace {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let rows = self.shown.rows(session, &[SpaceBy::Project]).await?;
        self.shown.print(session, rows, SpaceBy::Project)
    }
}

impl Shown {
    async fn rows(&self, session: &Session, all: &[SpaceBy]) -> Result<Vec<Row>, CliError> {
        let mos = session.open_pool(pool_of(&self.dataset)).await?;
        let found = dataset(&mos, &self.dataset).await?;
        let fs = Filesystem::open(found.objset().await?).await?;
        let domains = fs.fuid_table().await?;
        let mut rows = Vec::new();
        for &by in all {
            rows.extend(fs.owners(by).await?.into_iter().map(|(owner, space)| {
                let sid = domains.sid(Fuid(owner)).filter(|_| by != SpaceBy::Project && owner >> 32 != 0);
                let kind = match (by, &sid) {
                    (SpaceBy::User, None) => Kind::PosixUser,
                    (SpaceBy::User, Some(_)) => Kind::SmbUser,
                    (SpaceBy::Group, None) => Kind::PosixGroup,
                    (SpaceBy::Group, Some(_)) => Kind::SmbGroup,
                    (SpaceBy::Project, _) => Kind::Project,
                };
                Row { kind, name: sid.ok_or(owner), space }
            }));
        }
        Ok(rows)
    }

    fn print(&self, session: &Session, mut rows: Vec<Row>, by: SpaceBy) -> Result<Outcome, CliError> {
        let columns = self.columns.iter().map(|name| Field::parse("-o", name));
        let columns: Vec<Field> = columns.collect::<Result<_, _>>()?;
        let ascending = self.sort.iter().map(|name| Ok((Field::parse("-s", name)?, false)));
        let descending = self.sort_descending.iter().map(|name| Ok((Field::parse("-S", name)?, true)));
        let keys: Vec<(Field, bool)> = ascending.chain(descending).collect::<Result<_, CliError>>()?;
        rows.sort_by(|a, b| compare(&keys, a, b));
        let table = || self.table(&rows, &columns, by == SpaceBy::Project);
        self.form.print(session, table, || json_of(&rows, by))?;
        Ok(Outcome::Done)
    }

    /// Projects have only one type, so their table has no type column.
    fn table(&self, rows: &[Row], columns: &[Field], of_projects: bool) -> Table {
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
            let OwnerSpace { used_bytes, quota_bytes, used_objects, quota_objects } = row.space;
            table.row(columns.iter().map(|field| match field {
                Field::Type => row.kind.text().to_owned(),
                Field::Name => row.name(),
                Field::Used => used(used_bytes, quota_bytes, nice_bytes),
                Field::Quota => limit(used_bytes, quota_bytes, nice_bytes),
                Field::ObjUsed => used(used_objects, quota_objects, nice_number),
                Field::ObjQuota => limit(used_objects, quota_objects, nice_number),
            }));
        }
        table
    }
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Kind::PosixGroup => "POSIX Group",
            Kind::PosixUser => "POSIX User",
            Kind::SmbGroup => "SMB Group",
            Kind::SmbUser => "SMB User",
            Kind::Project => "Project",
        }
    }
}

impl Row {
    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|number| number.to_string())
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
    fn order(self, a: &Row, b: &Row) -> Ordering {
        match self {
            Field::Type => a.kind.cmp(&b.kind),
            Field::Name => match (&a.name, &b.name) {
                (Err(a), Err(b)) => a.cmp(b),
                (a, b) => a.is_ok().cmp(&b.is_ok()).then_with(|| a.cmp(b)),
            },
            Field::Used => a.space.used_bytes.cmp(&b.space.used_bytes),
            Field::Quota => a.space.quota_bytes.cmp(&b.space.quota_bytes),
            Field::ObjUsed => a.space.used_objects.cmp(&b.space.used_objects),
            Field::ObjQuota => a.space.quota_objects.cmp(&b.space.quota_objects),
        }
    }
}

/// Orders by the requested keys, then by type and name, as OpenZFS does.
fn compare(keys: &[(Field, bool)], a: &Row, b: &Row) -> Ordering {
    let last = [(Field::Type, false), (Field::Name, false)];
    let orders = keys.iter().chain(&last).map(|&(field, down)| {
        let order = field.order(a, b);
        if down { order.reverse() } else { order }
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

fn json_of(rows: &[Row], by: SpaceBy) -> Value {
    let row = |row: &Row| {
        let (name, space) = (row.name(), row.space);
        let numbers = json!({
            "type": row.kind.text(),
            "name": name,
            "used": space.used_bytes,
            "quota": space.quota_bytes,
            "objused": space.used_objects,
            "objquota": space.quota_objects,
        });
        (name, numbers)
    };
    let (command, root) = match by {
        SpaceBy::User => ("zfs userspace", "users"),
        SpaceBy::Group => ("zfs groupspace", "groups"),
        SpaceBy::Project => ("zfs projectspace", "projects"),
    };
    document(command, root, rows.iter().map(row).collect::<Map<String, Value>>())
}

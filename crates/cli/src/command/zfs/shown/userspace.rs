//! Command lines of `zfs userspace`, `groupspace`, `projectspace`.

use cenote_control::zfs::space::groupspace::Groupspace;
use cenote_control::zfs::space::owners::{Kind, Space};
use cenote_control::zfs::space::projectspace::Projectspace;
use cenote_control::zfs::space::userspace::Userspace;
use cenote_shown::zfs::userspace::{self, Field};
use clap::Args;

pub use cenote_shown::zfs::userspace::By;

use crate::command::form::TableForm;
use crate::outcome::{CliError, Outcome};
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
        let columns = self.columns.iter().map(|name| field("-o", name));
        let columns: Vec<Field> = columns.collect::<Result<_, _>>()?;
        let ascending = self.sort.iter().map(|name| Ok((field("-s", name)?, false)));
        let descending = self.sort_descending.iter().map(|name| Ok((field("-S", name)?, true)));
        let keys: Vec<(Field, bool)> = ascending.chain(descending).collect::<Result<_, CliError>>()?;
        userspace::sort(&mut rows, &keys);
        let numbers = self.form.values.numbers();
        let table = || userspace::table(&rows, &columns, by, numbers).text(self.form.script);
        session.show(table, || userspace::json(&rows, by))?;
        Ok(Outcome::Done)
    }
}

fn field(option: &str, name: &str) -> Result<Field, CliError> {
    let found = Field::ALL.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, field)| field).ok_or_else(|| CliError::Usage(format!("{option} {name}: use {FIELDS}")))
}

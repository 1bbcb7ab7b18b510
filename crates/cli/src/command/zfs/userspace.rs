//! `zfs userspace`, `groupspace`, `projectspace`: what owners have and may have in a file system or snapshot.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_userspace`, `print_us_node`), whose columns these are. Owners go by number: see `owner`.

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

/// `zfs userspace`, `groupspace`, `projectspace`
#[derive(Debug, Args)]
#[command(
    after_help = "Owners go by number: which names they have, only the machine knows that the pool comes from.\n\n\
    Example: cenote zfs userspace tank/home"
)]
pub struct OwnersSpace {
    /// How to print it
    #[command(flatten)]
    pub form: TableForm,
    /// Accepted for habit: owners go by number
    #[arg(short = 'n')]
    pub numeric: bool,
    /// File system or snapshot
    pub dataset: String,
}

/// An owner, and what it has.
struct Row {
    kind: &'static str,
    name: String,
    space: OwnerSpace,
}

impl OwnersSpace {
    /// Runs the command.
    pub async fn run(self, session: &Session, by: SpaceBy) -> Result<Outcome, CliError> {
        let mos = session.open_pool(pool_of(&self.dataset)).await?;
        let found = dataset(&mos, &self.dataset).await?;
        let fs = Filesystem::open(found.objset().await?).await?;
        let domains = fs.fuid_table().await?;
        let row = |(owner, space): (u64, OwnerSpace)| {
            let foreign = domains.sid(Fuid(owner)).filter(|_| by != SpaceBy::Project && owner >> 32 != 0);
            let kind = match (by, &foreign) {
                (SpaceBy::User, None) => "POSIX User",
                (SpaceBy::User, Some(_)) => "SMB User",
                (SpaceBy::Group, None) => "POSIX Group",
                (SpaceBy::Group, Some(_)) => "SMB Group",
                (SpaceBy::Project, _) => "Project",
            };
            Row { kind, name: foreign.unwrap_or_else(|| owner.to_string()), space }
        };
        let rows: Vec<Row> = fs.owners(by).await?.into_iter().map(row).collect();
        self.form.print(session, &self.table(&rows, by), &json_of(&rows, by))?;
        Ok(Outcome::Done)
    }

    fn table(&self, rows: &[Row], by: SpaceBy) -> Table {
        let exact = self.form.values.exact();
        let used =
            |number: u64, nice: fn(u64) -> String| if exact { number.to_string() } else { nice(number) };
        let limit =
            |number: u64, nice| if number == 0 && !exact { "none".into() } else { used(number, nice) };
        let kind = (by != SpaceBy::Project).then_some(("TYPE", Align::Left));
        let numbers = ["USED", "QUOTA", "OBJUSED", "OBJQUOTA"].map(|name| (name, Align::Right));
        let mut table = Table::new(kind.into_iter().chain([("NAME", Align::Left)]).chain(numbers));
        for Row { kind: what, name, space } in rows {
            let numbers = [
                used(space.used_bytes, nice_bytes),
                limit(space.quota_bytes, nice_bytes),
                used(space.used_objects, nice_number),
                limit(space.quota_objects, nice_number),
            ];
            table.row(kind.map(|_| (*what).to_owned()).into_iter().chain([name.clone()]).chain(numbers));
        }
        table
    }
}

fn json_of(rows: &[Row], by: SpaceBy) -> Value {
    let row = |Row { kind, name, space }: &Row| {
        let numbers = json!({
            "type": kind,
            "name": name,
            "used": space.used_bytes,
            "quota": space.quota_bytes,
            "objused": space.used_objects,
            "objquota": space.quota_objects,
        });
        (name.clone(), numbers)
    };
    let (command, root) = match by {
        SpaceBy::User => ("zfs userspace", "users"),
        SpaceBy::Group => ("zfs groupspace", "groups"),
        SpaceBy::Project => ("zfs projectspace", "projects"),
    };
    document(command, root, rows.iter().map(row).collect::<Map<String, Value>>())
}

//! `zfs holds`: the holds that keep snapshots from being destroyed.

use cenote_control::zfs::points::holds::{Held, Holds as Request};
use serde_json::{Map, Value, json};

use crate::command::json::document;
use crate::command::zfs::Holds;
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, escape_terminal, short_time};
use crate::session::{Session, print, print_json};

impl Holds {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Request { snapshots: self.snapshots.clone(), recursive: self.recursive };
        let answered = session.control().run(request).await?;
        match session.json() {
            true => print_json(&as_json(&answered.answer))?,
            false => print(self.table(&answered.answer).text(self.script))?,
        }
        Ok(answered.outcome)
    }

    fn table(&self, all: &[Held]) -> Table {
        let header = [("NAME", Align::Left), ("TAG", Align::Left), ("TIMESTAMP", Align::Left)];
        let mut table = Table::new(header);
        for Held { snapshot, holds } in all {
            for hold in holds {
                let time = match self.parsable {
                    true => hold.since_seconds.to_string(),
                    false => short_time(hold.since_seconds.cast_signed()),
                };
                table.row([snapshot.clone(), escape_terminal(hold.tag.as_bytes()), time]);
            }
        }
        table
    }
}

fn as_json(all: &[Held]) -> Value {
    let entry = |Held { snapshot, holds }: &Held| {
        let holds: Map<String, Value> =
            holds.iter().map(|hold| (hold.tag.clone(), json!(hold.since_seconds))).collect();
        (snapshot.clone(), json!({"name": snapshot, "holds": holds}))
    };
    document("zfs holds", "datasets", all.iter().map(entry).collect())
}

//! Command line and output of `cenote du`.

use std::sync::Arc;

use cenote_control::files::du::{Du as Request, Total};
use parking_lot::Mutex;
use serde::Serialize;

use super::Du;
use crate::outcome::{CliError, Outcome};
use crate::render::{json_name, nice_bytes, quoted};
use crate::session::{Session, print, print_json};

/// A total for JSON.
#[derive(Serialize)]
struct TotalJson {
    path: String,
    bytes: u64,
}

impl Du {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let depth = if self.summarize { Some(0) } else { self.depth };
        let request = Request { targets: self.targets, depth, apparent: self.apparent };
        let take = |all: &mut Vec<Total>, totals| {
            all.extend(totals);
            Ok(())
        };
        let totals = Arc::new(Mutex::new(Vec::new()));
        let answered = session.control().run_in_parts(request, &totals, take).await?;
        let totals = totals.lock();
        if session.json() {
            let json = |total: &Total| TotalJson { path: json_name(&total.path), bytes: total.bytes };
            print_json(&totals.iter().map(json).collect::<Vec<_>>())?;
            return Ok(answered.outcome);
        }
        let size = |bytes: u64| if self.bytes { bytes.to_string() } else { nice_bytes(bytes) };
        let lines = totals.iter().map(|total| format!("{}\t{}\n", size(total.bytes), quoted(&total.path)));
        print(lines.collect::<String>())?;
        Ok(answered.outcome)
    }
}

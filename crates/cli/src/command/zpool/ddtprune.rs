//! Command line of `zpool ddtprune`.

use cenote_control::zpool::activity::ddtprune::{Amount, Ddtprune as Request};
use cenote_shown::json::version;
use clap::Args;
use serde_json::json;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, print_json};

/// `zpool ddtprune`
#[derive(Debug, Args)]
#[command(after_help = "Blocks with one reference are unlikely to be found again, but take room in the \
        deduplication tables. A block that is taken out stays as it is; a later equal block is stored \
        anew. Only tables of the feature fast_dedup know the age of their entries.\n\n\
        Example: cenote zpool ddtprune -d 90 tank")]
pub struct Ddtprune {
    /// Take out blocks with one reference since this number of days
    #[arg(short = 'd', value_name = "DAYS", conflicts_with = "percentage")]
    pub days: Option<String>,
    /// Take out about this percentage of blocks with one reference, the oldest first
    #[arg(short = 'p', value_name = "PERCENTAGE")]
    pub percentage: Option<String>,
    /// The pool
    pub pool: String,
}

impl Ddtprune {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let number = |typed: &str, most: u64, what: &str| {
            let number = typed.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| CliError::Usage(format!("invalid {what} value")))
        };
        let amount = match (&self.days, &self.percentage) {
            (Some(days), _) => Amount::Days(number(days, u64::MAX, "days")?),
            (None, Some(percentage)) => Amount::Percent(number(percentage, 100, "percentage")?),
            (None, None) => return Err(CliError::Usage("missing amount option (-d|-p <value>)".into())),
        };
        let answered = session.control().run(Request { pool: self.pool, amount }).await?;
        let shown = || match session.json() {
            true => print_json(&json!({
                "output_version": version("zpool ddtprune"),
                "entries": answered.answer.entries,
            })),
            false => Ok(()),
        };
        Ok(answered.outcome.printed(shown()))
    }
}

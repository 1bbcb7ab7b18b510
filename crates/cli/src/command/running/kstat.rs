//! `cenote kstat`: the daemon's counters, by OpenZFS's names.

use cenote_control::running::kstat::Kstat as Request;
use cenote_shown::running::kstat;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote kstat`
#[derive(Debug, Args)]
#[command(
    after_help = "Needs a daemon (`cenote serve`). The text is that of /proc/spl/kstat/zfs of the kernel \
        module; counters that Cenote lacks are 0.\n\n\
        Example: cenote kstat tank/txgs"
)]
pub struct Kstat {
    /// Name: arcstats, zfetchstats, dmu_tx, zil, POOL/txgs, POOL/objset-0xID [default: list all names]
    pub name: Option<String>,
}

impl Kstat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let asked = self.name.clone().unwrap_or_default();
        let request = Request { name: self.name, all: false };
        let counted = session.control().run(request).await?.answer;
        session.show(|| kstat::text(&counted), || kstat::json(&counted, &asked))?;
        Ok(Outcome::Done)
    }
}

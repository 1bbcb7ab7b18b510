//! Command line of `zpool upgrade`.

use cenote_control::zpool::properties::upgrade::{Features, Upgrade as Request};
use cenote_shown::zpool::upgrade;
use clap::Args;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, print};

/// `zpool upgrade`
#[derive(Debug, Args)]
#[command(
    after_help = "Without pools, lists the features that each pool lacks. The property `compatibility` \
        limits the features of a pool.\n\n\
        Example: cenote zpool upgrade tank"
)]
pub struct Upgrade {
    /// All pools
    #[arg(short = 'a', conflicts_with_all = ["pools", "features"])]
    pub all: bool,
    /// List the supported features
    #[arg(short = 'v', conflicts_with = "pools")]
    pub features: bool,
    /// Accepted for compatibility: version 5000, which means feature flags
    #[arg(short = 'V', value_name = "VERSION", value_parser = ["5000"])]
    pub version: Option<String>,
    /// Pools in which to enable all features
    pub pools: Vec<String>,
}

impl Upgrade {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if !session.json() {
            print("This system supports ZFS pool feature flags.\n\n")?;
        }
        if self.features {
            return session.show(upgrade::known, upgrade::known_json).map(|()| Outcome::Done);
        }
        let pools = (self.all || !self.pools.is_empty()).then(|| self.pools.clone());
        let answered = session.control().run(Request { pools }).await?;
        let features = &answered.answer;
        let shown = session.show(|| upgrade::text(features, self.all), || upgrade::json(features));
        match features {
            Features::Lacking(_) => shown.map(|()| answered.outcome),
            // They are enabled even if that can't be printed.
            Features::Enabled { .. } => Ok(answered.outcome.printed(shown)),
        }
    }
}

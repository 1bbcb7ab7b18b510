//! Command line of `zpool status`.

use cenote_control::zpool::shown::status::Status as Request;
use cenote_shown::zpool::scripts::{self, Chosen};
use cenote_shown::zpool::status::Layout;

use super::repeat::Round;
use crate::command::zpool::Status;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

impl Status {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let chosen = match &self.script {
            Some(None) => return print(scripts::list("status")).map(|()| Outcome::Done),
            Some(Some(names)) => Some(Chosen::of(names).map_err(CliError::Refused)?),
            None => None,
        };
        if self.json_flat_vdevs && !session.json() {
            return Err(CliError::Usage("'--json-flat-vdevs' only works with '-j' option".into()));
        }
        let layout = Layout {
            unhealthy_pools: self.unhealthy_pools,
            unhealthy_devices: self.unhealthy_devices,
            verbose: self.verbose,
            initialized: self.initialized,
            trimmed: self.trimmed,
            slow: self.slow,
            direct: self.direct,
            names: self.names.into(),
            numbers: self.form.numbers(),
            keys: self.keys.into(),
            flat: self.json_flat_vdevs,
            scripts: None,
        };
        let show = async |names: &[String], round: Round| {
            let request = Request { pools: names.to_vec(), damaged: self.verbose, dedup: self.dedup };
            let answered = session.control().run(request).await?;
            let statuses = &answered.answer;
            let pools = statuses.pools.iter().map(|pool| (pool.name.as_str(), &pool.health));
            let scripts = match &chosen {
                Some(chosen) => Some(session.runtime().blocking(chosen.runs(pools)).await),
                None => None,
            };
            let layout = Layout { scripts: scripts.as_ref(), ..layout };
            session.show(
                || layout.text(statuses, !names.is_empty(), round.is_first),
                || round.stamp(layout.json(statuses)),
            )?;
            Ok(answered.outcome)
        };
        self.repeat.run(session, &self.pools, show).await
    }
}

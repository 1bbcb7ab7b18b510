//! Command line of `zpool status`.

use cenote_control::zpool::shown::status::Status as Request;
use cenote_shown::zpool::status::Layout;

use super::repeat::Round;
use crate::command::not_yet;
use crate::command::zpool::Status;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

impl Status {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.script.is_some() {
            let instead = "A script would run per device of a system that imported the pool, but here a \
                device may be an image. `zpool status -P -j` prints each path; run the script on those";
            return Err(not_yet::option("zpool status -c", instead));
        }
        if self.json_flat_vdevs {
            let instead = "Omit it: vdevs are nested in the member `vdevs` of their parents";
            return Err(not_yet::option("zpool status --json-flat-vdevs", instead));
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
        };
        let show = async |names: &[String], round: Round| {
            let request = Request { pools: names.to_vec(), damaged: self.verbose, dedup: self.dedup };
            let answered = session.control().run(request).await?;
            let statuses = &answered.answer;
            session.show(
                || layout.text(statuses, !names.is_empty(), round.is_first),
                || round.stamp(layout.json(statuses)),
            )?;
            Ok(answered.outcome)
        };
        self.repeat.run(session, &self.pools, show).await
    }
}

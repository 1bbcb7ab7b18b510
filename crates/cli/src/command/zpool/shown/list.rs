//! Command line of `zpool list`.

use cenote_control::zpool::shown::list::List as Request;
use cenote_control::zpool::shown::properties::wanted;
use cenote_format::props::ZPOOL_PROPS;
use cenote_shown::zpool::list::Layout;

use super::repeat::Round;
use crate::command::zpool::List;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

impl List {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let layout = Layout {
            columns: self.wanted_columns()?,
            verbose: self.verbose,
            script: self.form.script,
            names: self.names.into(),
            numbers: self.form.values.numbers(),
            keys: self.keys.into(),
        };
        let show = async |names: &[String], round: Round| {
            let request = Request { pools: names.to_vec(), vdevs: self.verbose };
            let answered = session.control().run(request).await?;
            let pools = &answered.answer;
            session.show(|| layout.text(pools, round.is_first), || round.stamp(layout.json(pools)))?;
            Ok(answered.outcome)
        };
        self.repeat.run(session, &self.pools, show).await
    }

    /// `all` is the properties of pools, without features.
    fn wanted_columns(&self) -> Result<Vec<String>, CliError> {
        let name = ["name".to_owned()];
        match self.columns.as_str() {
            "all" => {
                let all = ZPOOL_PROPS.iter().filter(|prop| prop.visible && prop.name != "name");
                Ok(name.into_iter().chain(all.map(|prop| prop.name.into())).collect())
            }
            columns => columns.split(',').map(wanted).collect(),
        }
    }
}

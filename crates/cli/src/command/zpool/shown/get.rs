//! Command line of `zpool get`.

use cenote_control::zpool::shown::get::Get as Request;
use cenote_shown::zpool::get::Layout;

use crate::command::form;
use crate::command::zpool::Get;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

const COLUMNS: &str = "name,property,value,source";

impl Get {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = form::columns(&self.columns, COLUMNS)?;
        let properties = match self.properties.as_str() {
            "all" => None,
            names => Some(names.split(',').map(str::to_owned).collect()),
        };
        let answered = session.control().run(Request { names: self.pools, properties }).await?;
        let layout = Layout { numbers: self.form.values.numbers(), keys: self.keys.into() };
        let found = &answered.answer;
        session.show(|| layout.table(found, &columns).text(self.form.script), || layout.json(found))?;
        Ok(answered.outcome)
    }
}

//! Command line of `zfs get`.

use cenote_control::zfs::get::{Get as Request, SourceKind};
use cenote_control::zfs::select::Types;
use cenote_control::zfs::wanted::Wanted;
use cenote_shown::zfs::get;

use crate::command::form;
use crate::command::zfs::Get;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// The columns of `-o all`.
const ALL_COLUMNS: &str = "name,property,value,received,source";

impl Get {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = form::columns(&self.columns, ALL_COLUMNS)?;
        let sources = self.sources()?;
        let wanted = match self.properties.as_str() {
            "all" => None,
            names => Some(Wanted::parse_list(names)?),
        };
        let properties = wanted.as_ref().map(|wanted| wanted.iter().map(Wanted::name).collect());
        let scope = self.selection.scope(Types::ALL, &self.names)?;
        let request = Request { names: self.names, scope, properties, sources };
        let answered = session.control().run(request).await?;
        let (found, outcome) = (answered.answer.datasets, answered.outcome);
        if !session.json() && found.iter().all(|shown| shown.properties.is_empty()) {
            // Like zfs: the header comes with the first line.
            return Ok(outcome);
        }
        let (script, numbers) = (self.selection.form.script, self.selection.form.values.numbers());
        let table = || get::table(&found, &columns, wanted.as_deref(), numbers).text(script);
        session.show(table, || get::json(&found, numbers))?;
        Ok(outcome)
    }

    fn sources(&self) -> Result<Option<Vec<SourceKind>>, CliError> {
        let known = || SourceKind::ALL.map(|(word, _)| word).join(", ");
        let parse = |typed: &str| {
            let found = SourceKind::ALL.into_iter().find(|(word, _)| *word == typed);
            found.map(|(_, kind)| kind).ok_or_else(|| CliError::Usage(format!("-s {typed}: use {}", known())))
        };
        self.sources.as_deref().map(|sources| sources.split(',').map(parse).collect()).transpose()
    }
}

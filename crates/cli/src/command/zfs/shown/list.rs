//! Command line of `zfs list`.

use cenote_control::zfs::Datasets;
use cenote_control::zfs::list::List as Request;
use cenote_control::zfs::select::{Scope, Types};
use cenote_control::zfs::wanted::Wanted;
use cenote_format::props::ZFS_PROPS;
use cenote_shown::zfs::list;

use crate::command::zfs::{List, Selection};
use crate::message::say_bare;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

impl List {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = columns(&self.columns)?;
        let sort = self.sort_keys()?;
        let all = columns.iter().chain(sort.iter().map(|(key, _)| key));
        let request = Request {
            names: self.names.clone(),
            // Every named dataset is listed, even a snapshot.
            scope: self.selection.scope(Types::HEADS, &self.names)?,
            properties: all.map(Wanted::name).collect(),
        };
        let answered = session.control().run(request).await?;
        let (Datasets { mut datasets, is_without_pools }, outcome) = (answered.answer, answered.outcome);
        if datasets.is_empty() && is_without_pools {
            say_bare("no datasets available");
            return Ok(outcome);
        }
        let (script, numbers) = (self.selection.form.script, self.selection.form.values.numbers());
        if datasets.is_empty() && !script && !session.json() {
            if outcome == Outcome::Done {
                say_bare("no datasets available");
            }
            return Ok(outcome);
        }
        list::sort(&mut datasets, &sort);
        let table = || list::table(&datasets, &columns, numbers).text(script);
        session.show(table, || list::json(&datasets, &columns, numbers))?;
        Ok(outcome)
    }

    /// Sort keys. Clap loses the order between `-s` and `-S`, so ascending keys come first.
    fn sort_keys(&self) -> Result<Vec<(Wanted, bool)>, CliError> {
        let ascending = self.sort.iter().map(|name| (name, false));
        let descending = self.sort_descending.iter().map(|name| (name, true));
        ascending.chain(descending).map(|(name, down)| Ok((Wanted::parse(name)?, down))).collect()
    }
}

impl Selection {
    /// Which types, by default `usual`, and how far to descend: all levels with `-r` or if nothing is named;
    /// one level if only snapshots or bookmarks are meant, those of the named datasets.
    pub(super) fn scope(&self, usual: Types, names: &[String]) -> Result<Scope, CliError> {
        let types = self.types.as_deref().map_or(Ok(usual), Types::parse)?;
        let depth = match self.depth {
            Some(depth) => Some(depth),
            None if self.recursive || names.is_empty() => None,
            None => Some(u32::from(self.types.is_some() && types.only_attached())),
        };
        Ok(Scope { types, depth, only_types: self.types.is_some() })
    }
}

fn columns(text: &str) -> Result<Vec<Wanted>, CliError> {
    match text {
        "all" => {
            let all = ZFS_PROPS.iter().filter(|prop| prop.visible && prop.name != "name");
            Ok([Wanted::parse("name")?].into_iter().chain(all.map(Wanted::Native)).collect())
        }
        names => Wanted::parse_list(names),
    }
}

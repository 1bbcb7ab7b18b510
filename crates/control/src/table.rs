//! The table of all verbs: the rights that each needs, where it runs, and whether it only reads.
//!
//! Idea: these facts are stated in one place, and every entry point asks it: the command line (does a daemon
//! run it?), the socket (is this caller allowed?), HTTP (is it offered, and by GET?). A verb without a row
//! runs here, for its own user, and is not offered elsewhere. A value verb carries its row in its
//! declaration; given the name and the JSON request, it can be run here. The other verbs are still command
//! lines (`cenote_serve::socket`).

mod verbs;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};

pub use verbs::VERBS;

/// A verb, without its types.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// As typed.
    pub name: &'static str,
    /// Rights it needs.
    pub needs: Needs,
    /// Whether it only reads.
    pub looks: Looks,
    /// Where it runs.
    pub runs: Runs,
    /// See [`Verb::SEES_ALL`].
    pub sees_all: bool,
    /// Still a command line, read by a daemon.
    pub is_line: bool,
    run: Option<Run>,
}

type Run = for<'a> fn(&'a Session, &'a [u8]) -> LocalBoxFuture<'a, Result<Json, ControlError>>;

/// An answer as JSON, and the verb's outcome.
pub type Json = (Vec<u8>, Outcome);

/// The row of a verb.
pub fn row(name: &str) -> Option<&'static Row> {
    VERBS.binary_search_by(|row| row.name.cmp(name)).ok().map(|at| &VERBS[at])
}

impl Row {
    /// The row of a verb that is still a command line.
    const fn line(name: &'static str, needs: Needs, looks: Looks, runs: Runs) -> Row {
        Row { name, needs, looks, runs, sees_all: false, is_line: true, run: None }
    }

    /// The row of a command that calls other verbs, in its caller's program.
    const fn asking(name: &'static str, needs: Needs, looks: Looks, runs: Runs) -> Row {
        Row { is_line: false, ..Row::line(name, needs, looks, runs) }
    }

    const fn of<V: Verb>() -> Row {
        Row {
            name: V::NAME,
            needs: V::NEEDS,
            looks: V::LOOKS,
            runs: V::RUNS,
            sees_all: V::SEES_ALL,
            is_line: false,
            run: Some(run::<V>),
        }
    }

    /// The rights it needs, given whether this request only reads.
    pub fn needs_if(&self, only_looks: bool) -> Needs {
        match self.looks {
            Looks::Sometimes(to_look) if only_looks => to_look,
            _ => self.needs,
        }
    }

    /// Runs its request for the session's caller.
    ///
    /// # Errors
    /// A command line verb; an invalid request; errors of [`Session::run`].
    pub async fn run(&self, session: &Session, request: &[u8]) -> Result<Json, ControlError> {
        let no_value = || ControlError::Usage(format!("{}: this verb takes no request", self.name));
        self.run.ok_or_else(no_value)?(session, request).await
    }
}

fn run<'a, V: Verb>(
    session: &'a Session,
    request: &'a [u8],
) -> LocalBoxFuture<'a, Result<Json, ControlError>> {
    async move {
        let wrong = |error: serde_json::Error| {
            ControlError::Usage(format!("{}: this is not its request: {error}", V::NAME))
        };
        let request: V = serde_json::from_slice(request).map_err(wrong)?;
        let Answered { answer, outcome } = session.run(request).await?;
        Ok((serde_json::to_vec(&answer).map_err(wrong)?, outcome))
    }
    .boxed_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_found_by_name() {
        assert!(VERBS.is_sorted_by(|a, b| a.name < b.name));
        assert!(row("zfs wait").is_some_and(|row| !row.is_line && row.needs == Needs::Nothing));
        assert!(row("zfs explode").is_none());
    }

    #[test]
    fn a_verb_that_shows_content_or_changes_anything_is_not_for_everybody() {
        for row in VERBS.iter().filter(|row| row.needs == Needs::Nothing) {
            assert_eq!(row.looks, Looks::Always, "{}", row.name);
        }
        let destroy = row("zpool destroy").map(|row| row.needs_if(true));
        assert_eq!(destroy, Some(Needs::All), "that its words look harmless changes nothing");
    }
}

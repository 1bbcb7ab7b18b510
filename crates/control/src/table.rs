//! The table of all verbs: who may run each, where it runs, whether it only looks.
//!
//! Idea: this is the one place that says so. Every door asks it: the command line (does a daemon run it?),
//! the socket (may they?), HTTP (is it offered, and by GET?). A verb without a row runs here, for its own
//! user, and at no door. A verb that is a value brings its row along in its declaration; whoever has its
//! name and its request as JSON runs it here. The others are command lines as yet
//! (`cenote_serve::socket`).

mod verbs;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};

pub use verbs::VERBS;

/// A verb, whatever its types.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// As it is typed.
    pub name: &'static str,
    /// Who may run it.
    pub needs: Needs,
    /// Whether it changes anything.
    pub looks: Looks,
    /// Where.
    pub runs: Runs,
    /// As of [`Verb::SEES_ALL`].
    pub sees_all: bool,
    /// Whether it is a command line as yet, which a daemon reads.
    pub is_line: bool,
    run: Option<Run>,
}

type Run = for<'a> fn(&'a Session, &'a [u8]) -> LocalBoxFuture<'a, Result<Json, ControlError>>;

/// An answer as JSON, and how the verb ended.
pub type Json = (Vec<u8>, Outcome);

/// The row of a verb.
pub fn row(name: &str) -> Option<&'static Row> {
    VERBS.binary_search_by(|row| row.name.cmp(name)).ok().map(|at| &VERBS[at])
}

impl Row {
    /// That of a verb that is a command line as yet.
    const fn line(name: &'static str, needs: Needs, looks: Looks, runs: Runs) -> Row {
        Row { name, needs, looks, runs, sees_all: false, is_line: true, run: None }
    }

    /// That of a command that asks other verbs, in its caller's program.
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

    /// What it needs if it looks only, as its words say, or not.
    pub fn needs_if(&self, only_looks: bool) -> Needs {
        match self.looks {
            Looks::Sometimes(to_look) if only_looks => to_look,
            _ => self.needs,
        }
    }

    /// Runs its request for the session's caller.
    ///
    /// # Errors
    /// It is no value; the request is none of this verb; those of [`Session::run`].
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

//! A verb: its request, its answer, the right that it needs.
//!
//! Idea: a request is a value with all that was asked for, and whoever has one runs it through
//! [`Session::run`], which is where rights are looked at. So no door can forget to.

use crate::error::ControlError;
use crate::session::Session;

/// Who may run a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Everybody: it shows what everybody may know, or waits for it.
    Nothing,
    /// Root and the daemon's user.
    All,
}

/// A request, and how it is carried out.
pub trait Verb: Sized {
    /// As it is typed: `zfs wait`.
    const NAME: &'static str;
    /// Who may run it.
    const NEEDS: Needs;
    /// What comes of it.
    type Answer;

    /// Carries it out. Dropped before its end, it leaves no half.
    ///
    /// # Errors
    /// As the verb says.
    fn carry_out(self, session: &Session) -> impl Future<Output = Result<Self::Answer, ControlError>>;
}

impl Session {
    /// Runs a verb for the caller.
    ///
    /// # Errors
    /// They may not; it was interrupted; those of the verb.
    pub async fn run<V: Verb>(&self, request: V) -> Result<V::Answer, ControlError> {
        if V::NEEDS == Needs::All && !self.caller().may_do_all() {
            return Err(ControlError::Refused(format!("cannot {}: permission denied", V::NAME)));
        }
        self.caller().until_cancelled(request.carry_out(self)).await
    }
}

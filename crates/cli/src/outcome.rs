//! Outcomes of commands, and their messages on standard error.

pub use cenote_control::{ControlError as CliError, Outcome};

use crate::message::say_error;

/// Errors that print themselves.
pub trait Say {
    /// Prints it on standard error.
    fn say(&self) -> Outcome;

    /// Prints it after the name of the object it concerns, unless the text contains that name already.
    fn tell(&self, name: &str) -> Outcome;
}

impl Say for CliError {
    fn say(&self) -> Outcome {
        self.tell("")
    }

    fn tell(&self, name: &str) -> Outcome {
        say_error(self.text_about(name), self.outcome().status());
        self.outcome()
    }
}

/// Output printed when work has finished.
pub trait Printed {
    /// The outcome after printing the work's result. A reader that went away does not turn success into
    /// failure.
    fn printed(self, printed: Result<(), CliError>) -> Self;
}

impl Printed for Outcome {
    fn printed(self, printed: Result<(), CliError>) -> Outcome {
        match printed {
            Err(error) if !error.is_broken_pipe() => self.and(error.say()),
            _ => self,
        }
    }
}

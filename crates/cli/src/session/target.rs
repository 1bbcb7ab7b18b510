//! Targets as they are typed, byte for byte.

use std::ffi::OsStr;

use cenote_control::files::Target;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;

/// Parses targets on the command line.
#[derive(Debug, Clone)]
pub struct TargetParser;

impl TypedValueParser for TargetParser {
    type Value = Target;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        typed: &OsStr,
    ) -> Result<Target, clap::Error> {
        let wrong = |why| clap::Error::raw(ErrorKind::ValueValidation, format!("{why}\n")).with_cmd(command);
        Target::parse(typed).map_err(wrong)
    }
}

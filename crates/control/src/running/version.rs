//! `zpool version` and `zfs version`: the version of the program that holds the pools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show the version of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfZpool {}

/// Show the version of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfZfs {}

/// A version of Cenote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// Such as `0.1.0`.
    pub cenote: String,
}

fn version() -> Answered<Version> {
    Version { cenote: env!("CARGO_PKG_VERSION").to_owned() }.into()
}

impl Verb for OfZpool {
    const NAME: &'static str = "zpool version";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Version;

    async fn carry_out(self, _session: &Session) -> Result<Answered<Version>, ControlError> {
        Ok(version())
    }
}

impl Verb for OfZfs {
    const NAME: &'static str = "zfs version";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Version;

    async fn carry_out(self, _session: &Session) -> Result<Answered<Version>, ControlError> {
        Ok(version())
    }
}

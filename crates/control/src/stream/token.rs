//! `stream token`: shows the content of a resume token.

use cenote_format::nvlist::Nvlist;
use cenote_stream::dump::print_brief;
use cenote_stream::token::decode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::refused;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Spaces before each line, as `zstream token` prints them.
const INDENT: usize = 5;

/// A `stream token` request.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// The token.
    pub token: String,
}

/// A token's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Content {
    /// The list.
    pub list: Nvlist,
}

impl Content {
    /// As zstream prints it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        print_brief(&self.list, INDENT, &mut text).ok();
        text
    }
}

impl Verb for Token {
    const NAME: &'static str = "stream token";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Content;

    /// # Errors
    /// The token is invalid.
    async fn carry_out(self, _session: &Session) -> Result<Answered<Content>, ControlError> {
        match decode(&self.token) {
            Ok(list) => Ok(Content { list }.into()),
            Err(error) => Err(refused(format!("Unable to parse resume token: {error}"))),
        }
    }
}

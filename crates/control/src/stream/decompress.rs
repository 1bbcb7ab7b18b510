//! `stream decompress`: decompresses named records whose recorded compression is wrong.

use std::collections::HashMap;

use cenote_codec::compress::Compression;
use cenote_stream::filter::{Decompress as How, decompress};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filtered::{filtered, place};
use super::refused;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// A `stream decompress` request: standard input to standard output.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Decompress {
    /// OBJECT,OFFSET or OBJECT,OFFSET,TYPE.
    pub records: Vec<String>,
    /// `-v`: report each record.
    pub verbose: bool,
}

impl Verb for Decompress {
    const NAME: &'static str = "stream decompress";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// A record's name can't be read; the stream is damaged.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let records = self.records.iter().map(|typed| {
            let (place, compression) = place(typed)?;
            Ok((place, compression.map_or(Ok(How::AsRecorded), how)?))
        });
        let records = records.collect::<Result<HashMap<_, _>, ControlError>>()?;
        Ok(filtered(session, decompress(records), self.verbose).await?.into())
    }
}

fn how(typed: &str) -> Result<How, ControlError> {
    Ok(How::With(match typed {
        "off" => Compression::Off,
        "lz4" => Compression::Lz4,
        "lzjb" => Compression::Lzjb,
        "gzip" => Compression::Gzip1,
        "zle" => Compression::Zle,
        "zstd" => Compression::Zstd,
        other => {
            return Err(refused(format!(
                "Invalid compression type {other}.\nSupported types are off, lz4, lzjb, gzip, zle, and zstd"
            )));
        }
    }))
}

//! `stream recompress`: compresses all blocks of a stream anew.

use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_stream::filter::{Recompress as How, recompress};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filtered::filtered;
use super::refused;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// The number of zstd-fast-1: `ZIO_ZSTD_LEVEL_FAST_1`.
const FAST_FIRST: u8 = 103;

/// A `stream recompress` request: standard input to standard output.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Recompress {
    /// A value of the property `compression`.
    pub compression: String,
    /// `-l`: the level of zstd.
    pub level: Option<u8>,
}

impl Verb for Recompress {
    const NAME: &'static str = "stream recompress";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// An unknown compression; the stream is damaged.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        Ok(filtered(session, recompress(self.how()?), false).await?.into())
    }
}

impl Recompress {
    fn how(&self) -> Result<How, ControlError> {
        let typed = self.compression.as_str();
        let invalid = || refused(format!("Invalid compression type {typed}."));
        let (name, named_level) = match typed.strip_prefix("zstd-") {
            None => (typed, None),
            Some(level) => ("zstd", Some(zstd_level(level).ok_or_else(invalid)?)),
        };
        let with = match name {
            "off" => Compression::Off,
            "on" => Compression::Lz4,
            "gzip" => Compression::Gzip6,
            name => *Compression::ALL.iter().find(|other| other.name() == name).ok_or_else(invalid)?,
        };
        if matches!(with, Compression::Inherit | Compression::On | Compression::Empty) {
            return Err(invalid());
        }
        let given = self.level.map(|level| ZstdLevel::new(level).ok_or(level));
        let given = given.transpose().map_err(|level| refused(format!("zstd has no level {level}")))?;
        Ok(How { with, level: given.or(named_level).unwrap_or(ZstdLevel::DEFAULT) })
    }
}

/// The level of zstd-N or zstd-fast-N.
fn zstd_level(typed: &str) -> Option<ZstdLevel> {
    let Some(fast) = typed.strip_prefix("fast-") else { return ZstdLevel::new(typed.parse().ok()?) };
    let number: u16 = fast.parse().ok()?;
    let fast = match number {
        1..=10 => number - 1,
        20..=100 if number.is_multiple_of(10) => 8 + number / 10,
        500 => 19,
        1000 => 20,
        _ => return None,
    };
    ZstdLevel::new(FAST_FIRST + u8::try_from(fast).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_zstd_are_those_on_disk() {
        let level = |typed| zstd_level(typed).map(|level| format!("{level:?}"));
        for (typed, number) in [("3", 3), ("19", 19), ("fast-1", 103), ("fast-10", 112), ("fast-20", 113)] {
            assert_eq!(level(typed), Some(format!("ZstdLevel({number})")), "{typed}");
        }
        for (typed, number) in [("fast-100", 121), ("fast-500", 122), ("fast-1000", 123)] {
            assert_eq!(level(typed), Some(format!("ZstdLevel({number})")), "{typed}");
        }
        for typed in ["0", "20", "fast-0", "fast-11", "fast-25", ""] {
            assert_eq!(level(typed), None, "{typed}");
        }
    }
}

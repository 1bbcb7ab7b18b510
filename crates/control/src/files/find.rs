//! `find`: files of a dataset or folder by name, type, size, age, owner.

use std::sync::Arc;

use cenote_format::text_or_bytes;
use cenote_fs::LastLink;
use cenote_inspect::scan::{Row, RowBatch, ScanNeeds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Target;
use super::listed::{File, Files, give_below, join};
use super::place::{Place, on_each};
use crate::error::ControlError;
use crate::session::Session;
use crate::text::glob_matches;
use crate::verb::{Answered, InParts, Looks, Needs, Verb};

/// Find files by name, type, size, age.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Find {
    /// Folders.
    pub targets: Vec<Target>,
    /// Shell patterns for the name; one must match; empty: any name.
    #[serde(with = "text_or_bytes::each")]
    #[schemars(with = "Vec<text_or_bytes::TextOrBytes>")]
    pub names: Vec<Vec<u8>>,
    /// A shell pattern for the path from the dataset's root.
    #[serde(with = "text_or_bytes::maybe")]
    #[schemars(with = "Option<text_or_bytes::TextOrBytes>")]
    pub path: Option<Vec<u8>>,
    /// Type letters, see [`cenote_fs::FileKind::letter`].
    pub kinds: Option<String>,
    /// Size.
    pub size_bytes: Option<Bound>,
    /// Age of the content.
    pub age_seconds: Option<Bound>,
    /// Owner.
    pub uid: Option<u64>,
    /// Group.
    pub gid: Option<u64>,
    /// Dnode written after this txg.
    pub newer_txg: Option<u64>,
    /// Include attributes.
    pub details: bool,
}

/// At least, at most or exactly this much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// At least.
    AtLeast(u64),
    /// At most.
    AtMost(u64),
    /// Exactly.
    Exactly(u64),
}

impl InParts for Find {
    type Part = Files;
}

impl Verb for Find {
    const NAME: &'static str = "find";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = ();

    /// # Errors
    /// The caller takes no more. Unreadable files are reported.
    async fn carry_out(mut self, session: &Session) -> Result<Answered<()>, ControlError> {
        let targets = std::mem::take(&mut self.targets);
        let wanted = Arc::new(Wanted { now_ns: session.runtime().unix_time_ns().into(), find: self });
        let search = async |at, place: Place| {
            if !place.attr.is_dir() {
                return Err(ControlError::NotFound("not a folder; `cenote stat` shows a file".into()));
            }
            let (wanted, shown) = (wanted.clone(), place.shown.clone());
            let select = move |batch: &RowBatch| wanted.of(batch, &shown);
            give_below(session, at, &place, ScanNeeds::default(), select).await
        };
        Ok(on_each(session, &targets, LastLink::Keep, search).await?.into())
    }
}

struct Wanted {
    find: Find,
    now_ns: i128,
}

impl Wanted {
    fn of(&self, batch: &RowBatch, place: &[u8]) -> Vec<File> {
        let below = |row: &Row| match batch.path(row) {
            b"." => Vec::new(),
            path => path.to_vec(),
        };
        let asks_path = !self.find.names.is_empty() || self.find.path.is_some();
        let is_wanted = |row: &&Row| {
            self.match_attributes(row) && (!asks_path || self.match_path(&join(place, &below(row))))
        };
        let file = |row: &Row| File {
            path: below(row),
            object: row.object,
            attr: self.find.details.then_some(row.attr),
            link: None,
        };
        batch.rows.iter().filter(is_wanted).map(file).collect()
    }

    fn match_path(&self, shown: &[u8]) -> bool {
        let Find { names, path: whole, .. } = &self.find;
        let start = shown.windows(2).position(|two| two == b":/").map_or(0, |at| at + 1);
        let path = &shown[start..];
        let name = &path[path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1)..];
        (names.is_empty() || names.iter().any(|glob| glob_matches(glob, name)))
            && whole.as_ref().is_none_or(|glob| glob_matches(glob, path))
    }

    fn match_attributes(&self, row: &Row) -> bool {
        let (attr, find) = (&row.attr, &self.find);
        let mtime_ns = i128::from(attr.mtime.seconds) * 1_000_000_000 + i128::from(attr.mtime.nanoseconds);
        let (uid, gid) = attr.owner();
        find.kinds.as_ref().is_none_or(|kinds| kinds.contains(attr.kind().letter()))
            && find.size_bytes.is_none_or(|bound| bound.holds(attr.size.into(), 1))
            && find.age_seconds.is_none_or(|bound| bound.holds(self.now_ns - mtime_ns, 1_000_000_000))
            && find.uid.is_none_or(|wanted| wanted == u64::from(uid))
            && find.gid.is_none_or(|wanted| wanted == u64::from(gid))
            && find.newer_txg.is_none_or(|txg| row.birth_txg.0 > txg)
    }
}

impl Bound {
    /// `unit` is the bound's unit in units of `value`.
    fn holds(self, value: i128, unit: i128) -> bool {
        match self {
            Bound::AtLeast(bound) => value >= i128::from(bound) * unit,
            Bound::AtMost(bound) => value <= i128::from(bound) * unit,
            Bound::Exactly(bound) => value == i128::from(bound) * unit,
        }
    }
}

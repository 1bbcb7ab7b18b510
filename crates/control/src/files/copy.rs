//! `cp`: copies files and trees out of a pool, into one, or within one; reports losses.
//!
//! Idea: an existing folder receives the sources under their own names; otherwise the destination names the
//! single copy. A source that ends in `/.` stands for the folder's contents. The caller opens files of the
//! machine, and a destination folder there ([`super::host`]).

mod below;
mod into;
pub mod losses;
mod out;
mod total;

use cenote_format::text_or_bytes;
use cenote_inspect::copy::Copied;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Target;
use super::host::Opened;
use crate::error::ControlError;
use crate::session::Session;
use crate::text::counted;
use crate::verb::{Answered, Looks, Needs, Verb};
use losses::Summary;

/// Copy files or trees out of a pool or into one, with owners, modes, times, links, xattrs, ACLs and holes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cp {
    /// Sources.
    pub sources: Vec<Source>,
    /// Destination.
    pub destination: Destination,
    /// Copy folders with all contents.
    #[serde(default)]
    pub recursive: bool,
    /// Replace existing files.
    #[serde(default)]
    pub replace: bool,
    /// Out of a pool: if a dataset is copied whole, also copy its descendants, each as a folder.
    #[serde(default)]
    pub datasets: bool,
    /// Copy contents only: no owners, modes, times, xattrs, ACLs.
    #[serde(default)]
    pub no_metadata: bool,
    /// Skip unreadable parts of files, and copy the rest.
    #[serde(default)]
    pub partial: bool,
    /// Count the total size for progress.
    #[serde(default)]
    pub count: bool,
}

/// A source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// In a pool.
    InPool(Target),
    /// On the machine.
    Host {
        /// As the caller named it.
        #[serde(with = "text_or_bytes")]
        #[schemars(with = "text_or_bytes::TextOrBytes")]
        path: Vec<u8>,
        /// The file.
        file: Opened,
    },
}

/// A destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// A place in a pool.
    InPool(Target),
    /// A folder of the machine.
    Host {
        /// Index of the folder in the request's files.
        folder: usize,
        /// The name of the only copy; none: sources keep theirs.
        #[serde(default, with = "text_or_bytes::maybe")]
        #[schemars(with = "Option<cenote_format::text_or_bytes::TextOrBytes>")]
        name: Option<Vec<u8>>,
    },
}

impl Verb for Cp {
    const NAME: &'static str = "cp";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = Summary;

    /// # Errors
    /// A source or the destination can't be opened. Later failures are part of the answer.
    async fn carry_out(self, session: &Session) -> Result<Answered<Summary>, ControlError> {
        match &self.destination {
            Destination::InPool(target) => self.put(session, target).await,
            Destination::Host { folder, name } => self.out(session, *folder, name.as_deref()).await,
        }
    }
}

/// Progress of a copy, for [`crate::progress::telling`].
fn progress(copied: Copied, total_bytes: u64) -> (String, u64, u64) {
    (counted(copied.files, "file") + ",", copied.bytes, total_bytes)
}

/// The last component of a source's path; for the root, of its dataset.
fn own_name<'a>(dataset: &'a str, path: &'a [u8]) -> &'a [u8] {
    let of_path = path.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty() && *name != b".");
    let dataset = dataset.split('@').next().unwrap_or_default();
    of_path.unwrap_or_else(|| dataset.rsplit('/').next().unwrap_or_default().as_bytes())
}

//! The host of a receive: remounts datasets, and shows messages.

use std::time::Duration;

use cenote_object::{DatasetError, Result};
use futures::future::BoxFuture;

use crate::receive::reshare::Reshared;

/// A change of datasets that has not begun.
pub type Work<'a> = BoxFuture<'a, Result<()>>;

/// The host of a receive.
pub trait Host: Sync {
    /// Shows a line of `-v`.
    fn line(&self, _text: String) {}

    /// A stream was received: bytes and duration.
    fn received(&self, _bytes: u64, _took: Duration) {}

    /// Blocks were shared (`--reshare`).
    fn reshared(&self, _shared: Reshared) {}

    /// Shows a warning; the receive continues.
    fn warn(&self, _text: String) {}

    /// Lets `work` replace the content of `target`, a file system or volume, by that of `filled`, a dataset
    /// below it. Mounts stay, if possible; after a raw stream (`is_raw`), the content may be unreadable to
    /// all.
    fn replacing<'a>(
        &'a self,
        _target: &'a str,
        _filled: &'a str,
        _is_raw: bool,
        work: Work<'a>,
    ) -> Work<'a> {
        work
    }

    /// Lets `work` rename, destroy or promote a dataset or snapshot, which is not in use meanwhile.
    fn moving<'a>(&'a self, _name: &'a str, work: Work<'a>) -> Work<'a> {
        work
    }

    /// Creates the missing ancestors of a dataset.
    fn make_parents<'a>(&'a self, name: &'a str) -> Work<'a> {
        let name = name.to_owned();
        Box::pin(async move { Err(DatasetError::unsuitable(&name, "its parent does not exist")) })
    }
}

/// A host without mounts and messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Host for Alone {}

//! Whoever holds the pool in which something is received: mounts that follow, and who is told.

use std::time::Duration;

use cenote_object::{DatasetError, Result};
use futures::future::BoxFuture;

/// A change of datasets that is yet to begin.
pub type Work<'a> = BoxFuture<'a, Result<()>>;

/// Surroundings of a receive.
pub trait Host: Sync {
    /// Gives a line of `-v` out.
    fn line(&self, _text: String) {}

    /// A stream was received: its bytes, and how long that took.
    fn received(&self, _bytes: u64, _took: Duration) {}

    /// Tells of something that is not as it was asked for, and ends nothing.
    fn warn(&self, _text: String) {}

    /// Has `work` give the file system or volume `target` the content of `filled`, which is below it. What is
    /// mounted stays so, if it can; for a raw stream (`is_raw`), nobody may be able to read that content.
    fn replacing<'a>(
        &'a self,
        _target: &'a str,
        _filled: &'a str,
        _is_raw: bool,
        work: Work<'a>,
    ) -> Work<'a> {
        work
    }

    /// Has `work` rename, destroy or promote a file system, volume or snapshot, which nobody uses meanwhile.
    fn moving<'a>(&'a self, _name: &'a str, work: Work<'a>) -> Work<'a> {
        work
    }

    /// Makes the file systems above a dataset that are missing.
    fn make_parents<'a>(&'a self, name: &'a str) -> Work<'a> {
        let name = name.to_owned();
        Box::pin(async move { Err(DatasetError::unsuitable(&name, "its parent does not exist")) })
    }
}

/// A pool without mounts, of which nobody is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Host for Alone {}

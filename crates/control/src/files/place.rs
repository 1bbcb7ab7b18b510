//! Resolves targets to files. Opens each pool and file system once for all targets.

use std::collections::HashMap;

use cenote_dataset::{Dataset, Mos};
use cenote_format::units::ObjectId;
use cenote_fs::{Attr, Filesystem, LastLink};
use cenote_inspect::scan::ScanTarget;

use super::listed::join;
use super::{Target, split_path};
use crate::error::{ControlError, Outcome};
use crate::session::{Session, dataset, file_error};
use crate::text::quoted;

/// A file in a pool.
#[derive(Clone)]
pub struct Place {
    /// Dataset or snapshot.
    pub dataset: Dataset,
    /// File system.
    pub filesystem: Filesystem,
    /// File.
    pub object: ObjectId,
    /// Attributes.
    pub attr: Attr,
    /// `pool/dataset@snapshot:/path`, the prefix of the paths below.
    pub shown: Vec<u8>,
}

/// The pools and file systems opened so far.
pub struct Places<'a> {
    session: &'a Session,
    pools: HashMap<String, Mos>,
    filesystems: HashMap<String, (Dataset, Filesystem)>,
}

impl<'a> Places<'a> {
    /// No files opened yet.
    pub fn new(session: &'a Session) -> Places<'a> {
        Places { session, pools: HashMap::new(), filesystems: HashMap::new() }
    }

    /// The file that a target names.
    pub async fn find(&mut self, target: &Target, last: LastLink) -> Result<Place, ControlError> {
        let (dataset, filesystem) = self.open(target).await?;
        let path = target.path_in(&filesystem).await;
        let object = match filesystem.resolve(path, last).await {
            Ok(object) => object,
            Err(error) => return Err(file_error(&filesystem, path, error).await),
        };
        let attr = filesystem.attr(object).await?;
        let (folder, name) = split_path(path);
        let path = if name.is_empty() { &b"/"[..] } else { &path[..folder.len() + name.len()] };
        let shown = [target.dataset.as_bytes(), b":", path].concat();
        Ok(Place { dataset, filesystem, object, attr, shown })
    }

    async fn open(&mut self, target: &Target) -> Result<(Dataset, Filesystem), ControlError> {
        if let Some(opened) = self.filesystems.get(&target.dataset) {
            return Ok(opened.clone());
        }
        let pool = target.pool().to_string();
        let mos = match self.pools.get(&pool) {
            Some(mos) => mos.clone(),
            None => self.session.open_pool(&pool).await?,
        };
        self.pools.insert(pool, mos.clone());
        let dataset = dataset(&mos, &target.dataset).await?;
        let filesystem = self.session.filesystem(&dataset).await?;
        let opened = (dataset, filesystem);
        self.filesystems.insert(target.dataset.clone(), opened.clone());
        Ok(opened)
    }
}

impl Place {
    /// A scan of its file system that starts here.
    pub fn scan_target(&self) -> ScanTarget {
        let dataset = self.dataset.name().to_string();
        ScanTarget { dataset, snapshot: None, filesystem: self.filesystem.clone() }
    }

    /// Reports that `below`, relative to this folder, can't be shown; the rest still is.
    pub fn problem(&self, session: &Session, below: &[u8], error: impl Into<ControlError>) -> Outcome {
        let error = error.into();
        session.caller().note(format!("{}: {error}", quoted(&join(&self.shown, below))));
        error.outcome()
    }
}

/// Runs `work` on the file of each target, with its index. Failing targets are reported, and the others
/// continue. A usage error, or a closed output, ends the verb.
pub async fn on_each(
    session: &Session,
    targets: &[Target],
    last: LastLink,
    mut work: impl AsyncFnMut(usize, Place) -> Result<Outcome, ControlError>,
) -> Result<Outcome, ControlError> {
    let mut places = Places::new(session);
    let mut outcome = Outcome::Done;
    for (at, target) in targets.iter().enumerate() {
        let done = match places.find(target, last).await {
            Ok(place) => work(at, place).await,
            Err(error) => Err(error),
        };
        outcome = outcome.and(match done {
            Err(error) if matches!(error, ControlError::Usage(_)) || error.is_broken_pipe() => {
                return Err(error);
            }
            Err(error) => session.caller().tell(&target.to_string(), &error),
            Ok(outcome) => outcome,
        });
    }
    Ok(outcome)
}

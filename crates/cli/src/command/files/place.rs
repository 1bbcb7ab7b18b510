//! Resolves targets to files. Each pool and file system is opened once, however many targets name it.

use std::collections::HashMap;

use cenote_dataset::{Dataset, Mos};
use cenote_format::units::ObjectId;
use cenote_fs::{Attr, Filesystem, LastLink};
use cenote_inspect::scan::ScanTarget;

use crate::message::say;
use crate::outcome::{CliError, Outcome, Say};
use crate::render::quoted;
use crate::session::{Session, Target, dataset, file_error, split_path};

/// A file in a pool.
#[derive(Clone)]
pub struct PoolFile {
    /// The dataset or snapshot.
    pub dataset: Dataset,
    /// Its file system.
    pub filesystem: Filesystem,
    /// The file.
    pub object: ObjectId,
    /// Its attributes.
    pub attr: Attr,
    /// `pool/dataset@snapshot:/path`, the prefix of the paths below.
    pub shown: Vec<u8>,
}

/// The pools and file systems opened so far.
pub struct PoolFiles<'a> {
    session: &'a Session,
    pools: HashMap<String, Mos>,
    filesystems: HashMap<String, (Dataset, Filesystem)>,
}

impl<'a> PoolFiles<'a> {
    /// Nothing is opened yet.
    pub fn new(session: &'a Session) -> PoolFiles<'a> {
        PoolFiles { session, pools: HashMap::new(), filesystems: HashMap::new() }
    }

    /// The file that a target names.
    pub async fn find(&mut self, target: &Target, last: LastLink) -> Result<PoolFile, CliError> {
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
        Ok(PoolFile { dataset, filesystem, object, attr, shown })
    }

    async fn open(&mut self, target: &Target) -> Result<(Dataset, Filesystem), CliError> {
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

impl PoolFile {
    /// The path of `below`, which is relative to this folder.
    pub fn below(&self, below: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if self.shown.ends_with(b"/") { b"" } else { b"/" };
        [&self.shown, slash, below].concat()
    }

    /// A scan of its file system that starts here.
    pub fn scan_target(&self) -> ScanTarget {
        let dataset = self.dataset.name().to_string();
        ScanTarget { dataset, snapshot: None, filesystem: self.filesystem.clone() }
    }

    /// Reports why `below`, relative to this folder, can't be shown; the rest still is.
    pub fn problem(&self, below: &[u8], error: impl Into<CliError>) -> Outcome {
        let error = error.into();
        say!("{}: {error}", quoted(&self.below(below)));
        error.outcome()
    }
}

/// Reports why one of several targets failed; the others continue. A usage error or closed output ends the
/// command.
pub fn complain(target: &Target, error: CliError) -> Result<Outcome, CliError> {
    if matches!(error, CliError::Usage(_)) || error.is_broken_pipe() {
        return Err(error);
    }
    Ok(error.tell(&target.to_string()))
}

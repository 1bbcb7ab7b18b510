//! From what was typed to files: pools and file systems are opened once, however many targets name them.

use std::collections::HashMap;

use cenote_dataset::{Dataset, Mos, ObjectId};
use cenote_fs::{Attr, Filesystem, LastLink};
use cenote_inspect::scan::ScanTarget;

use crate::outcome::{CliError, Outcome};
use crate::render::escape_terminal;
use crate::session::{Session, Target, dataset, file_error};

/// A file in a pool.
#[derive(Clone)]
pub struct Place {
    /// The dataset or snapshot.
    pub dataset: Dataset,
    /// Its file system.
    pub filesystem: Filesystem,
    /// The file.
    pub object: ObjectId,
    /// Its attributes.
    pub attr: Attr,
    /// `pool/dataset@snapshot:/path`, to be put in front of what lies below.
    pub shown: String,
}

/// The pools and file systems opened so far.
pub struct Places<'a> {
    session: &'a Session,
    pools: HashMap<String, Mos>,
    filesystems: HashMap<String, (Dataset, Filesystem)>,
}

impl<'a> Places<'a> {
    /// Nothing is opened yet.
    pub fn new(session: &'a Session) -> Places<'a> {
        Places { session, pools: HashMap::new(), filesystems: HashMap::new() }
    }

    /// The file that `typed` names.
    pub async fn find(&mut self, typed: &str, last: LastLink) -> Result<Place, CliError> {
        let target: Target = typed.parse().map_err(CliError::Usage)?;
        let (dataset, filesystem) = self.open(&target).await?;
        let path = target.path_or_root();
        let object = match filesystem.resolve(path.as_bytes(), last).await {
            Ok(object) => object,
            Err(error) => return Err(file_error(&filesystem, path, error).await),
        };
        let attr = filesystem.attr(object).await?;
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { "/" } else { path };
        Ok(Place { dataset, filesystem, object, attr, shown: format!("{}:{path}", target.dataset) })
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

impl Place {
    /// The path of something at `below` this place, which is a folder.
    pub fn below(&self, below: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if self.shown.ends_with('/') { b"" } else { b"/" };
        [self.shown.as_bytes(), slash, below].concat()
    }

    /// Its file system, to be scanned from here.
    pub fn scan_target(&self) -> ScanTarget {
        let dataset = self.dataset.name().to_string();
        ScanTarget { dataset, snapshot: None, filesystem: self.filesystem.clone() }
    }

    /// Says why something at `below` this place can't be shown; the rest is.
    pub fn problem(&self, below: &[u8], error: impl Into<CliError>) -> Outcome {
        let error = error.into();
        eprintln!("cenote: {}: {error}", escape_terminal(&self.below(below)));
        error.outcome()
    }
}

/// Says why one of several targets failed; the others go on. A wrong command line and a closed output end it all.
pub fn complain(target: &str, error: CliError) -> Result<Outcome, CliError> {
    if matches!(error, CliError::Usage(_)) || error.is_broken_pipe() {
        return Err(error);
    }
    Ok(error.tell(target))
}

//! The observer of a copy: records losses, and knows which files of an earlier copy are incomplete.
//!
//! Locking: tasks call an account concurrently, holding no lock, so it guards its own state.

use rustix::io::Errno;

use super::loss::Loss;

/// Observes a copy; called by several tasks concurrently.
pub trait Account: Send + Sync {
    /// Something could not be preserved.
    ///
    /// # Errors
    /// The loss can't be recorded. A file that lost content then does not appear at the destination.
    fn lost(&self, loss: Loss) -> Result<(), Errno>;

    /// How many bytes a file at the destination lacks, if an earlier copy left it incomplete: it is copied
    /// again, and replaced if that yields more. `None`: it stays.
    fn lacking(&self, _path: &[u8]) -> Option<u64> {
        None
    }

    /// A file, or a folder without its contents, was copied and lost no content.
    fn whole(&self, _path: &[u8]) {}
}

impl<F: Fn(Loss) + Send + Sync> Account for F {
    fn lost(&self, loss: Loss) -> Result<(), Errno> {
        self(loss);
        Ok(())
    }
}

/// The existing file at the destination, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing.
    Free,
    /// A file that stays.
    Stays,
    /// A file replaced in any case.
    Replaced,
    /// A file that lacks this many bytes: replaced by a copy that is complete or lacks fewer.
    Improved(u64),
}

impl Standing {
    /// Whether the existing file is replaced by a copy that lacks `lost_bytes`.
    ///
    /// # Errors
    /// It stays.
    pub fn replace(self, lost_bytes: u64) -> Result<bool, Errno> {
        match self {
            Standing::Free => Ok(false),
            Standing::Replaced => Ok(true),
            Standing::Improved(lacking) if lost_bytes == 0 || lost_bytes < lacking => Ok(true),
            Standing::Stays | Standing::Improved(_) => Err(Errno::EXIST),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use cenote_dataset::{ImportOptions, import};
    use cenote_fs::Filesystem;
    use cenote_runtime::Runtime;
    use cenote_testkit::golden;

    use super::*;
    use crate::copy::{Copier, CopyOptions, CopySource, Folder, LossKind};

    /// Records losses, but reports that it can't.
    #[derive(Default)]
    struct Full(Mutex<Vec<Loss>>);

    impl Account for Full {
        fn lost(&self, loss: Loss) -> Result<(), Errno> {
            self.0.lock().unwrap().push(loss);
            Err(Errno::NOSPC)
        }
    }

    #[test]
    fn no_file_with_zeros_appears_unless_that_is_noted() {
        let pool = golden("damaged");
        let runtime = Runtime::real(None);
        let to = tempfile::tempdir().unwrap();
        let account = Arc::new(Full::default());
        runtime.block_on(async {
            let found = cenote_pool::discover(&runtime, &[pool.images()]).await.pools.remove(0);
            let mos = import(&runtime, &found, &ImportOptions::default()).await.unwrap();
            let objset = mos.dataset("gdamaged/raw").await.unwrap().objset().await.unwrap();
            let filesystem = Filesystem::open(objset).await.unwrap();
            let options = CopyOptions { metadata: false, partial: true, ..CopyOptions::default() };
            let copier = Copier::new(&runtime, options, |_| {}).telling(account.clone());
            let source = CopySource { object: filesystem.root(), filesystem, path: b"/".to_vec() };
            copier.copy_into(&source, &Folder::open(to.path()).unwrap()).await;
            assert!(copier.copied().files > 10);
        });
        let losses = account.0.lock().unwrap();
        let with_zeros = losses.iter().filter(|loss| matches!(loss.kind, LossKind::Content(_)));
        let mut count = 0;
        for loss in with_zeros {
            let path = Path::new(std::ffi::OsStr::from_bytes(&loss.path[1..]));
            assert!(!to.path().join(path).exists(), "{}", path.display());
            count += 1;
        }
        assert!(count > 0);
    }
}

//! A mounted dataset, from `mount(2)` to the last operation.

use std::path::Path;

use cenote_boxed::boxed;
use cenote_fuse::{MountError, MountOptions, Mounted, Session, SessionOptions};
use cenote_runtime::Runtime;

use crate::files::Files;

/// A mounted dataset.
#[derive(Debug)]
pub struct Mount {
    mounted: Mounted,
    session: Session,
    files: Files,
}

impl Mount {
    /// Mounts `files` on a directory and serves them.
    ///
    /// # Errors
    /// The directory can't be mounted on, or the kernel refuses.
    #[boxed]
    pub async fn new(
        runtime: &Runtime,
        files: Files,
        dir: &Path,
        options: &MountOptions,
        session: SessionOptions,
    ) -> Result<Mount, MountError> {
        let is_snapshot = options.source.contains('@');
        let hears_sync = session.hears_sync && !is_snapshot;
        let delays_writes = session.writeback_cache;
        let options = MountOptions { hears_sync, delays_writes, ..options.clone() };
        // Always on, so that `acltype` can change while mounted.
        let session = SessionOptions { posix_acl: true, ..session };
        let (mounted, session) = Session::mount(runtime, &files, dir, options, session).await?;
        files.set_notifier(session.notifier().clone());
        Ok(Mount { mounted, session, files })
    }

    /// A handle for unmounting while another task awaits [`Mount::ended`].
    pub fn mounted(&self) -> Mounted {
        self.mounted.clone()
    }

    /// Waits for the unmount, by any process, and the last operation.
    #[boxed]
    pub async fn ended(self) {
        self.session.ended().await;
        self.files.close().await;
    }
}

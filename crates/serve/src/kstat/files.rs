//! Kstats as files, laid out as below `/proc`: `spl/kstat/zfs/arcstats`, `spl/kstat/zfs/POOL/state`...
//!
//! Idea: programs that read `/proc/spl/kstat/zfs` are given another root (`node_exporter --path.procfs`), or
//! see this folder as `/proc` in a mount namespace of their own. Each file is replaced whole, so a reader
//! never sees a half. Files of pools and datasets that are gone are removed; all are when the daemon ends.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use cenote_runtime::Runtime;

use super::texts;
use crate::cancel::Cancel;
use crate::pools::Pools;

/// How often they are written.
const INTERVAL: Duration = Duration::from_secs(1);

/// The files that are there.
struct Files {
    root: PathBuf,
    written: BTreeSet<String>,
}

/// Writes them below `dir` until `stop`, and then removes them.
pub async fn keep_kstats(runtime: Runtime, pools: Weak<Pools>, dir: PathBuf, stop: Cancel) {
    let mut files = Files { root: dir.join("spl/kstat/zfs"), written: BTreeSet::new() };
    loop {
        {
            let Some(pools) = pools.upgrade() else { return };
            let mut now = BTreeSet::new();
            for (name, text) in texts(&pools).await {
                // One that can't be written now is tried again.
                if replace(&files.root.join(&name), &text).is_ok() {
                    now.insert(name);
                }
            }
            let gone: Vec<String> = files.written.difference(&now).cloned().collect();
            gone.iter().for_each(|name| files.remove(name));
            files.written.extend(now);
        }
        if runtime.timeout(INTERVAL, stop.cancelled()).await.is_ok() {
            return;
        }
    }
}

impl Files {
    fn remove(&mut self, name: &str) {
        let path = self.root.join(name);
        std::fs::remove_file(&path).ok();
        // The folder of a pool goes with its last file; one that has others stays.
        path.parent().filter(|folder| *folder != self.root).map(std::fs::remove_dir);
        self.written.remove(name);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for name in std::mem::take(&mut self.written) {
            self.remove(&name);
        }
    }
}

/// Puts a file in the place of the one before.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    let beside = folder.join(".new");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

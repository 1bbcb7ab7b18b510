//! Kstats as files, laid out as below `/proc`: `spl/kstat/zfs/arcstats`, `spl/kstat/zfs/POOL/state`... Beside
//! them, `sys/` mimics the module's version and parameters, with the tunables.
//!
//! Idea: programs that read `/proc/spl/kstat/zfs` get another root (`node_exporter --path.procfs`), or see
//! this folder as `/proc` in a mount namespace. Changed files are replaced atomically. Files of removed pools
//! and datasets are deleted, and all files when the daemon ends.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use cenote_runtime::Runtime;

use super::texts;
use crate::cancel::Cancel;
use crate::pools::Pools;

const INTERVAL: Duration = Duration::from_secs(1);

struct Files {
    root: PathBuf,
    written: BTreeMap<String, String>,
}

/// Maintains the files below `dir` until `stop`, then removes them.
pub async fn keep_kstats(runtime: Runtime, pools: Weak<Pools>, dir: PathBuf, stop: Cancel) {
    let mut files = Files { root: dir, written: BTreeMap::new() };
    loop {
        let now = {
            let Some(pools) = pools.upgrade() else { return };
            let kstats = texts(&pools).await.into_iter();
            let kstats = kstats.map(|(name, text)| (format!("spl/kstat/zfs/{name}"), text));
            kstats.chain(of_module(&pools)).collect()
        };
        let write = move || {
            files.write(now);
            files
        };
        files = runtime.blocking(write).await;
        if runtime.timeout(INTERVAL, stop.cancelled()).await.is_ok() {
            return;
        }
    }
}

/// Files below `/sys/module`.
fn of_module(pools: &Pools) -> Vec<(String, String)> {
    let tunables = pools.tuning.list().into_iter();
    let parameters = tunables.map(|tunable| {
        (format!("sys/module/zfs/parameters/{}", tunable.name), format!("{}\n", tunable.value))
    });
    let version = concat!("cenote-", env!("CARGO_PKG_VERSION"), "\n");
    parameters.chain([("sys/module/zfs/version".into(), version.into())]).collect()
}

impl Files {
    fn write(&mut self, now: BTreeMap<String, String>) {
        // Some programs list this folder.
        std::fs::create_dir_all(self.root.join("sys/module/spl/parameters")).ok();
        let is_gone = |name: &&String| !now.contains_key(*name);
        let gone: Vec<String> = self.written.keys().filter(is_gone).cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
        for (name, text) in now {
            // A failed write is retried.
            if self.written.get(&name) != Some(&text) && replace(&self.root.join(&name), &text).is_ok() {
                self.written.insert(name, text);
            }
        }
    }

    fn remove(&mut self, name: &str) {
        let path = self.root.join(name);
        std::fs::remove_file(&path).ok();
        // A pool's folder goes with its last file; a folder with foreign files stays.
        path.parent().filter(|folder| *folder != self.root).map(std::fs::remove_dir);
        self.written.remove(name);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for name in std::mem::take(&mut self.written).into_keys() {
            self.remove(&name);
        }
        for folder in ["sys/module/spl/parameters", "sys/module/spl", "sys/module", "sys", "spl/kstat", "spl"]
        {
            std::fs::remove_dir(self.root.join(folder)).ok();
        }
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    let beside = folder.join(".new");
    // It may be a link if other users can write there.
    std::fs::remove_file(&beside).ok();
    std::fs::File::create_new(&beside)?.write_all(text.as_bytes())?;
    std::fs::rename(&beside, path)
}

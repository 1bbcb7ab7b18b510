//! Reads everything that there is, as users see it: files and snapshots through the kernel, volumes by NBD.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_dataset::DatasetKind;
use cenote_fuse::Errno;

use crate::client::admin::VOLUME_BLOCKS;
use crate::machine::POOL;
use crate::machine::daemon::Daemon;
use crate::machine::kernel::{How, Mount};
use crate::machine::volume::{Connection, Protocol};
use crate::model::BLOCK_BYTES;
use crate::oracle::crash::{Found, FoundContent, FoundDataset, FoundSnapshot, Node};

/// Blocks of a volume read at once: nobody writes meanwhile.
const BLOCKS_AT_ONCE: u64 = 32;

/// Reads the pool.
///
/// # Errors
/// Something can't be read.
pub async fn look(daemon: &Daemon) -> Result<Found, String> {
    let pool = daemon.pools.get(POOL).ok_or("the pool is not open")?;
    let mos = pool.engine.mos().await.map_err(|error| error.to_string())?;
    let mut found = Found::default();
    for dataset in mos.all_datasets().await.map_err(|error| error.to_string())? {
        let name = dataset.name().to_owned();
        if name == POOL {
            continue;
        }
        let kind = dataset.kind().await.map_err(|error| error.to_string())?;
        let snapshots = dataset.snapshots().await.map_err(|error| error.to_string())?;
        let content = content(daemon, &name, None, kind).await?;
        let mut all = Vec::new();
        for snapshot in snapshots {
            let own = snapshot.name().split_once('@').map(|(_, own)| own.to_owned()).unwrap_or_default();
            let content = self::content(daemon, &name, Some(&own), kind).await?;
            let holds = snapshot.holds().await.map_err(|error| error.to_string())?;
            let holds = holds.into_iter().map(|(tag, _)| tag).collect();
            all.push(FoundSnapshot { name: own, content, holds });
        }
        found.datasets.insert(name, FoundDataset { content, snapshots: all });
    }
    Ok(found)
}

async fn content(
    daemon: &Daemon,
    name: &str,
    snapshot: Option<&str>,
    kind: DatasetKind,
) -> Result<FoundContent, String> {
    if kind == DatasetKind::Volume {
        let export = snapshot.map_or_else(|| name.to_owned(), |snapshot| format!("{name}@{snapshot}"));
        return blocks(daemon, &export).await.map_err(|error| format!("{export}: {error}"));
    }
    let mount = daemon.kernel.mounted_on(&format!("/{name}"));
    let mount = mount.map_err(|_| format!("{name} is not mounted"))?;
    let above: Vec<&str> = snapshot.map_or_else(Vec::new, |snapshot| vec![".zfs", "snapshot", snapshot]);
    let failed = |(path, error): (Vec<String>, Errno)| {
        format!("{name}@{}: {}: {error}", snapshot.unwrap_or_default(), path.join("/"))
    };
    files(&mount, &above).await.map(FoundContent::Files).map_err(failed)
}

type Files = BTreeMap<Vec<String>, Node>;

async fn files(mount: &Arc<Mount>, above: &[&str]) -> Result<Files, (Vec<String>, Errno)> {
    let mut all = BTreeMap::new();
    let mut left: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(dir) = left.pop() {
        let at = |error| (dir.clone(), error);
        for name in mount.list(&whole(above, &dir)).await.map_err(at)? {
            let path = [&dir[..], &[name]].concat();
            let node = node(mount, &whole(above, &path)).await.map_err(|error| (path.clone(), error))?;
            if node.bytes.is_none() {
                left.push(path.clone());
            }
            all.insert(path, node);
        }
    }
    Ok(all)
}

fn whole<'a>(above: &[&'a str], path: &'a [String]) -> Vec<&'a str> {
    above.iter().copied().chain(path.iter().map(String::as_str)).collect()
}

async fn node(mount: &Arc<Mount>, path: &[&str]) -> Result<Node, Errno> {
    let attr = mount.stat(path).await?;
    let bytes = match () {
        () if attr.is_dir() => None,
        () if attr.is_symlink() => Some(mount.readlink(path).await?.into()),
        () => {
            let file = mount.open(path, How::Existing).await?;
            Some(file.read(0, attr.size_bytes).await?.into())
        }
    };
    let mut xattrs = BTreeMap::new();
    for name in ["user.one", "user.two"] {
        match mount.getxattr(path, name).await {
            Ok(value) => _ = xattrs.insert(name.to_owned(), value.into()),
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Node { bytes, is_symlink: attr.is_symlink(), mode: attr.permissions(), xattrs })
}

async fn blocks(daemon: &Daemon, export: &str) -> Result<FoundContent, String> {
    let connection = Connection::open(daemon, Protocol::Nbd, export).await;
    let mut connection = connection.ok_or("the export is refused")?;
    let mut blocks = Vec::new();
    // Volumes have 256 blocks; a read behind the end is an error.
    for first in (0..).step_by(BLOCKS_AT_ONCE as usize) {
        let read = connection.read(first * BLOCK_BYTES, BLOCKS_AT_ONCE * BLOCK_BYTES).await;
        match read.map_err(|error| error.to_string())? {
            Ok(data) => blocks.extend((0..data.len()).step_by(BLOCK_BYTES as usize).map(|at| {
                let block = data.slice(at..at + BLOCK_BYTES as usize);
                if block.iter().all(|byte| *byte == 0) { Bytes::new() } else { block }.into()
            })),
            Err(_) if first >= VOLUME_BLOCKS => break,
            Err(error) => return Err(format!("block {first}: error {error}")),
        }
    }
    Ok(FoundContent::Blocks(blocks))
}

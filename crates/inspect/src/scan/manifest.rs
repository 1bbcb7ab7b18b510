//! The manifest format of the golden pools, from a scan: the same rows as `cenote_fs::manifest`, sorted in
//! bounded memory.

use cenote_format::units::ObjectId;
use cenote_fs::manifest::ManifestRow;

use super::row::RowBatch;

/// Keys and lines of a batch, for [`super::sort::Sorter`].
///
/// `root_ino` is the inode number that Linux shows for the root: its own, or a synthetic one for a mounted
/// snapshot.
pub fn render(batch: &RowBatch, root_ino: Option<ObjectId>) -> Vec<(Vec<u8>, String)> {
    let root = batch.target.filesystem.root();
    let rows = batch.rows.iter().map(|row| {
        let extra = row.extra.as_deref().cloned().unwrap_or_default();
        let manifest = ManifestRow {
            path: batch.path(row).to_vec(),
            ino: root_ino.filter(|_| row.object == root).unwrap_or(row.object),
            attr: row.attr,
            content: extra.content,
            target: extra.target,
            xattrs: extra.xattrs,
        };
        let mut line = String::new();
        manifest.append_to(&mut line);
        (manifest.path, line)
    });
    rows.collect()
}

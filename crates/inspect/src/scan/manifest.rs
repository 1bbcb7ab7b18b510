//! The golden pools' manifest notation, from a scan: the same rows as `cenote_fs::manifest`, sorted in bounded memory.

use cenote_format::units::ObjectId;
use cenote_fs::manifest::ManifestRow;

use super::row::RowBatch;

/// Keys and lines of a batch, to be sorted by [`super::sort::Sorter`].
///
/// `root_ino` is what Linux shows for the root: its own number, or a made-up one for a mounted snapshot.
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

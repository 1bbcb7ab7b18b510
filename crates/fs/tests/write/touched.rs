//! Touching golden files preserves everything else, even in old formats: attributes, ACLs, extended
//! attributes, content.

use cenote_engine::OpenDataset;
use cenote_format::units::ObjectId;
use cenote_fs::attr::{FileKind, pflags};
use cenote_fs::write::SetAttr;
use cenote_fs::{Attr, Change, Filesystem, FsOptions, FsWriter};
use cenote_object::{LiveObjset, Object};

use crate::common::each_filesystem;
use crate::scratch::{TXG, at};

/// Larger content is not read.
const MAX_CONTENT_BYTES: u64 = 1 << 20;

/// All contents of a file, except attributes changed by a touch.
async fn all_of(fs: &Filesystem, id: ObjectId) -> Option<(Attr, String, Vec<u8>)> {
    let attr = fs.attr(id).await.ok()?;
    let mut content = Vec::new();
    if attr.kind() == FileKind::Symlink {
        content = fs.read_link(id).await.ok()?;
    } else if attr.kind() == FileKind::Regular {
        let file = fs.open_file(id).await.ok()?;
        content = file.read(0, attr.size.min(MAX_CONTENT_BYTES)).await.ok()?.to_vec();
    }
    let more = format!("{:?} {:?}", fs.acl(id).await.ok()?, fs.xattrs(id).await.ok()?);
    // An old znode becomes attributes, which include a project; writing sets the two others.
    let (is_sa, has_spill, xattr_dir) = (true, false, None);
    let flags = attr.flags | pflags::PROJID | pflags::ARCHIVE | pflags::AV_MODIFIED;
    Some((Attr { ctime: at(0), is_sa, has_spill, xattr_dir, flags, ..attr }, more, content))
}

#[test]
fn files_that_are_touched_keep_all_else() {
    each_filesystem(async |name, fs| {
        let live = LiveObjset::new(fs.objset().clone(), TXG);
        let Ok(writer) = FsWriter::open(OpenDataset::without_log(live), FsOptions::default()).await else {
            return 0;
        };
        let edit = writer.live().edit();
        let change = Change { edit: &edit, now: at(3) };
        let mut touched = 0;
        let mut dnodes = fs.objset().dnodes(ObjectId(1), fs.objset().last_object());
        while let Some(batch) = dnodes.next_batch().await {
            let Ok(batch) = batch else { continue };
            for (id, dnode) in batch.dnodes.into_iter().filter(|(_, dnode)| Filesystem::is_file(dnode)) {
                let Some(before) = all_of(fs, id).await else { continue };
                let what = format!("{name} object {id}");
                let set = SetAttr { crtime: Some(before.0.crtime), ..SetAttr::default() };
                if before.0.flags & pflags::IMMUTABLE != 0 {
                    assert!(writer.set_attr(change, id, &set).await.is_err(), "{what}");
                    continue;
                }
                writer.set_attr(change, id, &set).await.unwrap_or_else(|why| panic!("{what}: {why}"));
                assert_eq!(writer.view().attr(id).await.unwrap().ctime, at(3), "{what}");
                write_a_byte_again(&writer, change, &before, &Object::new(fs.objset().clone(), id, dnode))
                    .await;
                let after = all_of(&writer.view(), id).await.expect(&what);
                assert!(
                    after == before,
                    "{what}: {:?}, before {:?}",
                    (after.0, after.1),
                    (before.0, before.1)
                );
                touched += 1;
            }
        }
        touched
    });
}

/// Writes a byte with its existing value, and restores the times.
async fn write_a_byte_again(
    writer: &FsWriter,
    change: Change<'_>,
    (attr, _, content): &(Attr, String, Vec<u8>),
    file: &Object,
) {
    let fixed = pflags::READONLY | pflags::APPENDONLY;
    if attr.kind() != FileKind::Regular || content.is_empty() || attr.flags & fixed != 0 {
        return;
    }
    let at = content.len() / 2;
    let byte = bytes::Bytes::copy_from_slice(&content[at..=at]);
    writer.write(change, file.id(), at as u64, byte).await.unwrap();
    let set = SetAttr { mtime: Some(attr.mtime), ..SetAttr::default() };
    writer.set_attr(change, file.id(), &set).await.unwrap();
}

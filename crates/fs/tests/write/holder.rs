//! The holder of a file system keeps files in use and hears of other writers' changes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use cenote_format::units::ObjectId;
use cenote_fs::write::{Changed, Holder, NewFilesystem, RenameMode, SetAttr};
use cenote_fs::{Change, FsOptions};

use crate::scratch::{at, file, on_new};

/// Keeps some files, and records notices.
#[derive(Default)]
struct Mount {
    kept: Mutex<BTreeSet<ObjectId>>,
    freed: Mutex<Vec<ObjectId>>,
    names: Mutex<BTreeSet<(ObjectId, Vec<u8>)>>,
    files: Mutex<BTreeSet<ObjectId>>,
}

impl Holder for Mount {
    fn keeps(&self, file: ObjectId) -> bool {
        self.kept.lock().unwrap().contains(&file)
    }

    fn freed(&self, file: ObjectId) {
        self.freed.lock().unwrap().push(file);
    }

    fn changed(&self, what: Changed<'_>) {
        match what {
            Changed::Name(dir, name) => _ = self.names.lock().unwrap().insert((dir, name.to_vec())),
            Changed::File(file) => _ = self.files.lock().unwrap().insert(file),
        }
    }
}

impl Mount {
    /// Notices since the last call: names in the root, and files.
    fn told(&self) -> (Vec<String>, Vec<ObjectId>) {
        let names = std::mem::take(&mut *self.names.lock().unwrap());
        let files = std::mem::take(&mut *self.files.lock().unwrap());
        let text = |(_, name): (ObjectId, Vec<u8>)| String::from_utf8(name).unwrap();
        (names.into_iter().map(text).collect(), files.into_iter().collect())
    }
}

#[test]
fn a_holder_is_told_what_others_change_and_not_what_it_changes_itself() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let (edit, root) = (fs.live().edit(), fs.root());
        let change = Change { edit: &edit, now: at(5) };
        let mount = Arc::<Mount>::default();
        let weak = Arc::downgrade(&mount);
        let own = fs.clone().held_by(weak);
        let id = own.create(change, root, b"own", &file(0o644)).await.unwrap();
        own.write(change, id, 0, "content".into()).await.unwrap();
        own.rename(change, (root, b"own"), (root, b"f"), RenameMode::Replace).await.unwrap();
        assert_eq!(mount.told(), (vec![], vec![]));

        fs.write(change, id, 0, "other".into()).await.unwrap();
        assert_eq!(mount.told(), (vec![], vec![id]));
        fs.set_attr(change, id, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).await.unwrap();
        assert_eq!(mount.told(), (vec![], vec![id]));
        fs.link(change, id, root, b"g").await.unwrap();
        assert_eq!(mount.told(), (vec!["g".into()], vec![root, id]));
        fs.rename(change, (root, b"f"), (root, b"h"), RenameMode::Replace).await.unwrap();
        assert_eq!(mount.told(), (vec!["f".into(), "h".into()], vec![root, id]));
        fs.unlink(change, root, b"g").await.unwrap();
        assert_eq!(mount.told(), (vec!["g".into()], vec![root, id]));
        fs.create(change, root, b"new", &file(0o644)).await.unwrap();
        assert_eq!(mount.told(), (vec!["new".into()], vec![root]));
    });
}

#[test]
fn what_a_holder_keeps_is_freed_by_nobody_else() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let (edit, root) = (fs.live().edit(), fs.root());
        let change = Change { edit: &edit, now: at(5) };
        let mount = Arc::<Mount>::default();
        let weak = Arc::downgrade(&mount);
        let own = fs.clone().held_by(weak);
        let kept = fs.create(change, root, b"kept", &file(0o644)).await.unwrap();
        let other = fs.create(change, root, b"other", &file(0o644)).await.unwrap();
        let unnamed = own.create_unnamed(change, root, &file(0o644)).await.unwrap();
        mount.kept.lock().unwrap().insert(kept);
        fs.unlink(change, root, b"kept").await.unwrap();
        fs.unlink(change, root, b"other").await.unwrap();
        assert!(fs.free_unlinked(change, kept).await.unwrap(), "nothing is left to do here");
        assert_eq!(fs.drain_delete_queue(change).await.unwrap(), 0);
        assert_eq!(*mount.freed.lock().unwrap(), [other]);
        assert_eq!(fs.view().attr(kept).await.unwrap().links, 0);
        assert!(fs.view().attr(unnamed).await.is_ok(), "it is about to be opened");

        mount.kept.lock().unwrap().clear();
        assert!(own.free_unlinked(change, kept).await.unwrap());
        assert!(own.free_unlinked(change, unnamed).await.unwrap());
        assert!(own.free_unlinked(change, kept).await.unwrap(), "it is gone");
        assert_eq!(*mount.freed.lock().unwrap(), [other, kept, unnamed]);
    });
}

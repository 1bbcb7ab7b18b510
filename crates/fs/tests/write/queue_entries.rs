//! The delete queue frees every file that can be freed, despite bad entries.

use cenote_device::{Device, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::dnode::ObjectType;
use cenote_format::units::ObjectId;
use cenote_fs::attr::{FileKind, pflags};
use cenote_fs::write::{SetXattr, XattrStore};
use cenote_fs::{Change, FsOptions, FsWriter};
use cenote_object::{Zap, ZapEdit};
use cenote_runtime::{Runtime, SimConfig};
use std::sync::Arc;

use crate::intent_log::{DISK, create_on};
use crate::on_disk::POOL;
use crate::scratch::{at, file};

/// Upper bound of object numbers in these tests.
const NUMBERS: u64 = 400;
const XATTRS: usize = 20;

/// A file with a hidden directory in the delete queue, as if the module had been interrupted between freeing
/// the file and its hidden directory.
struct Cut {
    engine: Engine,
    fs: FsWriter,
    queue: ObjectId,
    hidden: ObjectId,
    objects_before: usize,
}

async fn change<T>(engine: &Engine, fs: &FsWriter, work: impl AsyncFnOnce(Change<'_>) -> T) -> T {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    work(Change { edit: &edit, now: at(2) }).await
}

async fn objects(fs: &FsWriter) -> usize {
    let view = fs.live().view();
    let mut count = 0;
    for id in 1..NUMBERS {
        count += usize::from(view.head(ObjectId(id)).await.is_ok());
    }
    count
}

impl Cut {
    async fn new(rt: &Runtime) -> Cut {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", 128 << 20));
        let engine = create_on(rt, &[DISK], |_, _| device.clone()).await;
        let options = FsOptions { xattr: XattrStore::Dir, ..FsOptions::default() };
        let fs = FsWriter::open(engine.dataset(POOL).await.unwrap(), options).await.unwrap();
        let objects_before = objects(&fs).await;
        let f =
            change(&engine, &fs, async |c| fs.create(c, fs.root(), b"f", &file(0o644)).await.unwrap()).await;
        for i in 0..XATTRS {
            let name = format!("user.a{i}");
            let set = async |c: Change<'_>| {
                fs.set_xattr(c, f, name.as_bytes(), Some(&[7; 5000]), SetXattr::Any).await.unwrap();
            };
            change(&engine, &fs, set).await;
        }
        engine.sync_all().await.unwrap();
        let master = Zap::open_id(&fs.live().view(), ObjectId(1)).await.unwrap();
        let queue = ObjectId(master.get_u64("DELETE_QUEUE").await.unwrap().unwrap());
        let mut hidden = ObjectId(0);
        for id in (1..NUMBERS).map(ObjectId) {
            let is_hidden = fs
                .view()
                .attr(id)
                .await
                .is_ok_and(|attr| attr.flags & pflags::XATTR != 0 && attr.kind() == FileKind::Directory);
            hidden = if is_hidden { id } else { hidden };
        }
        change(&engine, &fs, async |c| {
            fs.unlink(c, fs.root(), b"f").await.unwrap();
            ZapEdit::new(c.edit, queue).remove(format!("{:x}", f.0).as_str()).await.unwrap();
            c.edit.destroy(f).await.unwrap();
            ZapEdit::new(c.edit, queue).add(format!("{:x}", hidden.0).as_str(), hidden.0).await.unwrap();
        })
        .await;
        assert_eq!(objects(&fs).await, objects_before + 1 + XATTRS);
        Cut { engine, fs, queue, hidden, objects_before }
    }

    /// Sets LINKS of the hidden directory as `zfs_rmnode` leaves it.
    async fn without_links(&self) {
        change(&self.engine, &self.fs, async |c| {
            let mut bonus = c.edit.view().head(self.hidden).await.unwrap().bonus.to_vec();
            let header = usize::from(u16::from_ne_bytes([bonus[4], bonus[5]]) >> 10) * 8;
            bonus[header + 120..header + 128].fill(0);
            c.edit.set_bonus(self.hidden, ObjectType::SA, bonus.into()).await.unwrap();
        })
        .await;
        assert_eq!(self.fs.view().attr(self.hidden).await.unwrap().links, 0);
    }

    /// Another file in the queue, free to go.
    async fn removed(&self) -> ObjectId {
        change(&self.engine, &self.fs, async |c| {
            self.fs.create(c, self.fs.root(), b"other", &file(0o644)).await.unwrap();
            self.fs.unlink(c, self.fs.root(), b"other").await.unwrap().unwrap()
        })
        .await
    }

    async fn drain(&self) -> Vec<ObjectId> {
        self.fs.free_all_unlinked(&self.engine).await.unwrap();
        self.engine.sync_all().await.unwrap();
        self.fs.view().unlinked().await.unwrap()
    }
}

fn simulate<F: Future>(test: impl FnOnce(Runtime) -> F) {
    Runtime::simulate(SimConfig::default(), test);
}

#[test]
fn a_hidden_directory_in_the_queue_takes_its_files_along() {
    simulate(|rt| async move {
        let cut = Cut::new(&rt).await;
        cut.without_links().await;
        assert_eq!(cut.drain().await, []);
        assert_eq!(objects(&cut.fs).await, cut.objects_before, "nothing is leaked");
    });
}

#[test]
fn an_entry_that_has_links_keeps_no_other_from_being_freed() {
    simulate(|rt| async move {
        let cut = Cut::new(&rt).await;
        let other = cut.removed().await;
        assert_eq!(cut.drain().await, [cut.hidden]);
        assert!(cut.fs.view().attr(other).await.is_err());
        // Later ones too.
        cut.removed().await;
        assert_eq!(cut.drain().await, [cut.hidden]);
    });
}

#[test]
fn an_entry_with_damaged_attributes_keeps_no_other_from_being_freed() {
    simulate(|rt| async move {
        let cut = Cut::new(&rt).await;
        change(&cut.engine, &cut.fs, async |c| {
            c.edit.set_bonus(cut.hidden, ObjectType::SA, vec![0xff; 160].into()).await.unwrap();
        })
        .await;
        let other = cut.removed().await;
        assert_eq!(cut.drain().await, [cut.hidden]);
        assert!(cut.fs.view().attr(other).await.is_err());
    });
}

#[test]
fn an_entry_of_a_file_that_is_gone_leaves_the_queue() {
    simulate(|rt| async move {
        let cut = Cut::new(&rt).await;
        cut.without_links().await;
        change(&cut.engine, &cut.fs, async |c| {
            ZapEdit::new(c.edit, cut.queue).add("12345", 0x12345_u64).await.unwrap();
        })
        .await;
        assert_eq!(cut.drain().await, []);
    });
}

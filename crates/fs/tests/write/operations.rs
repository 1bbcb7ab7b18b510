//! Single operations on a new file system: their effects and refusals.

use bytes::Bytes;
use cenote_format::units::ObjectId;
use cenote_fs::attr::{FileKind, pflags};
use cenote_fs::write::{NewFile, NewFilesystem, NewKind, RenameMode, SetAttr, SetXattr, XattrStore};
use cenote_fs::{
    Attr, CaseSensitivity, Change, FsError, FsOptions, FsWriter, LastLink, Normalization, Refusal,
};

use crate::scratch::{at, dir, file, on_new, pattern};

fn refused<T: std::fmt::Debug>(result: Result<T, FsError>) -> Option<Refusal> {
    result.expect_err("this is refused").refusal()
}

async fn attr(fs: &FsWriter, id: ObjectId) -> Attr {
    fs.view().attr(id).await.unwrap()
}

async fn content(fs: &FsWriter, id: ObjectId) -> Bytes {
    let file = fs.view().open_file(id).await.unwrap();
    file.read(0, file.attr().size).await.unwrap()
}

#[test]
fn a_new_file_system_is_empty_and_opens() {
    on_new(NewFilesystem { with_shares: true, ..Default::default() }, FsOptions::default(), async |fs| {
        let view = fs.view();
        assert_eq!(view.list(fs.root()).await.unwrap(), []);
        assert_eq!(view.unlinked().await.unwrap(), []);
        let root = attr(&fs, fs.root()).await;
        assert_eq!((root.mode, root.size, root.links, root.parent), (0o40755, 2, 2, fs.root()));
        assert_eq!(root.flags, 0x8408_0000_0144, "as zdb shows for the module's");
        let shares = view.master().shares.unwrap();
        assert_eq!(attr(&fs, shares).await.permissions(), 0o555);
        let again = cenote_fs::Filesystem::open(fs.live().view()).await.unwrap();
        assert_eq!(again.root(), fs.root());
    });
}

#[test]
fn files_of_all_kinds_come_and_go() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let long = vec![b'x'; 3000];
        let kinds: [(NewKind<'_>, FileKind); 8] = [
            (NewKind::Regular, FileKind::Regular),
            (NewKind::Directory, FileKind::Directory),
            (NewKind::Symlink(b"to/somewhere"), FileKind::Symlink),
            (NewKind::Symlink(&long), FileKind::Symlink),
            (NewKind::Fifo, FileKind::Fifo),
            (NewKind::Socket, FileKind::Socket),
            (NewKind::CharDevice(5, 1), FileKind::CharDevice),
            (NewKind::BlockDevice(259, 70_000), FileKind::BlockDevice),
        ];
        for (i, (kind, shown)) in kinds.into_iter().enumerate() {
            let name = format!("file {i}");
            let new = NewFile { kind, ..file(0o4751) };
            let id = fs.create(change, fs.root(), name.as_bytes(), &new).await.unwrap();
            let entry = fs.lookup(fs.root(), name.as_bytes()).await.unwrap().unwrap();
            assert_eq!((entry.object, entry.kind), (id, Some(shown)));
            let attr = attr(&fs, id).await;
            assert_eq!((attr.kind(), attr.permissions(), attr.owner()), (shown, 0o4751, (1000, 100)));
            assert_eq!((attr.parent, attr.mtime, attr.generation), (fs.root(), at(5), 1 << 40));
            match kind {
                NewKind::Symlink(target) => assert_eq!(fs.view().read_link(id).await.unwrap(), target),
                NewKind::CharDevice(major, minor) | NewKind::BlockDevice(major, minor) => {
                    assert_eq!(attr.device(), (major, minor));
                }
                _ => {}
            }
            assert_eq!(
                refused(fs.create(change, fs.root(), name.as_bytes(), &new).await),
                Some(Refusal::Exists)
            );
        }
        let root = attr(&fs, fs.root()).await;
        assert_eq!((root.size, root.links), (10, 3));
        for i in 0..8 {
            let name = format!("file {i}");
            let gone = match i {
                1 => {
                    let wrong = fs.unlink(change, fs.root(), name.as_bytes()).await;
                    assert_eq!(refused(wrong), Some(Refusal::IsDirectory));
                    fs.rmdir(change, fs.root(), name.as_bytes()).await.unwrap()
                }
                _ => {
                    let wrong = fs.rmdir(change, fs.root(), name.as_bytes()).await;
                    assert_eq!(refused(wrong), Some(Refusal::NotDirectory));
                    fs.unlink(change, fs.root(), name.as_bytes()).await.unwrap().unwrap()
                }
            };
            assert_eq!(fs.view().unlinked().await.unwrap(), [gone]);
            assert_eq!(attr(&fs, gone).await.links, 0, "it still exists for whoever has it open");
            assert!(fs.free_unlinked(change, gone).await.unwrap());
            assert!(fs.view().attr(gone).await.is_err());
            assert_eq!(fs.view().unlinked().await.unwrap(), []);
        }
        let root = attr(&fs, fs.root()).await;
        assert_eq!((root.size, root.links), (2, 2));
    });
}

#[test]
fn names_that_cannot_be_are_refused() {
    on_new(NewFilesystem { utf8_only: true, ..Default::default() }, FsOptions::default(), async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let create = async |name: &[u8]| fs.create(change, fs.root(), name, &file(0o644)).await;
        assert_eq!(refused(create(b"..").await), Some(Refusal::Exists));
        assert_eq!(refused(create(b"a/b").await), Some(Refusal::Invalid));
        assert_eq!(refused(create(b"\xff").await), Some(Refusal::BadText));
        assert_eq!(refused(create(&[b'n'; 256]).await), Some(Refusal::NameTooLong));
        create(&[b'n'; 255]).await.unwrap();
        fs.set_options(FsOptions { long_names: true, ..fs.options() });
        create(&[b'n'; 1023]).await.unwrap();
        assert_eq!(fs.list(fs.root()).await.unwrap().len(), 2);
        let missing = fs.create(change, ObjectId(77_777), b"x", &file(0o644)).await;
        assert_eq!(refused(missing), Some(Refusal::NotFound));
        let plain = fs.lookup(fs.root(), &[b'n'; 255]).await.unwrap().unwrap().object;
        assert_eq!(refused(fs.create(change, plain, b"x", &file(0o644)).await), Some(Refusal::NotDirectory));
    });
}

#[test]
fn names_are_the_same_as_case_and_normalization_say() {
    let new = NewFilesystem {
        case: CaseSensitivity::Insensitive,
        normalization: Normalization::FormD,
        ..Default::default()
    };
    on_new(new, FsOptions::default(), async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let root = fs.root();
        let id = fs.create(change, root, "Stra\u{e9}e".as_bytes(), &file(0o644)).await.unwrap();
        let other = "STRAE\u{301}E".as_bytes();
        assert_eq!(fs.lookup(root, other).await.unwrap().unwrap().object, id);
        assert_eq!(refused(fs.create(change, root, other, &file(0o644)).await), Some(Refusal::Exists));
        fs.rename(change, (root, other), (root, b"strasse"), RenameMode::Replace).await.unwrap();
        fs.rename(change, (root, b"STRASSE"), (root, b"Strasse"), RenameMode::Replace).await.unwrap();
        let names: Vec<_> = fs.list(root).await.unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, [&b"Strasse"[..]], "the spelling changes");
        fs.unlink(change, root, b"sTRASSE").await.unwrap();
        assert_eq!(attr(&fs, root).await.size, 2);
    });
}

#[test]
fn a_directory_never_comes_to_lie_in_itself() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let root = fs.root();
        let a = fs.create(change, root, b"a", &dir(0o755)).await.unwrap();
        let b = fs.create(change, a, b"b", &dir(0o755)).await.unwrap();
        let c = fs.create(change, b, b"c", &dir(0o755)).await.unwrap();
        let into_itself = fs.rename(change, (root, b"a"), (c, b"a"), RenameMode::Replace).await;
        assert_eq!(refused(into_itself), Some(Refusal::Invalid));
        let over_above = fs.rename(change, (b, b"c"), (root, b"a"), RenameMode::Replace).await;
        assert_eq!(refused(over_above), Some(Refusal::NotEmpty));
        let swap = fs.rename(change, (b, b"c"), (root, b"a"), RenameMode::Exchange).await;
        assert_eq!(refused(swap), Some(Refusal::Invalid));
        assert_eq!(refused(fs.rmdir(change, root, b"a").await), Some(Refusal::NotEmpty));
        fs.rename(change, (b, b"c"), (root, b"c"), RenameMode::NoReplace).await.unwrap();
        fs.rename(change, (root, b"a"), (c, b"a"), RenameMode::Replace).await.unwrap();
        assert_eq!(fs.view().resolve(b"c/a/b", LastLink::Keep).await.unwrap(), b);
        assert_eq!(fs.view().path_of(b).await.unwrap(), b"c/a/b");
        let links = [attr(&fs, root).await.links, attr(&fs, a).await.links, attr(&fs, c).await.links];
        assert_eq!(links, [3, 3, 3]);
    });
}

#[test]
fn blocks_grow_with_the_file_up_to_the_record_size() {
    for record_bytes in [512, 4096, 128 << 10, 1 << 20, 16 << 20] {
        let options = FsOptions { record_bytes, ..FsOptions::default() };
        on_new(NewFilesystem::default(), options, async |fs| {
            let edit = fs.live().edit();
            let change = Change { edit: &edit, now: at(5) };
            let id = fs.create(change, fs.root(), b"f", &file(0o644)).await.unwrap();
            let mut expected = Vec::new();
            for (i, len) in [100, 412, 1, 3000, 70_000, 600_000].into_iter().enumerate() {
                let data = pattern(i as u64, len);
                fs.write(change, id, expected.len() as u64, data.clone()).await.unwrap();
                expected.extend_from_slice(&data);
                let attr = attr(&fs, id).await;
                assert_eq!(attr.size, expected.len() as u64);
                let wanted = expected.len().next_multiple_of(512).min(record_bytes as usize);
                assert_eq!(attr.block_bytes as usize, wanted, "record {record_bytes}, size {}", attr.size);
            }
            assert!(content(&fs, id).await == expected, "record {record_bytes}");
            let truncate = async |size| {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.set_attr(change, id, &set).await.unwrap();
            };
            truncate(70_001).await;
            truncate(200_000).await;
            expected.truncate(70_001);
            expected.resize(200_000, 0);
            assert!(content(&fs, id).await == expected, "what was cut off stays cut off");
            fs.punch(change, id, 1000..150_000).await.unwrap();
            expected[1000..150_000].fill(0);
            assert!(content(&fs, id).await == expected);
            fs.zero_range(change, id, 199_000..300_000).await.unwrap();
            expected.truncate(199_000);
            expected.resize(300_000, 0);
            assert!(content(&fs, id).await == expected);
        });
    }
}

#[test]
fn a_block_that_is_written_whole_is_not_copied() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let id = fs.create(change, fs.root(), b"f", &file(0o644)).await.unwrap();
        // With the first a file gets blocks of its record size.
        fs.write(change, id, 0, pattern(8, 256 << 10)).await.unwrap();
        let data = pattern(9, 128 << 10);
        fs.write(change, id, 128 << 10, data.clone()).await.unwrap();
        let object = edit.view().object(id).await.unwrap();
        let (block, _) = object.read_block(cenote_format::units::BlockId(1)).await.unwrap();
        assert_eq!(block.as_ptr(), data.as_ptr());
    });
}

#[test]
fn extended_attributes_are_where_they_fit() {
    for xattr in [XattrStore::Sa, XattrStore::Dir] {
        on_new(NewFilesystem::default(), FsOptions { xattr, ..FsOptions::default() }, async |fs| {
            let edit = fs.live().edit();
            let change = Change { edit: &edit, now: at(5) };
            let id = fs.create(change, fs.root(), b"f", &file(0o644)).await.unwrap();
            let mut expected = std::collections::BTreeMap::new();
            for (i, len) in [0, 10, 200, 3000, 20_000, 30_000, 40_000, 65_536].into_iter().enumerate() {
                let (name, value) = (format!("user.number{i}"), pattern(i as u64, len));
                fs.set_xattr(change, id, name.as_bytes(), Some(&value), SetXattr::Create).await.unwrap();
                expected.insert(name, value);
            }
            let check = async |expected: &std::collections::BTreeMap<String, Bytes>| {
                let all = fs.view().xattrs(id).await.unwrap();
                let all: std::collections::BTreeMap<_, _> =
                    all.into_iter().map(|x| (String::from_utf8(x.name.to_vec()).unwrap(), x.value)).collect();
                assert!(all == *expected);
            };
            check(&expected).await;
            let set = async |name: &str, value: Option<&[u8]>, how| {
                fs.set_xattr(change, id, name.as_bytes(), value, how).await
            };
            assert_eq!(
                refused(set("user.number1", Some(b""), SetXattr::Create).await),
                Some(Refusal::Exists)
            );
            assert_eq!(refused(set("user.none", Some(b""), SetXattr::Replace).await), Some(Refusal::NoData));
            assert_eq!(refused(set("user.none", None, SetXattr::Any).await), Some(Refusal::NoData));
            set("user.number7", Some(b"short"), SetXattr::Replace).await.unwrap();
            set("user.number1", Some(&pattern(1, 50_000)), SetXattr::Any).await.unwrap();
            expected.insert("user.number7".into(), Bytes::from_static(b"short"));
            expected.insert("user.number1".into(), pattern(1, 50_000));
            check(&expected).await;
            for i in [4, 5, 3, 2] {
                let name = format!("user.number{i}");
                set(&name, None, SetXattr::Any).await.unwrap();
                expected.remove(&name);
            }
            check(&expected).await;
            assert!(!attr(&fs, id).await.has_spill, "what is left fits into the bonus");
            let gone = fs.unlink(change, fs.root(), b"f").await.unwrap().unwrap();
            assert!(fs.free_unlinked(change, gone).await.unwrap());
            let (_, files) = count(&fs).await;
            assert_eq!(files, 1, "only the root is left");
        });
    }
}

/// Number of objects in a file system, and how many are files.
async fn count(fs: &FsWriter) -> (usize, usize) {
    let (mut all, mut files) = (0, 0);
    for id in (1..400).map(ObjectId) {
        if let Ok(dnode) = fs.live().view().dnode(id).await {
            all += 1;
            files += usize::from(cenote_fs::Filesystem::is_file(&dnode));
        }
    }
    (all, files)
}

#[test]
fn what_may_not_change_does_not() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let root = fs.root();
        let id = fs.create(change, root, b"f", &file(0o644)).await.unwrap();
        fs.write(change, id, 0, Bytes::from_static(b"abc")).await.unwrap();
        let flags = async |set_flags, clear_flags| {
            let set = SetAttr { set_flags, clear_flags, ..SetAttr::default() };
            fs.set_attr(change, id, &set).await.unwrap();
        };
        let denied = Some(Refusal::NotPermitted);
        flags(pflags::IMMUTABLE, 0).await;
        assert_eq!(refused(fs.write(change, id, 0, Bytes::from_static(b"x")).await), denied);
        assert_eq!(refused(fs.unlink(change, root, b"f").await), denied);
        assert_eq!(refused(fs.link(change, id, root, b"g").await), denied);
        let moved = fs.rename(change, (root, b"f"), (root, b"g"), RenameMode::Replace).await;
        assert_eq!(refused(moved), denied);
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        assert_eq!(refused(fs.set_attr(change, id, &mode).await), denied);
        let attribute = fs.set_xattr(change, id, b"user.x", Some(b""), SetXattr::Any).await;
        assert_eq!(refused(attribute), denied);
        flags(pflags::APPENDONLY, pflags::IMMUTABLE).await;
        assert_eq!(refused(fs.write(change, id, 2, Bytes::from_static(b"x")).await), denied);
        fs.write(change, id, 3, Bytes::from_static(b"def")).await.unwrap();
        let size = SetAttr { size: Some(1), ..SetAttr::default() };
        assert_eq!(refused(fs.set_attr(change, id, &size).await), denied);
        assert_eq!(&content(&fs, id).await[..], b"abcdef");
        flags(0, pflags::APPENDONLY).await;
        fs.unlink(change, root, b"f").await.unwrap();
    });
}

#[test]
fn a_file_system_knows_that_no_file_has_extended_attributes_until_one_has() {
    for xattr in [XattrStore::Sa, XattrStore::Dir] {
        on_new(NewFilesystem::default(), FsOptions { xattr, ..FsOptions::default() }, async |fs| {
            let edit = fs.live().edit();
            let change = Change { edit: &edit, now: at(5) };
            let made = async |name: &[u8]| fs.create(change, fs.root(), name, &file(0o644)).await.unwrap();
            let (id, other) = (made(b"f").await, made(b"g").await);
            assert!(fs.view().lacks_xattrs());
            assert_eq!(fs.view().xattr(id, b"user.a").await.unwrap(), None);
            fs.set_xattr(change, id, b"user.a", Some(b"1"), SetXattr::Any).await.unwrap();
            assert!(!fs.view().lacks_xattrs());
            assert_eq!(fs.view().xattr(id, b"user.a").await.unwrap().as_deref(), Some(&b"1"[..]));
            assert_eq!(fs.view().xattr(other, b"user.a").await.unwrap(), None);
            let again = cenote_fs::Filesystem::open(fs.live().view()).await.unwrap();
            assert!(!again.lacks_xattrs());
        });
    }
    // Its znodes would not show in any layout.
    on_new(NewFilesystem { version: Some(4), ..Default::default() }, FsOptions::default(), async |fs| {
        assert!(!fs.view().lacks_xattrs());
    });
}

#[test]
fn attributes_of_several_files_are_those_of_each() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let mut ids = vec![fs.root(), ObjectId(1 << 40), ObjectId(0)];
        for n in 0..70 {
            let name = format!("file {n}");
            let id = fs.create(change, fs.root(), name.as_bytes(), &file(0o600 + n)).await.unwrap();
            fs.write(change, id, 0, pattern(1, n as usize)).await.unwrap();
            ids.insert(n as usize / 2, id);
        }
        ids.push(ids[3]);
        let view = fs.view();
        for (&id, found) in ids.iter().zip(view.attrs(&ids).await) {
            assert_eq!(found.ok(), view.attr(id).await.ok(), "{id:?}");
        }
    });
}

#[test]
fn only_changes_of_content_leave_the_number_of_blocks_open() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let id = fs.create(change, fs.root(), b"f", &file(0o644)).await.unwrap();
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        fs.set_attr(change, id, &set).await.unwrap();
        let is_open = |id| fs.view().objset().has_changed_blocks(id);
        assert!(!is_open(id) && is_open(fs.root()));
        fs.write(change, id, 0, pattern(1, 10)).await.unwrap();
        assert!(is_open(id));
    });
}

#[test]
fn posix_acls_and_modes_follow_each_other() {
    on_new(NewFilesystem::default(), FsOptions { posix_acl: true, ..FsOptions::default() }, async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let entry = |tag: u16, permissions: u16, id: u32| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let acl = |mask| {
            let none = u32::MAX;
            let entries = [entry(1, 7, none), entry(2, 6, 1000), entry(4, 5, none), entry(16, mask, none)];
            [vec![2, 0, 0, 0], entries.concat(), entry(32, 0, none)].concat()
        };
        let root = fs.root();
        let parent = fs.create(change, root, b"d", &dir(0o755)).await.unwrap();
        fs.set_xattr(change, parent, b"system.posix_acl_default", Some(&acl(7)), SetXattr::Any)
            .await
            .unwrap();
        let id = fs.create(change, parent, b"f", &NewFile { umask: 0o77, ..file(0o664) }).await.unwrap();
        assert_eq!(attr(&fs, id).await.permissions(), 0o660, "the default ACL counts, not the umask");
        let access = async || fs.view().xattr(id, b"system.posix_acl_access").await.unwrap();
        // The owner's entry lost its execute right, since the mode asked for none.
        let expected = [vec![2, 0, 0, 0], entry(1, 6, u32::MAX), acl(6)[12..].to_vec()].concat();
        assert_eq!(access().await.as_deref(), Some(&expected[..]));
        let set = SetAttr { mode: Some(0o740), ..SetAttr::default() };
        fs.set_attr(change, id, &set).await.unwrap();
        assert_eq!(access().await.as_deref(), Some(&acl(4)[..]));
        let minimal = [vec![2, 0, 0, 0], entry(1, 6, 0), entry(4, 4, 0), entry(32, 4, 0)].concat();
        fs.set_xattr(change, id, b"system.posix_acl_access", Some(&minimal), SetXattr::Any).await.unwrap();
        assert_eq!(access().await, None, "it says no more than the mode");
        assert_eq!(attr(&fs, id).await.permissions(), 0o644);
        let sub = fs.create(change, parent, b"sub", &dir(0o777)).await.unwrap();
        let inherited = fs.view().xattr(sub, b"system.posix_acl_default").await.unwrap();
        assert_eq!(inherited.as_deref(), Some(&acl(7)[..]));
    });
}

#[test]
fn the_delete_queue_is_drained_in_steps() {
    on_new(NewFilesystem::default(), FsOptions { record_bytes: 512, ..FsOptions::default() }, async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let large = fs.create(change, fs.root(), b"large", &file(0o644)).await.unwrap();
        for i in 0..3 {
            fs.write(change, large, i << 26, pattern(i, 1000)).await.unwrap();
        }
        fs.create(change, fs.root(), b"small", &file(0o644)).await.unwrap();
        fs.unlink(change, fs.root(), b"large").await.unwrap();
        fs.unlink(change, fs.root(), b"small").await.unwrap();
        let mut steps = 0;
        while fs.drain_delete_queue(change).await.unwrap() != 0 {
            steps += 1;
        }
        assert_eq!(steps, 2);
        assert_eq!(fs.view().unlinked().await.unwrap(), []);
        assert!(fs.view().attr(large).await.is_err());
    });
}

#[test]
fn large_dnodes_hold_more() {
    on_new(NewFilesystem::default(), FsOptions { dnode_slots: 2, ..FsOptions::default() }, async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let id = fs.create(change, fs.root(), b"f", &file(0o644)).await.unwrap();
        fs.set_xattr(change, id, b"user.a", Some(&[1; 500]), SetXattr::Any).await.unwrap();
        let attr = attr(&fs, id).await;
        assert_eq!((attr.dnode_slots, attr.has_spill), (2, false));
    });
}

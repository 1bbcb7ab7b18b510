//! Forged attributes damage only their file.

use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::sa::{SaReader, SaValues, ZplAttr, encode_sa};
use cenote_format::units::ObjectId;
use cenote_fs::write::{NewFilesystem, SetXattr, XattrStore};
use cenote_fs::{Change, FsOptions, FsWriter};

use crate::scratch::{at, file, on_new};

/// Sets an attribute to a value that no operation would produce.
async fn forge(fs: &FsWriter, id: ObjectId, attr: ZplAttr, value: &[u8]) {
    let view = fs.view();
    let registry = view.sa_registry();
    let dnode = view.objset().dnode(id).await.unwrap();
    let mut values = SaValues::new();
    values.extend(registry, &SaReader::new(registry, dnode.bonus()).unwrap()).unwrap();
    values.set(registry.number_of(attr).unwrap(), value);
    let numbers = values.numbers();
    let layout = registry.find_layout(&numbers).expect("one that is there");
    let bonus = encode_sa(registry, layout, &values.values(0..numbers.len()), Endian::NATIVE).unwrap();
    fs.live().edit().set_bonus(id, ObjectType::SA, bonus.into()).await.unwrap();
}

#[test]
fn what_is_no_hidden_directory_is_not_freed() {
    on_new(
        NewFilesystem::default(),
        FsOptions { xattr: XattrStore::Dir, ..FsOptions::default() },
        async |fs| {
            let edit = fs.live().edit();
            let change = Change { edit: &edit, now: at(5) };
            let root = fs.root();
            let other = fs.create(change, root, b"other", &file(0o644)).await.unwrap();
            let id = fs.create(change, root, b"f", &file(0o644)).await.unwrap();
            fs.set_xattr(change, id, b"user.x", Some(b"value"), SetXattr::Any).await.unwrap();
            fs.unlink(change, root, b"f").await.unwrap();
            for lie in [root, other, ObjectId(1), id, ObjectId(1 << 40)] {
                forge(&fs, id, ZplAttr::Xattr, &lie.0.to_ne_bytes()).await;
                assert!(fs.free_unlinked(change, id).await.is_err());
                assert!(fs.set_xattr(change, id, b"user.x", None, SetXattr::Any).await.is_err());
                assert_eq!(fs.list(root).await.unwrap().len(), 1);
                assert_eq!(fs.view().attr(other).await.unwrap().links, 1);
                assert_eq!(fs.view().unlinked().await.unwrap(), [id], "it stays in the queue");
            }
        },
    );
}

#[test]
fn an_acl_that_is_shorter_than_it_says_is_damage() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(5) };
        let id = fs.create(change, fs.root(), b"f", &file(0o644)).await.unwrap();
        forge(&fs, id, ZplAttr::DaclCount, &u64::MAX.to_ne_bytes()).await;
        let set = cenote_fs::write::SetAttr { mode: Some(0o600), ..Default::default() };
        assert!(fs.set_attr(change, id, &set).await.unwrap_err().is_damage());
    });
}

//! Attributes are byte for byte those of the module: golden files are repacked and recreated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote_engine::OpenDataset;
use cenote_format::blkptr::BLKPTR_BYTES;
use cenote_format::bytes::Endian;
use cenote_format::dnode::{DnodeHead, ObjectType};
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::sa::{SaReader, SaRegistry, SaValues, ZplAttr, encode_sa};
use cenote_format::units::ObjectId;
use cenote_format::znode::{AclForm, decode_aces};
use cenote_fs::attr::{FileKind, pflags};
use cenote_fs::write::{NewFile, NewKind, SetAttr, SetXattr};
use cenote_fs::{Attr, Change, Filesystem, FsOptions, FsWriter};
use cenote_object::{LiveObjset, Object};

use crate::common::each_filesystem;
use crate::scratch::{TXG, at};

/// How many files of each type are recreated in each file system.
const PER_KIND: usize = 40;

async fn files(fs: &Filesystem) -> Vec<Object> {
    let mut all = Vec::new();
    let mut dnodes = fs.objset().dnodes(ObjectId(1), fs.objset().last_object());
    while let Some(batch) = dnodes.next_batch().await {
        // Damaged pools have unreadable blocks of dnodes.
        let Ok(batch) = batch else { continue };
        let sa = batch.dnodes.into_iter().filter(|(_, dnode)| dnode.bonus_type == ObjectType::SA);
        all.extend(sa.map(|(id, dnode)| Object::new(fs.objset().clone(), id, dnode)));
    }
    all
}

async fn values(registry: &SaRegistry, object: &Object) -> Option<SaValues> {
    let mut values = SaValues::new();
    values.extend(registry, &SaReader::new(registry, object.dnode().bonus()).unwrap()).unwrap();
    if let Some((_, spill)) = object.read_spill().await.ok()? {
        values.extend(registry, &SaReader::new(registry, &spill).unwrap()).unwrap();
    }
    Some(values)
}

#[test]
fn attributes_are_packed_as_the_module_packs_them() {
    each_filesystem(async |name, fs| {
        let registry = fs.sa_registry();
        let mut compared = 0;
        for object in files(fs).await {
            let dnode = object.dnode();
            let Some(values) = values(registry, &object).await else { continue };
            let room = DnodeHead::bonus_room(dnode.slots, dnode.blkptr_count);
            let count = values.bonus_count(registry, room);
            let numbers = values.numbers();
            let layout = registry.find_layout(&numbers[..count]).expect("a layout of the file system");
            let bonus = encode_sa(registry, layout, &values.values(0..count), Endian::NATIVE).unwrap();
            assert_eq!(dnode.bonus()[..bonus.len()], bonus, "{name} object {}", object.id());
            let has_spill = count < numbers.len();
            assert_eq!(dnode.spill().is_some(), has_spill, "{name} object {}", object.id());
            let length = if has_spill { room - BLKPTR_BYTES } else { bonus.len() };
            assert_eq!(dnode.bonus().len(), length, "{name} object {}", object.id());
            if has_spill {
                let layout = registry.find_layout(&numbers[count..]).expect("a layout of the file system");
                let spill = encode_sa(registry, layout, &values.values(count..numbers.len()), Endian::NATIVE)
                    .unwrap();
                let (_, theirs) = object.read_spill().await.unwrap().unwrap();
                assert_eq!(theirs[..spill.len()], spill, "{name} object {}", object.id());
                // A spill block does not shrink.
                assert!(
                    theirs.len() >= spill.len() && theirs.len().is_multiple_of(512),
                    "{name} object {}",
                    object.id()
                );
            }
            compared += 1;
        }
        compared
    });
}

#[test]
fn files_made_again_have_the_modules_attributes() {
    each_filesystem(async |name, fs| {
        let live = LiveObjset::new(fs.objset().clone(), TXG);
        let options = FsOptions { posix_acl: true, ..FsOptions::default() };
        let Ok(writer) = FsWriter::open(OpenDataset::without_log(live), options).await else { return 0 };
        let mut seen = BTreeMap::<FileKind, usize>::new();
        let mut compared = 0;
        for object in files(fs).await {
            let Ok(attr) = fs.attr_of(&object).await else { continue };
            let Some(theirs) = values(fs.sa_registry(), &object).await else { continue };
            let count = seen.entry(attr.kind()).or_default();
            let number = fs.sa_registry().number_of(ZplAttr::Xattr);
            let has_xattr_dir = number.is_some_and(|number| theirs.get(number).is_some());
            // Files from before an upgrade lack the flag that all new files have.
            let is_upgraded = attr.flags & pflags::AV_MODIFIED == 0;
            if is_upgraded
                || attr.is_xattr()
                || has_xattr_dir
                || object.id() == fs.root()
                || *count == PER_KIND
            {
                continue;
            }
            *count += 1;
            let ours = make_again(&writer, fs, &attr, &theirs, object.id()).await;
            let known = same_as_module(&ours, theirs, fs.sa_registry());
            assert!(known.is_ok(), "{name} object {}: {}", object.id(), known.unwrap_err());
            compared += 1;
        }
        compared
    });
}

#[test]
fn changes_are_counted_where_a_later_module_counts_them() {
    let changed = AtomicUsize::new(0);
    each_filesystem(async |name, fs| {
        let Some(number) = fs.sa_registry().number_of_changes() else { return 0 };
        let live = LiveObjset::new(fs.objset().clone(), TXG);
        let writer = FsWriter::open(OpenDataset::without_log(live), FsOptions::default()).await.unwrap();
        let count = |values: &SaValues| {
            let value = values.get(number).and_then(|value| value.first_chunk());
            value.map(|value| u64::from_ne_bytes(*value))
        };
        let edit = writer.live().edit();
        let mut compared = 0;
        for object in files(fs).await {
            let Some(before) = values(fs.sa_registry(), &object).await.and_then(|all| count(&all)) else {
                continue;
            };
            let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
            writer.set_attr(Change { edit: &edit, now: at(1) }, object.id(), &set).await.unwrap();
            let after = edit.view().object(object.id()).await.unwrap();
            let after = values(writer.view().sa_registry(), &after).await.unwrap();
            assert_eq!(count(&after), Some(before + 1), "{name} object {}", object.id());
            compared += 1;
        }
        changed.fetch_add(compared, Ordering::Relaxed);
        compared
    });
    assert!(changed.into_inner() > 0, "no golden pool has such counts");
}

/// Creates a file in the root directory like another one, and reads its attributes.
async fn make_again(
    writer: &FsWriter,
    fs: &Filesystem,
    attr: &Attr,
    theirs: &SaValues,
    id: ObjectId,
) -> SaValues {
    let target = if attr.kind() == FileKind::Symlink { fs.read_link(id).await.unwrap() } else { Vec::new() };
    let (major, minor) = attr.device();
    let kind = match attr.kind() {
        FileKind::Directory => NewKind::Directory,
        FileKind::Symlink => NewKind::Symlink(&target),
        FileKind::Fifo => NewKind::Fifo,
        FileKind::Socket => NewKind::Socket,
        FileKind::CharDevice => NewKind::CharDevice(major, minor),
        FileKind::BlockDevice => NewKind::BlockDevice(major, minor),
        _ => NewKind::Regular,
    };
    let edit = writer.live().edit();
    let change = Change { edit: &edit, now: at(1) };
    let mut options = writer.options();
    options.dnode_slots = attr.dnode_slots;
    options.projects = attr.flags & pflags::PROJID != 0;
    writer.set_options(options);
    let new = NewFile { kind, mode: attr.permissions(), umask: 0, uid: attr.uid, gid: attr.gid };
    let name = format!("made again {id}");
    let made = writer.create(change, writer.root(), name.as_bytes(), &new).await.unwrap();
    let number = fs.sa_registry().number_of(ZplAttr::Dxattr);
    if let Some(list) = number.and_then(|number| theirs.get(number)) {
        let list = Nvlist::decode(list).unwrap();
        if list.is_empty() {
            // Its attributes were removed again.
            for value in [Some(&b"gone"[..]), None] {
                writer.set_xattr(change, made, b"user.gone", value, SetXattr::Any).await.unwrap();
            }
        }
        for (name, value) in list.iter() {
            let NvValue::ByteArray(value) = value else { continue };
            writer.set_xattr(change, made, name.as_bytes(), Some(value), SetXattr::Create).await.unwrap();
        }
    }
    if attr.project != 0 {
        let set = SetAttr { project: Some(attr.project as u32), ..SetAttr::default() };
        writer.set_attr(change, made, &set).await.unwrap();
    }
    let set = SetAttr { set_flags: attr.flags, ..SetAttr::default() };
    writer.set_attr(change, made, &set).await.unwrap();
    let object = edit.view().object(made).await.unwrap();
    values(writer.view().sa_registry(), &object).await.unwrap()
}

/// Compares values that do not depend on time and location, and the order of all.
fn same_as_module(ours: &SaValues, theirs: SaValues, registry: &SaRegistry) -> Result<(), String> {
    use ZplAttr::{Atime, Crtime, Ctime, DaclAces, DaclCount, Flags, Gen, Links, Mtime, Parent, Size};
    let mut free = vec![Atime, Crtime, Ctime, Gen, Links, Mtime, Parent, Size];
    if !spells_its_mode(&theirs, registry) {
        // Under `acltype=posix` the module applies umask and POSIX ACL to the mode but not to the ZFS ACL; we
        // apply them to both.
        free.extend([DaclCount, DaclAces, Flags]);
    }
    let free: Vec<u16> = free.iter().filter_map(|attr| registry.number_of(*attr)).collect();
    // A count of changes that later modules give to new files.
    let mut known = theirs.numbers();
    known.retain(|number| Some(*number) != registry.number_of_changes());
    if ours.numbers() != known {
        return Err(format!("order {:?}, the module's {known:?}", ours.numbers()));
    }
    for number in ours.numbers().into_iter().filter(|number| !free.contains(number)) {
        if ours.get(number) != theirs.get(number) {
            let name = &registry.attribute(number).unwrap().name;
            return Err(format!("{name} {:x?}, the module's {:x?}", ours.get(number), theirs.get(number)));
        }
    }
    Ok(())
}

/// Whether the last three entries of the ACL, of owner, group and everyone, express the mode.
fn spells_its_mode(values: &SaValues, registry: &SaRegistry) -> bool {
    let word = |attr| {
        let value = values.get(registry.number_of(attr).unwrap()).unwrap();
        u64::from_ne_bytes(*value.first_chunk().unwrap())
    };
    let entries = values.get(registry.number_of(ZplAttr::DaclAces).unwrap()).unwrap();
    let count = word(ZplAttr::DaclCount) as usize;
    let entries = decode_aces(AclForm::Fuid, entries, count, Endian::NATIVE).unwrap();
    let bits = |mask: u32| (mask & 1) << 2 | (mask & 2) | (mask >> 5 & 1);
    let spelled = entries[count - 3..].iter().fold(0, |mode, ace| mode << 3 | bits(ace.mask));
    word(ZplAttr::Mode) as u32 & 0o777 == spelled
}

//! A dnode's bonus (and spill block), by its declared type.

use cenote_format::Phys;
use cenote_format::bpobj::BpobjPhys;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::deadlist::DeadlistPhys;
use cenote_format::dsl::{DslDatasetPhys, DslDirPhys};
use cenote_format::history::HistoryPhys;
use cenote_format::nvlist::Nvlist;
use cenote_format::sa::{SaReader, SaRegistry, ZplAttr};
use cenote_format::space_map::SpaceMapPhys;
use cenote_format::znode::{AclForm, ZnodePhys, decode_aces};
use cenote_object::Object;

use super::label::record;
use super::{Sink, Value, failure, nvlist};

/// Shows an object's bonus. System attributes need their file system's registry.
pub(super) async fn show(sink: &mut dyn Sink, object: &Object, registry: Option<&SaRegistry>) {
    let dnode = object.dnode();
    let (bytes, endian) = (dnode.bonus(), dnode.endian());
    if bytes.is_empty() {
        return;
    }
    match dnode.bonus_type {
        ObjectType::DSL_DIR => words::<DslDirPhys>(sink, bytes, endian),
        ObjectType::DSL_DATASET => words::<DslDatasetPhys>(sink, bytes, endian),
        ObjectType::BPOBJ_HDR => words::<BpobjPhys>(sink, bytes, endian),
        ObjectType::DEADLIST_HDR => words::<DeadlistPhys>(sink, bytes, endian),
        ObjectType::SPACE_MAP_HEADER => words::<SpaceMapPhys>(sink, bytes, endian),
        ObjectType::SPA_HISTORY_OFFSETS => words::<HistoryPhys>(sink, bytes, endian),
        ObjectType::ZNODE => match ZnodePhys::decode(bytes, endian) {
            Ok(znode) => show_znode(sink, &znode),
            Err(error) => failure(sink, &error),
        },
        ObjectType::SA => match registry {
            Some(registry) => show_attributes(sink, object, registry).await,
            None => sink.field("bonus", Value::Raw(bytes.to_vec())),
        },
        ObjectType::PACKED_NVLIST_SIZE | ObjectType::FUID_SIZE => {
            let size = bytes.first_chunk::<8>().map(|word| endian.u64(*word));
            sink.field("size", size.map_or(Value::None, Value::Size));
        }
        _ => sink.field("bonus", Value::Raw(bytes.to_vec())),
    }
}

fn words<P: Phys>(sink: &mut dyn Sink, bytes: &[u8], endian: Endian) {
    match P::decode(bytes, endian) {
        Ok(value) => record(sink, P::WHAT, &value),
        Err(error) => failure(sink, &error),
    }
}

fn show_znode(sink: &mut dyn Sink, znode: &ZnodePhys) {
    let fields = &znode.fields;
    sink.open("znode");
    let times = [fields.atime, fields.mtime, fields.ctime, fields.crtime];
    for (name, time) in ["atime", "mtime", "ctime", "crtime"].into_iter().zip(times) {
        sink.field(name, Value::Time(time.seconds));
    }
    sink.field("gen", fields.generation.0.into());
    sink.field("mode", Value::Text(format!("{:o}", fields.mode)));
    sink.field("size", Value::Size(fields.size));
    sink.field("parent", fields.parent.0.into());
    sink.field("links", fields.links.into());
    sink.field("xattr", fields.xattr.0.into());
    sink.field("rdev", Value::Hex(fields.rdev));
    sink.field("flags", Value::Hex(fields.flags));
    sink.field("uid", fields.uid.0.into());
    sink.field("gid", fields.gid.0.into());
    sink.field("acl_entries", znode.acl.count.into());
    if let Some(target) = znode.inline_link() {
        sink.field("target", Value::Text(String::from_utf8_lossy(target).into_owned()));
    }
    sink.close();
}

async fn show_attributes(sink: &mut dyn Sink, object: &Object, registry: &SaRegistry) {
    sink.open("attributes");
    show_buffer(sink, registry, object.dnode().bonus());
    match object.read_spill().await {
        Ok(Some((_, spill))) => {
            sink.open("spill");
            show_buffer(sink, registry, &spill);
            sink.close();
        }
        Ok(None) => {}
        Err(error) => failure(sink, &error),
    }
    sink.close();
}

fn show_buffer(sink: &mut dyn Sink, registry: &SaRegistry, bytes: &[u8]) {
    let reader = match SaReader::new(registry, bytes) {
        Ok(reader) => reader,
        Err(error) => return failure(sink, &error),
    };
    for (number, value) in reader.attributes() {
        let name = registry.attribute(number).map_or("?", |attribute| attribute.name.as_str());
        if name == ZplAttr::DaclAces.name() {
            let count = reader.u64(ZplAttr::DaclCount).unwrap_or(0);
            aces(sink, name, value, count, reader.endian());
        } else {
            attribute(sink, name, value, reader.endian());
        }
    }
}

/// One attribute by name, with the meaning that the ZPL gives its own.
fn attribute(sink: &mut dyn Sink, name: &str, bytes: &[u8], endian: Endian) {
    let word = bytes.first_chunk::<8>().map(|word| endian.u64(*word));
    let known = ZplAttr::all().find(|attr| attr.name() == name);
    let value = match (known, word) {
        (Some(ZplAttr::Atime | ZplAttr::Mtime | ZplAttr::Ctime | ZplAttr::Crtime), Some(seconds)) => {
            Value::Time(seconds.cast_signed())
        }
        (Some(ZplAttr::Mode), Some(mode)) => Value::Text(format!("{mode:o}")),
        (Some(ZplAttr::Size), Some(size)) => Value::Size(size),
        (Some(ZplAttr::Flags | ZplAttr::Rdev), Some(bits)) => Value::Hex(bits),
        (Some(ZplAttr::Symlink), _) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        (Some(ZplAttr::Dxattr), _) => match Nvlist::decode(bytes) {
            Ok(list) => {
                sink.open(name);
                nvlist(sink, &list);
                return sink.close();
            }
            Err(_) => Value::Raw(bytes.to_vec()),
        },
        (_, Some(number)) if bytes.len() == 8 => Value::Number(number),
        _ => Value::Raw(bytes.to_vec()),
    };
    sink.field(name, value);
}

fn aces(sink: &mut dyn Sink, name: &str, bytes: &[u8], count: u64, endian: Endian) {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let aces = match decode_aces(AclForm::Fuid, bytes, count, endian) {
        Ok(aces) => aces,
        Err(error) => return failure(sink, &error),
    };
    sink.table(name, &["who", "type", "flags", "mask"]);
    for ace in aces {
        sink.row(vec![
            format!("{:?}", ace.who).to_lowercase().into(),
            ace.ace_type.into(),
            Value::Hex(ace.flags.into()),
            Value::Hex(ace.mask.into()),
        ]);
    }
    sink.close();
}

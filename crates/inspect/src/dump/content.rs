//! The content of an object, by type: tables, maps, pointer lists, packed nvlists, history.

use cenote_dataset::Mos;
use cenote_format::Phys;
use cenote_format::bpobj::BpobjEntry;
use cenote_format::dnode::ObjectType;
use cenote_format::history::{HistoryPhys, records};
use cenote_format::nvlist::Nvlist;
use cenote_format::znode::Dirent;
use cenote_object::deadlist::Bpobj;
use cenote_object::{DatasetError, Object, Zap, ZapEntry, ZapValue};

use super::{Sink, Value, failure, nvlist, space_map};

/// The largest packed nvlist or history shown: more would be damage.
const MAX_PACKED_BYTES: u64 = 64 << 20;
/// Words of an array read at once.
const WINDOW_WORDS: u64 = 1 << 16;

/// Shows the content of an object, if its type is understood. Space maps are understood only with the MOS
/// that they are in.
pub(super) async fn show(sink: &mut dyn Sink, mos: Option<&Mos>, object: &Object) {
    let shown = match object.dnode().object_type {
        t if t.is_zap() => zap(sink, object).await,
        ObjectType::SPACE_MAP => match mos {
            Some(mos) => space_map::show(sink, mos, object).await,
            None => Ok(()),
        },
        ObjectType::BPOBJ => bpobj(sink, object).await,
        ObjectType::BPOBJ_SUBOBJ | ObjectType::OBJECT_ARRAY => words(sink, object).await,
        ObjectType::PACKED_NVLIST => packed(sink, object).await,
        ObjectType::FUID => fuids(sink, object).await,
        ObjectType::SPA_HISTORY => history(sink, object).await,
        _ => Ok(()),
    };
    if let Err(error) = shown {
        failure(sink, &error);
    }
}

async fn zap(sink: &mut dyn Sink, object: &Object) -> Result<(), DatasetError> {
    let zap = Zap::open(object.clone()).await?;
    sink.field("zap_entries", zap.count().into());
    if zap.normflags() != 0 {
        sink.field("zap_normalization", Value::Hex(zap.normflags()));
    }
    let is_directory = object.dnode().object_type == ObjectType::DIRECTORY_CONTENTS;
    let columns: &[&str] = if is_directory { &["name", "object", "type"] } else { &["name", "value"] };
    sink.table("entries", columns);
    let mut failed = None;
    let mut entries = zap.entries();
    while let Some(batch) = entries.next_batch().await {
        match batch {
            Ok(batch) => batch.iter().for_each(|entry| sink.row(zap_row(&zap, entry, is_directory))),
            Err(error) => failed = Some(error),
        }
        if sink.is_closed() {
            break;
        }
    }
    sink.close();
    failed.map_or(Ok(()), Err)
}

fn zap_row(zap: &Zap, entry: &ZapEntry, is_directory: bool) -> Vec<Value> {
    let name = match zap.has_word_keys() {
        true => {
            Value::Text(entry.name_words().iter().map(|w| format!("{w:x}")).collect::<Vec<_>>().join(":"))
        }
        false => Value::Text(entry.name_text()),
    };
    match entry.value.as_u64().filter(|_| is_directory) {
        Some(word) => {
            let Dirent { object, kind } = Dirent::from_word(word);
            let kind = kind.map_or("unknown".into(), |kind| format!("{kind:?}").to_lowercase());
            vec![name, object.0.into(), kind.into()]
        }
        None => vec![name, zap_value(&entry.value)],
    }
}

/// A ZAP value: a number, several, text, or bytes.
pub(super) fn zap_value(value: &ZapValue) -> Value {
    if let Some(number) = value.as_u64() {
        return Value::Number(number);
    }
    match value.as_bytes() {
        Some(bytes) => match bytes.split_last() {
            Some((0, text)) if text.iter().all(|b| (b' '..=b'~').contains(b)) => {
                Value::Text(String::from_utf8_lossy(text).into_owned())
            }
            _ => Value::Raw(bytes.to_vec()),
        },
        None => Value::Numbers(value.words().collect()),
    }
}

async fn bpobj(sink: &mut dyn Sink, object: &Object) -> Result<(), DatasetError> {
    let list = Bpobj::open(object.objset(), object.id()).await?;
    sink.table("pointers", &["freed", "pointer"]);
    let mut entries = list.entries();
    let mut failed = Ok(());
    while let Some(batch) = entries.next_batch().await {
        match batch {
            Ok(batch) => {
                batch
                    .iter()
                    .for_each(|BpobjEntry { bp, freed }| sink.row(vec![(*freed).into(), (*bp).into()]));
            }
            Err(error) => failed = Err(error),
        }
        if sink.is_closed() {
            break;
        }
    }
    sink.close();
    failed
}

async fn words(sink: &mut dyn Sink, object: &Object) -> Result<(), DatasetError> {
    let count = object.capacity_bytes() / 8;
    sink.table("words", &["index", "word"]);
    let mut next = 0;
    while next < count {
        let data = object.next_data(next * 8).await;
        let Ok(Some(data)) = data else {
            sink.close();
            return data.map(|_| ());
        };
        let first = data / 8;
        next = first + WINDOW_WORDS;
        let window = object.read_words(first, WINDOW_WORDS.min(count - first) as usize).await;
        let Ok(window) = &window else {
            sink.close();
            return window.map(|_| ());
        };
        for (i, word) in window.iter().enumerate().filter(|(_, word)| **word != 0) {
            sink.row(vec![(first + i as u64).into(), (*word).into()]);
        }
        if sink.is_closed() {
            break;
        }
    }
    sink.close();
    Ok(())
}

async fn packed(sink: &mut dyn Sink, object: &Object) -> Result<(), DatasetError> {
    let endian = object.dnode().endian();
    let size = object.dnode().bonus().first_chunk::<8>().map_or(0, |word| endian.u64(*word));
    if size > MAX_PACKED_BYTES.min(object.capacity_bytes()) {
        return Err(object.damaged("claims a larger list than it has room for"));
    }
    list(sink, object, &object.read(0, size as usize).await?)
}

/// A FUID table is a packed nvlist preceded by its length.
async fn fuids(sink: &mut dyn Sink, object: &Object) -> Result<(), DatasetError> {
    let size = object.capacity_bytes().min(MAX_PACKED_BYTES);
    list(sink, object, &object.read(0, size as usize).await?)
}

fn list(sink: &mut dyn Sink, object: &Object, bytes: &[u8]) -> Result<(), DatasetError> {
    let list = Nvlist::decode(bytes).map_err(|e| object.format(e))?;
    sink.open("nvlist");
    nvlist(sink, &list);
    sink.close();
    Ok(())
}

async fn history(sink: &mut dyn Sink, object: &Object) -> Result<(), DatasetError> {
    let phys = HistoryPhys::decode(object.dnode().bonus(), object.dnode().endian());
    let phys = phys.map_err(|e| object.format(e))?;
    let mut bytes = Vec::new();
    for range in phys.ranges().map_err(|e| object.format(e))? {
        let len = range.end - range.start;
        if range.end > object.capacity_bytes() || bytes.len() as u64 + len > MAX_PACKED_BYTES {
            return Err(object.damaged("claims a longer history than it has room for"));
        }
        bytes.extend_from_slice(&object.read(range.start, len as usize).await?);
    }
    sink.list("records");
    for (i, record) in records(&bytes).enumerate() {
        sink.open(&format!("record {i}"));
        match record.and_then(Nvlist::decode) {
            Ok(list) => nvlist(sink, &list),
            Err(error) => failure(sink, &error),
        }
        sink.close();
    }
    sink.close();
    Ok(())
}

//! Properties in a package: those set on a dataset itself.
//!
//! Idea: the receiver compares lists, so only their content matters; they are ordered by hash, as in the
//! table of properties and in the module's streams.
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`send_iterate_prop`), `dsl_prop.c` (`dsl_prop_get_all_impl`).

use cenote_dataset::Dataset;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::props::{AppliesTo, Prop, ZPROP_INHERIT_SUFFIX, ZPROP_RECVD_SUFFIX};
use cenote_object::{Cursor, Zap, ZapEntry, ZapValue};

use super::super::error::Result;

/// `ZPROP_IUV_SUFFIX`: a value unknown to older versions.
const ZPROP_IUV_SUFFIX: &str = "$iuv";
/// `ZPROP_HAS_RECVD`: the dataset has received properties.
const ZPROP_HAS_RECVD: &str = "$hasrecvd";
/// Limits that snapshots don't have.
const SPACE_LIMITS: [&str; 4] = ["quota", "reservation", "refquota", "refreservation"];

/// The properties set or received here; with `received_only`, the received ones.
pub(super) async fn properties(dataset: &Dataset, received_only: bool) -> Result<Nvlist> {
    let mut list = Nvlist::new();
    let table = match dataset.is_snapshot() {
        true => dataset.phys().props_zap,
        false => dataset.dir().phys().props_zap,
    };
    if table.0 != 0 {
        let entries = in_order(&Zap::open_id(dataset.mos().objset(), table).await?).await?;
        let table = Table(entries.iter().map(|entry| (entry.name_text(), entry.value.clone())).collect());
        if !received_only || table.find(ZPROP_HAS_RECVD).is_some() {
            add(dataset, &table, received_only, &mut list);
        }
    }
    if !dataset.is_snapshot() && !received_only {
        add_limits(dataset, &mut list);
    }
    Ok(list)
}

/// Entries of a table in the order of their hashes.
pub(super) async fn in_order(zap: &Zap) -> Result<Vec<ZapEntry>> {
    let (mut entries, mut at) = (Vec::new(), Cursor::START);
    loop {
        let some = zap.entries_from(at).await?;
        let Some((_, next)) = some.last() else { return Ok(entries) };
        at = *next;
        entries.extend(some.into_iter().map(|(entry, _)| entry));
    }
}

struct Table(Vec<(String, ZapValue)>);

impl Table {
    fn find(&self, name: &str) -> Option<&ZapValue> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    fn has(&self, name: &str, suffix: &str) -> bool {
        self.find(&format!("{name}{suffix}")).is_some()
    }
}

fn add(dataset: &Dataset, table: &Table, received_only: bool, list: &mut Nvlist) {
    for (entry, value) in &table.0 {
        let at = entry.find('$').unwrap_or(entry.len());
        let (name, suffix) = entry.split_at(at);
        let is_wanted = match suffix {
            "" => !received_only && !table.has(name, ZPROP_IUV_SUFFIX),
            ZPROP_RECVD_SUFFIX => {
                let is_hidden = table.find(name).is_some() || table.has(name, ZPROP_INHERIT_SUFFIX);
                received_only || !is_hidden
            }
            ZPROP_IUV_SUFFIX => !received_only,
            _ => false,
        };
        if is_wanted && is_sent(dataset, name) && list.get(name).is_none() {
            list.insert(name, number_or_text(value));
        }
    }
}

/// Whether packages contain such a property.
fn is_sent(dataset: &Dataset, name: &str) -> bool {
    if name.contains(':') {
        return true;
    }
    let Some(prop) = Prop::zfs(name) else { return false };
    let fits =
        !dataset.is_snapshot() || prop.applies.overlaps(AppliesTo::SNAP) && !SPACE_LIMITS.contains(&name);
    fits && !prop.is_read_only() && !prop.is_one_time()
}

fn number_or_text(value: &ZapValue) -> NvValue {
    match value.as_bytes() {
        Some(bytes) => NvValue::String(bytes.iter().copied().take_while(|&byte| byte != 0).collect()),
        None => NvValue::Uint64(value.words().next().unwrap_or(0)),
    }
}

/// Adds the limits kept in the directory.
fn add_limits(dataset: &Dataset, list: &mut Nvlist) {
    let phys = dataset.dir().phys();
    for (name, bytes) in [("quota", phys.quota_bytes), ("reservation", phys.reserved_bytes)] {
        if list.get(name).is_some() || bytes != 0 {
            list.insert(name, NvValue::Uint64(bytes));
        }
    }
}

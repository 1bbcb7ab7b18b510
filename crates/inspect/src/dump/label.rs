//! The four labels of a device, and uberblocks.

use cenote_format::Phys;
use cenote_format::label::{LABEL_BYTES, label_offset};
use cenote_format::uberblock::Uberblock;
use cenote_pool::FoundPool;
use cenote_pool::label::Label;

use super::{Sink, Value, failure, nvlist};

/// Shows the labels read from a device of `size_bytes`.
pub fn labels(sink: &mut dyn Sink, size_bytes: u64, labels: &[Label], with_ring: bool) {
    sink.field("device_bytes", Value::Size(size_bytes));
    sink.list("labels");
    let mut shown: Vec<(usize, &Label)> = Vec::new();
    for (index, label) in labels.iter().enumerate() {
        sink.open(&format!("label {index}"));
        sink.field("label", index.into());
        if let Some(offset) = label_offset(size_bytes, index as u32) {
            sink.field("offset", Value::Hex(offset));
            sink.field("end", Value::Hex(offset + LABEL_BYTES));
        }
        if let Some(error) = &label.unreadable {
            failure(sink, error);
        }
        sink.field("config_valid", label.config.is_some().into());
        sink.field("uberblocks", label.uberblocks.len().into());
        let newest = label.uberblocks.iter().map(|u| (u.txg.0, u.timestamp_s)).max();
        sink.field("newest_txg", newest.map(|(txg, _)| txg).into());
        config(sink, index, label, &shown);
        if with_ring {
            ring(sink, &label.uberblocks);
        }
        shown.push((index, label));
        sink.close();
    }
    sink.close();
}

/// Shows a configuration once: the labels of a device rarely differ.
fn config(sink: &mut dyn Sink, index: usize, label: &Label, shown: &[(usize, &Label)]) {
    let Some(list) = &label.config else { return };
    match shown.iter().find(|(_, earlier)| earlier.config.as_ref() == Some(list)) {
        Some((same, _)) if *same < index => sink.field("config_same_as_label", (*same).into()),
        _ => {
            sink.open("config");
            nvlist(sink, list);
            sink.close();
        }
    }
}

/// A table of uberblocks, in the order given.
pub fn ring(sink: &mut dyn Sink, uberblocks: &[Uberblock]) {
    sink.table("ring", &["txg", "time", "version", "guid_sum", "mmp", "rootbp"]);
    for uberblock in uberblocks {
        sink.row(vec![
            uberblock.txg.0.into(),
            Value::Time(uberblock.timestamp_s.cast_signed()),
            uberblock.version.into(),
            Value::Hex(uberblock.guid_sum),
            uberblock.mmp_is_on().into(),
            uberblock.rootbp.into(),
        ]);
    }
    sink.close();
}

/// All fields of one uberblock.
pub fn uberblock(sink: &mut dyn Sink, uberblock: &Uberblock) {
    sink.field("txg", uberblock.txg.0.into());
    sink.field("timestamp", Value::Time(uberblock.timestamp_s.cast_signed()));
    sink.field("version", uberblock.version.into());
    sink.field("software_version", uberblock.software_version.into());
    sink.field("guid_sum", uberblock.guid_sum.into());
    sink.field("endian", format!("{:?}", uberblock.endian).to_lowercase().into());
    sink.field("rootbp", uberblock.rootbp.into());
    sink.field("mmp_magic", Value::Hex(uberblock.mmp_magic));
    sink.field("mmp_delay_ns", uberblock.mmp_delay_ns.into());
    sink.field("mmp_config", Value::Hex(uberblock.mmp_config));
    sink.field("mmp_seq", uberblock.mmp_seq().into());
    sink.field("checkpoint_txg", uberblock.checkpoint_txg.0.into());
    sink.field("reflow_offset", Value::Size(uberblock.reflow_offset_bytes()));
    sink.field("reflow_state", uberblock.reflow_scratch_state().into());
}

/// All uberblocks that a search found for a pool, newest first.
pub fn uberblocks(sink: &mut dyn Sink, found: &FoundPool) {
    sink.field("pool", found.name().into());
    sink.field("guid", found.guid().0.into());
    ring(sink, &found.uberblocks);
}

/// A structure of words as a record with this name.
pub(super) fn record<P: Phys>(sink: &mut dyn Sink, name: &str, value: &P) {
    sink.open(name);
    super::phys(sink, value);
    sink.close();
}

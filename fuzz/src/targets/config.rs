//! Labels, configurations, uberblocks.

use cenote_codec::Endian as CodecEndian;
use cenote_codec::checksum::{Checksum, embedded::label_verifier};
use cenote_format::label::{BootEnv, LabelConfig, decode_config_nvlist, uberblock_slots};
use cenote_format::nvlist::Nvlist;
use cenote_format::uberblock::Uberblock;
use cenote_pool::PoolConfig;
use cenote_pool::label::decode_label;

use super::consume;

/// A packed list in both encodings. A decoded list must survive another round trip.
pub fn nvlist(data: &[u8]) {
    let Ok(list) = Nvlist::decode(data) else { return };
    let again = Nvlist::decode(&list.encode());
    // Compared as text: a list may hold NaN.
    assert_eq!(again.map(|l| l.to_string()), Ok(list.to_string()), "packed and unpacked again");
    for (name, _) in list.iter() {
        consume((list.get_u64(name), list.get_str(name), list.get_nvlist_array(name)));
    }
}

/// Pool configuration from a label or the MOS.
pub fn label_config(data: &[u8]) {
    let Ok(list) = Nvlist::decode(data) else { return };
    consume(LabelConfig::decode(&list));
    consume(PoolConfig::from_mos(&list));
    if let Ok(LabelConfig::Member(config)) = LabelConfig::decode(&list) {
        consume(config.vdev_tree.leaves().count());
    }
}

/// The nvlist part of a label and a slot of its ring, with valid checksums.
pub fn label(data: &[u8]) {
    const OFFSET: u64 = 256 << 10;
    let mut label = vec![0; 256 << 10];
    let (slot, list) = data.split_at(data.len().min(1024));
    let list = &list[..list.len().min((112 << 10) - 40)];
    label[16 << 10..][..list.len()].copy_from_slice(list);
    label[128 << 10..][..slot.len()].copy_from_slice(slot);
    let seals = [(16 << 10, 112 << 10), (128 << 10, 1 << 10), (128 << 10, 8 << 10)];
    for (at, len) in seals {
        let verifier = label_verifier(OFFSET + at as u64);
        let area = &mut label[at..at + len];
        Checksum::Label.seal(area, verifier, CodecEndian::Little).expect("an area has room for its checksum");
    }
    let decoded = decode_label(&label, OFFSET);
    assert_eq!(decoded.config.is_some(), Nvlist::decode(&label[16 << 10..(128 << 10) - 40]).is_ok());
    consume(decode_config_nvlist(&label[16 << 10..128 << 10]));
    consume(decode_label(data, OFFSET));
}

/// An uberblock, and a ring of them.
pub fn uberblock(data: &[u8]) {
    if let Ok(uberblock) = Uberblock::decode(data) {
        let again = Uberblock::decode(&uberblock.encode());
        assert_eq!(again.as_ref(), Ok(&uberblock), "encoded and decoded again");
        consume((uberblock.mmp_is_on(), uberblock.mmp_seq(), uberblock.reflow_offset_bytes()));
        consume(uberblock.reflow_scratch_state());
    }
    for ashift in [0, 9, 12, 16, 63, u32::from(data.first().copied().unwrap_or(0))] {
        consume(uberblock_slots(data, ashift).count());
    }
}

/// Boot environment block.
pub fn boot_env(data: &[u8]) {
    consume(BootEnv::decode(data));
}

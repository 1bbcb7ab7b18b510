//! How far devices are initialized (`zpool status -i`) and trimmed (`-t`).
//!
//! Progress of interrupted work is computed from the offset it reached; OpenZFS weighs that by the free space
//! at the time.
//!
//! Source: OpenZFS `print_status_initialize`, `print_status_trim`, `vdev_initialize.c`, `vdev_trim.c`.

use std::collections::BTreeMap;

use cenote_dataset::Mos;
use cenote_format::dsl::names::vdev_zap;
use cenote_format::scan::VdevWorkState;
use cenote_format::units::{Guid, ObjectId};
use cenote_object::Zap;
use cenote_pool::{VdevConfig, VdevKind};

use crate::outcome::CliError;
use crate::render::ctime;

/// A kind of work and the keys that record it in a device's ZAP.
struct Work {
    state: &'static str,
    time: &'static str,
    offset: &'static str,
    /// The words for done, not done, and in progress.
    words: [&'static str; 3],
}

const INITIALIZE: Work = Work {
    state: vdev_zap::INITIALIZE_STATE,
    time: vdev_zap::INITIALIZE_ACTION_TIME,
    offset: vdev_zap::INITIALIZE_LAST_OFFSET,
    words: ["initialized", "uninitialized", "initializing"],
};

const TRIM: Work = Work {
    state: vdev_zap::TRIM_STATE,
    time: vdev_zap::TRIM_ACTION_TIME,
    offset: vdev_zap::TRIM_LAST_OFFSET,
    words: ["trimmed", "untrimmed", "trimming"],
};

/// The note after a device's line: detailed for the kinds of work asked for, otherwise only that work is in
/// progress.
pub async fn notes(mos: &Mos, initialize: bool, trim: bool) -> Result<BTreeMap<Guid, String>, CliError> {
    let mut notes = BTreeMap::new();
    for top in &mos.pool_config().vdevs {
        let leaf_bytes =
            top.asize_bytes / if top.kind == VdevKind::Raidz { top.children.len().max(1) as u64 } else { 1 };
        for leaf in top.leaves() {
            let zap = leaf_zap(mos, leaf).await?;
            let mut note = String::new();
            for (work, at_length) in [(INITIALIZE, initialize), (TRIM, trim)] {
                note += &work.note(zap.as_ref(), leaf_bytes, at_length).await?;
            }
            notes.insert(leaf.guid, note);
        }
    }
    Ok(notes)
}

/// What is known of the work on a device.
async fn leaf_zap(mos: &Mos, leaf: &VdevConfig) -> Result<Option<Zap>, CliError> {
    match leaf.leaf_zap {
        ObjectId(0) => Ok(None),
        id => Ok(Some(Zap::open_id(mos.objset(), id).await?)),
    }
}

impl Work {
    async fn note(&self, zap: Option<&Zap>, leaf_bytes: u64, at_length: bool) -> Result<String, CliError> {
        let (mut state, mut time, mut offset) = (0, 0, 0);
        if let Some(zap) = zap {
            for (value, name) in
                [(&mut state, self.state), (&mut time, self.time), (&mut offset, self.offset)]
            {
                *value = zap.get_u64(name).await?.unwrap_or(0);
            }
        }
        let [done, undone, under_way] = self.words;
        let percent = u128::from(offset) * 100 / u128::from(leaf_bytes.max(1));
        let time = ctime(time.cast_signed());
        Ok(match VdevWorkState::of_leaf(state) {
            VdevWorkState::Active if !at_length => format!("  ({under_way})"),
            _ if !at_length => String::new(),
            VdevWorkState::Active => format!("  ({}% {done}, started at {time})", percent.min(100)),
            VdevWorkState::Suspended => {
                format!("  ({}% {done}, suspended, started at {time})", percent.min(100))
            }
            VdevWorkState::Complete => format!("  (100% {done}, completed at {time})"),
            _ => format!("  ({undone})"),
        })
    }
}

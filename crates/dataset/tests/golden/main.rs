//! Golden pools made by the OpenZFS kernel module, against their recorded content.

#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod config;
mod content;
mod datasets;
mod inside;
mod lists;
mod live;
mod properties;
mod refusals;
mod zap;
mod zap_audit;

use cenote_dataset::{ImportOptions, KeySource, Mos, UserKey, import};
use cenote_pool::{FoundPool, discover};
use cenote_runtime::Runtime;
use cenote_testkit::{Golden, KeyFacts};
use std::collections::BTreeMap;

/// Finds the pool in the golden pool's folder.
async fn find(rt: &Runtime, golden: &Golden) -> FoundPool {
    let discovery = discover(rt, &[golden.images()]).await;
    let wanted = golden.facts().guid;
    let found = discovery.pools.into_iter().find(|pool| pool.guid().0 == wanted);
    found.unwrap_or_else(|| panic!("{}: not found; {:?}", golden.name(), discovery.problems))
}

/// Opens a golden pool with all its keys.
async fn open(rt: &Runtime, golden: &Golden) -> Mos {
    let found = find(rt, golden).await;
    let options = ImportOptions { keys: keys(golden.facts().keys), ..ImportOptions::default() };
    import(rt, &found, &options).await.unwrap_or_else(|e| panic!("{}: {e}", golden.name()))
}

/// Keys of pool.json.
fn keys(facts: BTreeMap<String, KeyFacts>) -> KeySource {
    let hex = |text: &str| -> Vec<u8> {
        let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        text.as_bytes().chunks(2).map(digits).collect()
    };
    KeySource::new(move |info| {
        // Unlisted roots use an ancestor's key.
        let above = |name: &String| info.root == *name || info.root.starts_with(&format!("{name}/"));
        let key = facts.iter().filter(|(name, _)| above(name)).max_by_key(|(name, _)| name.len())?.1;
        Some(UserKey(match (&key.key, &key.key_hex) {
            (_, Some(digits)) => hex(digits),
            (Some(text), None) => text.clone().into_bytes(),
            (None, None) => return None,
        }))
    })
}

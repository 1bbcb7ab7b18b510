//! Pools that must be refused, with a reason.

use cenote_dataset::{ImportOptions, Rewind, import};
use cenote_format::units::Txg;
use cenote_pool::discover;
use cenote_runtime::Runtime;
use cenote_testkit::golden;

use crate::find;

/// An older txg opens if still whole, and never one newer than requested.
#[test]
fn an_older_group_is_opened_on_request() {
    let pool = golden("snaps");
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let found = find(&rt, &pool).await;
        let newest = found.uberblocks[0].txg;
        let options = ImportOptions { rewind: Rewind::Txg(Txg(newest.0 - 1)), ..ImportOptions::default() };
        match import(&rt, &found, &options).await {
            Ok(mos) => assert!(mos.uberblock().txg < newest),
            Err(error) => assert!(error.is_damage(), "{error}"),
        }
        let options = ImportOptions { rewind: Rewind::Txg(Txg(0)), ..ImportOptions::default() };
        let error = import(&rt, &found, &options).await.unwrap_err().to_string();
        assert!(error.contains("no uberblock of txg 0"), "{error}");
        let options = ImportOptions { rewind: Rewind::Back, ..ImportOptions::default() };
        assert_eq!(import(&rt, &found, &options).await.unwrap().uberblock().txg, newest);
    });
}

#[test]
fn a_pool_without_a_checkpoint_says_so() {
    let pool = golden("snaps");
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let found = find(&rt, &pool).await;
        let options = ImportOptions { checkpoint: true, ..ImportOptions::default() };
        let error = import(&rt, &found, &options).await.unwrap_err().to_string();
        assert!(error.contains("has no checkpoint"), "{error}");
        assert!(discover(&rt, &["/nonexistent".into()]).await.pools.is_empty());
    });
}

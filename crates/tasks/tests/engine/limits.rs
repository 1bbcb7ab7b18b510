//! Limits on the number of file systems and snapshots, and on reservations.

use std::collections::BTreeSet;

use cenote_dataset::{Credentials, Value};
use cenote_engine::Engine;
use cenote_format::deleg::{DelegKey, Reach, Who};
use cenote_object::{DatasetError, Result};
use cenote_pool::VdevKind;
use cenote_runtime::Runtime;

use crate::common::{create, fill};

const USER: u32 = 1000;

async fn make(engine: &Engine, name: &str) -> Result<()> {
    cenote_tasks::create_filesystem(engine, name, Vec::new(), Box::new(|live| Box::pin(fill(live)))).await
}

async fn set(engine: &Engine, name: &str, property: &str, value: u64) -> Result<()> {
    cenote_tasks::set_property(engine, name, property, Value::Number(value)).await
}

async fn snapshot(engine: &Engine, names: &[&str]) -> Result<()> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    cenote_tasks::snapshot(engine, &names).await
}

async fn allow(engine: &Engine, name: &str, permission: &str) {
    let key = DelegKey { who: Who::User(USER.into()), reach: Reach::Local, of_sets: false };
    let delegated = vec![(key, BTreeSet::from([permission.to_owned()]))];
    cenote_tasks::allow(engine, name, delegated).await.unwrap();
}

/// Refused for this limit.
fn assert_bound(outcome: Result<()>, limit: &str) {
    let Err(DatasetError::OverLimit { limit: reached, .. }) = outcome else { panic!("{limit}: {outcome:?}") };
    assert_eq!(reached, limit);
}

#[test]
fn limits_bind_users_who_may_not_set_them() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &(VdevKind::Disk, 0, 1)).await;
        let user = engine.acting_for_delegated(Credentials { uid: USER, gids: vec![USER] }, engine.names());
        for name in ["made/u", "made/u/a", "made/elsewhere", "made/elsewhere/moved"] {
            make(&engine, name).await.unwrap();
        }
        set(&engine, "made/u", "snapshot_limit", 2).await.unwrap();
        set(&engine, "made/u", "filesystem_limit", 2).await.unwrap();

        // A directory's limit covers everything below it.
        snapshot(&user, &["made/u@1"]).await.unwrap();
        assert_bound(snapshot(&user, &["made/u@2", "made/u/a@2"]).await, "snapshot_limit");
        snapshot(&user, &["made/u/a@2"]).await.unwrap();
        assert_bound(snapshot(&user, &["made/u/a@3"]).await, "snapshot_limit");
        make(&user, "made/u/b").await.unwrap();
        assert_bound(make(&user, "made/u/c").await, "filesystem_limit");
        assert_bound(
            cenote_tasks::clone_snapshot(&user, "made/u@1", "made/u/a/clone", Vec::new()).await,
            "filesystem_limit",
        );
        assert_bound(
            cenote_tasks::rename(&user, "made/elsewhere/moved", "made/u/a/moved").await,
            "filesystem_limit",
        );
        // A move within the directory adds nothing.
        cenote_tasks::rename(&user, "made/u/b", "made/u/a/b").await.unwrap();

        // Administrators are not bound; nor is a user who may set the limit, except by limits above.
        snapshot(&engine, &["made/u@root"]).await.unwrap();
        make(&engine, "made/u/root").await.unwrap();
        allow(&engine, "made/u", "snapshot_limit").await;
        snapshot(&user, &["made/u@mine"]).await.unwrap();
        assert_bound(make(&user, "made/u/mine").await, "filesystem_limit");
        set(&engine, "made", "snapshot_limit", 1).await.unwrap();
        assert_bound(snapshot(&user, &["made/u@more"]).await, "snapshot_limit");
        snapshot(&engine, &["made/u@more"]).await.unwrap();
    });
}

#[test]
fn a_refreservation_fits_into_the_refquota() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &(VdevKind::Disk, 0, 1)).await;
        make(&engine, "made/r").await.unwrap();
        set(&engine, "made/r", "refquota", 10 << 20).await.unwrap();
        assert!(set(&engine, "made/r", "refreservation", 20 << 20).await.is_err());
        set(&engine, "made/r", "refreservation", 10 << 20).await.unwrap();
        assert!(set(&engine, "made/r", "refquota", 5 << 20).await.is_err());
        set(&engine, "made/r", "refreservation", 5 << 20).await.unwrap();
        set(&engine, "made/r", "refquota", 5 << 20).await.unwrap();
    });
}

//! Names that pass to other datasets between the check of a user's rights and the change.

use cenote_dataset::{Credentials, Value};
use cenote_engine::Engine;
use cenote_object::DatasetError;
use cenote_pool::VdevKind;
use cenote_runtime::Runtime;

use crate::common::{create, fill};

async fn make(engine: &Engine, name: &str) {
    let fill = Box::new(|live| Box::pin(fill(live)) as _);
    cenote_tasks::create_filesystem(engine, name, Vec::new(), fill).await.unwrap();
}

async fn set(engine: &Engine, name: &str) -> Result<(), DatasetError> {
    cenote_tasks::set_property(engine, name, "org.example:note", Value::Text("x".into())).await
}

#[test]
fn a_name_that_has_passed_to_another_dataset_is_not_the_one_that_was_checked() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &(VdevKind::Disk, 0, 1)).await;
        for name in ["made/own", "made/victim"] {
            make(&engine, name).await;
        }
        let who = Credentials { uid: 1000, gids: vec![1000] };
        let (names, long_ago) = (engine.names(), engine.names());
        let user = engine.acting_for_delegated(who.clone(), names.clone());
        set(&user, "made/own").await.unwrap();

        // New datasets are in nobody's way, nor are the user's own renames.
        make(&engine, "made/new").await;
        cenote_tasks::rename(&user, "made/own", "made/away").await.unwrap();
        set(&user, "made/away").await.unwrap();
        engine.check_names(&names).unwrap();

        let other = engine.acting_for_delegated(who.clone(), engine.names());
        cenote_tasks::rename(&other, "made/victim", "made/own").await.unwrap();
        for user in [&user, &engine.acting_for_delegated(who.clone(), long_ago)] {
            for refused in [
                set(user, "made/own").await,
                cenote_tasks::destroy_dataset(user, "made/own").await,
                user.hold().await.map(drop),
            ] {
                assert!(matches!(refused, Err(DatasetError::Renamed { .. })), "{refused:?}");
            }
        }
        assert!(matches!(engine.check_names(&names), Err(DatasetError::Renamed { .. })));
        let again = engine.acting_for_delegated(who, engine.names());
        set(&again, "made/own").await.unwrap();
        engine.mos().await.unwrap().dataset("made/own").await.unwrap();
    });
}

//! The check of names and files.

use std::time::Duration;

use cenote_world::machine::POOL;
use cenote_world::machine::kernel::How;
use cenote_world::model::Action;
use cenote_world::oracle::links;

use super::{on_a_stage, verb};

#[test]
fn a_file_without_a_name_is_found_while_it_is_open() {
    on_a_stage(1, async |stage| {
        verb(stage, Action::Create { name: "tank/f".into(), volume_blocks: None }).await;
        let mount = stage.daemon.kernel.mounted_on("/tank/f").unwrap();
        let file = mount.open(&["a"], How::New).await.unwrap();
        file.write(0, b"content").await.unwrap();
        mount.link(&["a"], &["b"]).await.unwrap();
        assert_eq!(links::check(&stage.daemon, POOL).await, Ok(()));
        for name in ["a", "b"] {
            mount.unlink(&[name], false).await.unwrap();
        }
        let found = links::check(&stage.daemon, POOL).await.unwrap_err();
        assert!(found.0.contains("is left in the unlinked set"), "{}", found.0);
        drop(file);
        stage.runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(links::check(&stage.daemon, POOL).await, Ok(()));
    });
}

//! Copies of ranges (`copy_file_range`), also out of snapshots.

use bytes::Bytes;
use cenote_world::client::Stage;
use cenote_world::client::perform::Performer;
use cenote_world::model::{Action, CallId, Outcome, Source};

use super::{call, on_a_stage, user, verb};

const BYTES: usize = 40_000;

fn path(name: &str) -> Vec<String> {
    vec!["c0".into(), name.into()]
}

async fn open(stage: &Stage, user: &mut Performer, dataset: CallId, name: &str, slot: usize) {
    let open = Action::Open { dataset, path: path(name), slot, creates: true, excludes: false };
    assert_eq!(call(stage, user, open).await, Outcome::Done);
}

async fn read(stage: &Stage, user: &mut Performer, dataset: CallId, slot: usize) -> Bytes {
    let len = 2 * BYTES as u64;
    match call(stage, user, Action::Read { dataset, slot, offset: 0, len }).await {
        Outcome::Data(data) => Bytes::clone(&data),
        other => panic!("{other:?}"),
    }
}

/// A file `a` with content, open as slot 0, and an empty `b` as slot 1.
async fn two_files(stage: &Stage) -> (Performer, CallId, Bytes) {
    let dataset = verb(stage, Action::Create { name: "tank/f".into(), volume_blocks: None }).await;
    let mut user = user(stage);
    let dir = Action::Make { dataset, path: vec!["c0".into()], link_to: None };
    call(stage, &mut user, dir).await;
    open(stage, &mut user, dataset, "a", 0).await;
    open(stage, &mut user, dataset, "b", 1).await;
    let data = Bytes::from((0..BYTES).map(|at| (at / 7) as u8).collect::<Vec<u8>>());
    call(stage, &mut user, Action::Write { dataset, slot: 0, offset: 0, data: data.clone() }).await;
    (user, dataset, data)
}

fn copy(dataset: CallId, from: Source, offset: u64, to: u64, len: u64) -> Action {
    Action::Copy { dataset, from, offset, slot: 1, to, len }
}

/// Shared as a whole, and copied where ranges are no records.
#[test]
fn ranges_of_a_file_are_copied() {
    on_a_stage(1, async |stage| {
        let (mut user, dataset, data) = two_files(stage).await;
        let copied = call(stage, &mut user, copy(dataset, Source::Open(0), 0, 0, u64::MAX / 2)).await;
        assert_eq!(copied, Outcome::Done);
        assert_eq!(read(stage, &mut user, dataset, 1).await, data);
        call(stage, &mut user, copy(dataset, Source::Open(0), 100, 30_001, 20_000)).await;
        let joined = [&data[..30_001], &data[100..20_100]].concat();
        assert_eq!(read(stage, &mut user, dataset, 1).await, joined);
    });
}

#[test]
fn a_file_of_a_snapshot_is_copied_as_it_was_then() {
    on_a_stage(2, async |stage| {
        let (mut user, dataset, data) = two_files(stage).await;
        verb(stage, Action::Snapshot { dataset, name: "s".into() }).await;
        let new = Bytes::from_static(b"changed since");
        call(stage, &mut user, Action::Write { dataset, slot: 0, offset: 0, data: new }).await;
        let from = Source::Snapshot("s".into(), path("a"));
        call(stage, &mut user, copy(dataset, from, 0, 0, BYTES as u64)).await;
        assert_eq!(read(stage, &mut user, dataset, 1).await, data);
        verb(stage, Action::DestroySnapshot { dataset, name: "s".into() }).await;
        assert_eq!(read(stage, &mut user, dataset, 1).await, data);
    });
}

#[test]
fn a_copy_onto_itself_is_refused() {
    on_a_stage(3, async |stage| {
        let (mut user, dataset, _) = two_files(stage).await;
        open(stage, &mut user, dataset, "a", 2).await;
        let onto = Action::Copy { dataset, from: Source::Open(0), offset: 0, slot: 2, to: 4096, len: 8192 };
        assert_eq!(call(stage, &mut user, onto).await, Outcome::Failed(cenote_fuse::Errno::INVAL));
    });
}

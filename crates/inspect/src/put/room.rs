//! How much may change before a group is written, and how much the pool still takes.
//!
//! Idea: what is available is known for the last group on disk. What has gathered since is taken off as if it did not compress; if that
//! leaves nothing, the groups are written and it is looked at again. So a full pool is noticed before a group that can't be written.

use cenote_dataset::DatasetError;
use cenote_runtime::JoinHandle;
use tokio::sync::Mutex;

use super::Putter;
use crate::error::{InspectError, Result};

/// Content in memory at which a group is written.
const GROUP_BYTES: u64 = 64 << 20;
/// What a file is counted with, beside its content.
const FILE_BYTES: u64 = 8 << 10;

pub(super) struct Room {
    dataset: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Changed since the last group was closed.
    filling_bytes: u64,
    /// In the group that is being written.
    writing_bytes: u64,
    writing: Option<JoinHandle<Result<(), DatasetError>>>,
    /// What could be written after the last group on disk; not looked at yet.
    available_bytes: Option<u64>,
}

impl Room {
    pub fn new(dataset: &str) -> Room {
        Room { dataset: dataset.into(), state: Mutex::default() }
    }
}

impl Putter {
    /// Before a file is changed with so much content: waits until there is room for it, in memory and on the pool.
    ///
    /// # Errors
    /// There is none; a group could not be written.
    pub(super) async fn make_room(&self, bytes: u64) -> Result<()> {
        let bytes = bytes + FILE_BYTES;
        let mut state = self.room.state.lock().await;
        if !self.fits(&mut state, bytes).await? {
            self.wait(&mut state).await?;
            self.engine.sync_all().await?;
            *state = State::default();
            if !self.fits(&mut state, bytes).await? {
                return Err(self.full());
            }
        }
        state.filling_bytes += bytes;
        if state.filling_bytes >= GROUP_BYTES {
            self.wait(&mut state).await?;
            let engine = self.engine.clone();
            state.writing = Some(self.engine.runtime().spawn(async move { engine.sync_all().await }));
            state.writing_bytes = std::mem::take(&mut state.filling_bytes);
        }
        Ok(())
    }

    async fn fits(&self, state: &mut State, bytes: u64) -> Result<bool> {
        let available = match state.available_bytes {
            Some(available) => available,
            None => self.engine.mos().await?.dataset(&self.room.dataset).await?.available().await?,
        };
        state.available_bytes = Some(available);
        Ok(state.filling_bytes + state.writing_bytes + bytes <= available)
    }

    /// Waits for the group that is being written.
    async fn wait(&self, state: &mut State) -> Result<()> {
        let Some(writing) = state.writing.take() else { return Ok(()) };
        state.writing_bytes = 0;
        state.available_bytes = None;
        match writing.await {
            Ok(done) => Ok(done?),
            Err(error) => Err(InspectError::Request(format!("a group could not be written: {error}"))),
        }
    }

    fn full(&self) -> InspectError {
        let source = std::io::Error::from_raw_os_error(cenote_fs::Refusal::NoSpace.errno());
        InspectError::io(format!("{}: the pool is full", self.room.dataset))(source)
    }
}

//! Reads what a stream needs before the stream needs it.
//!
//! Idea: one task walks over the snapshot's metadata and cuts its parts into windows. As soon as a window is
//! whole, a second task reads its blocks, all at once and in disk order. Whoever writes the stream takes the
//! windows in turn.
//!
//! ```text
//!   walk --parts--> window --queue of WINDOWS_AHEAD--> writer
//!                     '-- a task reads its blocks
//! ```
//!
//! Memory: [`WINDOWS_AHEAD`] + 2 windows of [`WINDOW_BYTES`], or of one block if that is larger.
//! Dropping an [`Ahead`] stops all of its tasks.

use bytes::Bytes;
use cenote_object::Objset;
use cenote_pool::{PoolError, ReadContext};
use cenote_runtime::AbortOnDrop;
use tokio::sync::mpsc;

use super::error::{Result, SendError};
use super::records::Manner;
use super::walk::{Block, Part, Walk};

/// Bytes of data in a window.
const WINDOW_BYTES: u64 = 4 << 20;
/// Parts in a window.
const WINDOW_PARTS: usize = 4_096;
/// Windows that wait for the writer, or for their blocks.
const WINDOWS_AHEAD: usize = 4;

/// Parts of a snapshot, read ahead.
pub(super) struct Ahead {
    windows: mpsc::Receiver<Result<Started>>,
    _walk: AbortOnDrop<()>,
}

/// Parts whose blocks are being read.
struct Started {
    parts: Vec<Part>,
    blocks: Option<AbortOnDrop<Vec<Result<Bytes, PoolError>>>>,
}

/// Parts in order, and the data of those that have any.
pub(super) struct Window {
    pub(super) parts: Vec<Part>,
    /// One for each part that [`Manner::data_of`] names.
    pub(super) blocks: Vec<Result<Bytes, PoolError>>,
}

impl Ahead {
    /// Starts to walk and to read.
    pub(super) fn new(objset: &Objset, walk: Walk, manner: Manner) -> Ahead {
        let (sender, windows) = mpsc::channel(WINDOWS_AHEAD);
        let task = cut(objset.clone(), walk, manner, sender);
        Ahead { windows, _walk: objset.pool().runtime().spawn(task).abort_on_drop() }
    }

    /// The next window; nothing after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Window>> {
        let Some(started) = self.windows.recv().await.transpose()? else { return Ok(None) };
        let blocks = match started.blocks {
            // Only a runtime that shuts down takes the task away.
            Some(blocks) => blocks.await.map_err(|_| SendError::Stopped)?,
            None => Vec::new(),
        };
        Ok(Some(Window { parts: started.parts, blocks }))
    }
}

/// Cuts a walk into windows, until nobody wants them.
async fn cut(objset: Objset, mut walk: Walk, manner: Manner, sender: mpsc::Sender<Result<Started>>) {
    loop {
        let room = sender.reserve().await;
        let Ok(room) = room else { return };
        let parts = match window(&mut walk, &manner).await {
            Ok(parts) => parts,
            Err(error) => return room.send(Err(error)),
        };
        if parts.is_empty() {
            return;
        }
        let wanted = parts.iter().filter_map(|part| manner.data_of(part));
        let requests: Vec<_> = wanted.map(|block| (block.bp, context(&objset, &manner, block))).collect();
        let blocks = (!requests.is_empty()).then(|| {
            let pool = objset.pool().clone();
            let read = async move { pool.read_many(requests).await };
            objset.pool().runtime().spawn(read).abort_on_drop()
        });
        room.send(Ok(Started { parts, blocks }));
    }
}

async fn window(walk: &mut Walk, manner: &Manner) -> Result<Vec<Part>> {
    let (mut parts, mut bytes) = (Vec::new(), 0);
    while parts.len() < WINDOW_PARTS && bytes < WINDOW_BYTES {
        let Some(part) = walk.next().await? else { break };
        bytes += manner.data_of(&part).map_or(0, |block| block.bp.lsize().0);
        parts.push(part);
    }
    Ok(parts)
}

fn context(objset: &Objset, manner: &Manner, block: &Block) -> ReadContext {
    ReadContext { form: manner.form(block), ..objset.context(block.object, 0, block.id) }
}

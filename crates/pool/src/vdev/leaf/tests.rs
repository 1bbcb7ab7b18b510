//! Remote devices beside local ones.

use std::time::Duration;

use cenote_device::{Fault, Faulty, Io, MemoryDevice, Nature};
use cenote_runtime::SimConfig;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A device of another machine.
struct Remote {
    inner: Arc<dyn Device>,
    info: cenote_device::DeviceInfo,
}

impl Remote {
    fn new(inner: Arc<dyn Device>) -> Arc<Remote> {
        let nature = Nature { distance: Distance::Network, deadline: 30 * SECOND, ..Nature::LOCAL };
        let info = cenote_device::DeviceInfo { nature, ..inner.info().clone() };
        Arc::new(Remote { inner, info })
    }
}

impl Device for Remote {
    fn info(&self) -> &cenote_device::DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.inner.read_at(offset, len)
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.inner.write_at(offset, data)
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.inner.write_through(offset, data)
    }

    fn flush(&self) -> Io<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.inner.discard(offset, len)
    }
}

fn memory() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new("disk", 1 << 20))
}

#[test]
fn a_remote_device_that_does_not_answer_is_out_of_use_at_its_own_deadline() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let late = Fault::delay(Op::Write, 400 * SECOND, &runtime).times(1);
        let device = Remote::new(Arc::new(Faulty::new(memory(), 1).with(late)));
        let leaf = Leaf::new(&runtime, Guid(1), device, &Arc::default());
        let write = leaf.write(IoClass::SyncWrite, Stake::NOTHING, 0, vec![1; 4096].into());
        assert!(write.await.is_err());
        assert_eq!(runtime.now().as_ns(), 30_000_000_000);
        assert!(leaf.is_hung());
    });
}

#[test]
fn the_nearest_copy_is_read_unless_it_is_much_busier() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let slow = Fault::delay(Op::Read, SECOND, &runtime);
        let local =
            Leaf::new(&runtime, Guid(1), Arc::new(Faulty::new(memory(), 1).with(slow)), &Arc::default());
        let remote = Leaf::new(&runtime, Guid(2), Remote::new(memory()), &Arc::default());
        assert!(local.read_cost(0) < remote.read_cost(0));
        let busy = (0..NETWORK_COST + 1).map(|at| local.read(IoClass::SyncRead, at << 12, 512));
        let mut busy = std::pin::pin!(futures::future::join_all(busy));
        assert!(futures::poll!(&mut busy).is_pending());
        assert!(local.read_cost(1 << 19) > remote.read_cost(1 << 19));
        assert!(busy.await.iter().all(Result::is_ok));
    });
}

//! A disk in a simulated store, and its blocks.

#![allow(dead_code)] // each test uses a part

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_bucket::{Behaviour, LogDevice, OpenError, Options, Patience, SimClient, SimStore};
use cenote_device::Device;
use cenote_runtime::Runtime;

pub const BLOCK: u64 = 4096;
pub const SIZE_BYTES: u64 = 64 << 20;

/// A machine's connection, and its disk.
pub struct Machine {
    pub client: Arc<SimClient>,
    pub disk: Arc<LogDevice>,
}

/// Connects a machine and opens the disk, made if missing.
pub async fn machine(
    store: &SimStore,
    behaviour: Behaviour,
    runtime: &Runtime,
) -> Result<Machine, OpenError> {
    let client = Arc::new(store.client(behaviour, runtime));
    let disk = open(client.clone(), false, runtime).await?;
    Ok(Machine { client, disk: Arc::new(disk) })
}

pub async fn open(
    client: Arc<SimClient>,
    read_only: bool,
    runtime: &Runtime,
) -> Result<LogDevice, OpenError> {
    let patience = Patience { answer: Duration::from_secs(10), deadline: Duration::from_secs(300) };
    let create_bytes = Some(SIZE_BYTES);
    let options = Options { read_only, create_bytes, patience, probes: 1, ..Options::new("disk") };
    LogDevice::open(client, options, runtime, ()).await
}

/// A block with a number in each of its sectors.
pub fn block(number: u64) -> Bytes {
    let sector = [number.to_le_bytes().as_slice(), &[7; 504]].concat();
    sector.repeat((BLOCK / 512) as usize).into()
}

/// The number in a block; 0: a hole.
pub fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let expected = if number == 0 { vec![0; BLOCK as usize].into() } else { block(number) };
    assert_eq!(bytes, &expected[..], "a torn or foreign block");
    number
}

/// The numbers in the first blocks.
pub async fn numbers(disk: &LogDevice, blocks: u64) -> Vec<u64> {
    let bytes = disk.read_at(0, (blocks * BLOCK) as usize).await.unwrap();
    bytes.chunks(BLOCK as usize).map(number_of).collect()
}

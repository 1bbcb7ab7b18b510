//! Fail-over: several machines may have a pool, one at a time, and take it from each other.
//!
//! ```text
//!   machine a                    witness                       machine b
//!   keeper ── renews each T/4 ──> record of the pool <── reads each T/8 ── keeper
//!      |                          owner, epoch, lease,                        |  unchanged for 9/8 T:
//!      v                          leaves that lack data                       v  takes it
//!   fence: writes pass until T after the last renewal began        import, mounts, targets, addresses
//! ```
//!
//! Idea: the witness is a register with compare-and-swap ([`Witness`]): an object of an S3 store, a key of
//! etcd, or a file. The record there says who has the pool. Everything else follows from it, so that machines
//! need no connection, clock or trust among each other:
//!
//! - The owner's writes pass a fence that closes T after the beginning of its last successful renewal
//!   ([`cenote_device::Tenure`]), whether or not anybody notices. A machine that saw the record unchanged for
//!   9/8 T knows that the owner writes no more. Clocks must only agree in speed, to an eighth.
//! - Of several machines that take the pool, one swaps the record.
//! - A hand-over is a wish in the record, which the owner grants.
//! - Before anything counts as durable on a part of the leaves, the record names the others. A machine that
//!   sees only those is refused, so an older half never wins.
//!
//! Storage with locks of its own (RBD) fences by itself: the lease then only decides whose turn it is, and a
//! witness that is away for longer does no harm.
//!
//! What may go wrong: a request that was on its way to a disk without such locks while its machine lost
//! the pool. The margin between T and 9/8 T is for those; disks behind NBD drop requests of a dead connection.
//!
//! Read in this order: [`Record`], `keeper`, `keeper/tenure`, [`Witness`].
#![forbid(unsafe_code)]

mod head;
mod keeper;
mod nodes;
mod record;
mod settings;
mod witness;

pub use head::{Head, Held, Leave, Taking};
pub use nodes::{Nodes, OrderError, PoolStatus, Role};
pub use record::{BadRecord, Record, Turn};
pub use settings::{PoolSettings, Settings};
pub use witness::{Asking, BucketWitness, EtcdWitness, FolderWitness, Seen, Tag, Witness, WitnessError, Written, open};

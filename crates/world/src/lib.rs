//! A simulated host: the daemon as it ships, clients, administrators, faults, and an oracle that knows.
//!
//! ```text
//!              programs (client)                administrators (client)
//!                  | system calls, or volumes         | verbs, as values
//!                  |     (machine/volume)             |
//!   kernel (machine/kernel) <-- notices --.           |
//!                  | FUSE, in bytes       |           |
//!                  daemon: host, control, serve, agent, engine ... as they ship (machine/daemon)
//!                  |
//!   disks (machine/disk), which lose unflushed data when the power fails, and get into trouble
//!   (machine/faults)
//!
//!   each call, its beginning and its end --> oracle: does any order of the calls explain it? (oracle, model)
//! ```
//!
//! Idea: the worst faults lie between parts, so all run at once, in one thread, under a virtual clock; every
//! choice comes from one seed. A seed that fails is a test.
//!
//! Read in this order: [`model`] (the right behaviour), [`oracle`] (which histories are right), [`machine`],
//! [`client`], [`life`], [`world`] (all of it).

pub mod client;
pub mod hosts;
pub mod layout;
pub mod less;
pub mod life;
pub mod log;
pub mod look;
pub mod machine;
pub mod model;
pub mod oracle;
pub mod pairs;
pub mod record;
pub mod scene;
pub mod shrink;
pub mod small;
pub mod timeline;
pub mod world;

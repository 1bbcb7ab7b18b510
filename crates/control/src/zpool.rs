//! The verbs of `zpool`, a file each.
//!
//! `work` takes time: scrubs, resilvers, passes over free space, and waiting for them. Devices come by
//! `joining`, in a `layout`; `leaves` go out of use, come back, or leave. `properties` are set. `whole`: what
//! is done with a pool. `shown`: what is to be seen of pools.

pub mod joining;
pub mod layout;
pub mod leaves;
pub mod properties;
pub mod shown;
pub mod whole;
pub mod work;

//! The verbs of `zpool`, one file each.
//!
//! `activity` takes time: scrubs, resilvers, passes over free space, and waiting for them. Devices come by
//! `joining`, in a `layout`; `leaves` go out of use, come back, or leave. `properties` are set. `whole`:
//! operations on whole pools. `shown`: displays of pools.

pub mod activity;
pub mod joining;
pub mod layout;
pub mod leaves;
pub mod properties;
pub mod shown;
pub mod whole;

//! Files of pools, as requests name them: by [`Target`]s.

mod target;

pub use target::{Target, split_path};

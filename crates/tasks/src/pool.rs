//! Sync tasks on the pool as a whole: its vdevs, properties, features and checkpoint; and the first of all.

pub(crate) mod attach;
pub(crate) mod autotrim;
pub(crate) mod auxiliary;
pub(crate) mod checkpoint;
pub(crate) mod create;
pub(crate) mod detach;
pub(crate) mod errors;
pub(crate) mod expand;
pub(crate) mod expansion;
pub(crate) mod features;
pub(crate) mod health;
pub(crate) mod leaves;
pub(crate) mod mend;
pub(crate) mod passes;
pub(crate) mod rebuild;
pub(crate) mod reguid;
pub(crate) mod removal;
pub(crate) mod remove_log;
pub(crate) mod scan;
pub(crate) mod settings;
pub(crate) mod sparing;
pub(crate) mod split;
pub(crate) mod take_tree;
pub(crate) mod tree;
pub(crate) mod upgrade;
pub(crate) mod vdevs;

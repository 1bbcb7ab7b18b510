//! Changes to the tables of shared blocks: deduplication (DDT) and cloning (BRT). `cenote_dataset::sharing`
//! reads them.

mod clones;
pub(crate) mod dedup;
pub(crate) mod quota;
pub(crate) mod release;
pub(crate) mod tables;

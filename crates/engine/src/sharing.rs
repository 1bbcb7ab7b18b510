//! Blocks with several owners, as txgs change them: deduplication tables (DDT) and references of cloned
//! blocks (BRT). How they are read is in `cenote_dataset::sharing`.

mod clones;
pub(crate) mod dedup;
pub(crate) mod release;
pub(crate) mod tables;

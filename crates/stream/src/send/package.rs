//! Packages: many streams, and their common head.

mod gather;
mod order;
mod props;

pub(super) use gather::{Family, gather};
pub(super) use order::Order;

//! Packages: many streams, and the list that they begin with.

mod gather;
mod order;
mod props;

pub(super) use gather::{Family, gather};
pub(super) use order::Order;

//! Answers about files in pools, with the layout of `ls`, `stat` and `du`.

pub mod copy;
pub mod du;
pub mod find;
pub(crate) mod line;
pub mod ls;
pub mod stat;

pub use line::Shape;

//! File tree workloads: trees of empty folders, empty files or files of a size are created, looked at, read, copied and deleted by several
//! workers.
//!
//! A [`Shape`] says where each leaf of a tree is, from its number alone: no list of names is kept, and a tree made for a fixed time has the
//! leaves `0..made`. [`Tree`] is such a tree on a file system; a [`TreeWork`] does [`Step`]s on one, of which those
//! that are measured give a stream each (a copy one for each thing that it does to a file).
//!
//! Invariants: all is made below the folder that the work was given, and is gone when the work ends. A step with a time limit also ends, with a note, before it has filled half of
//! the room that the file system had.

mod copy;
mod reads;
mod room;
mod shape;
mod steps;
mod work;

pub use reads::DiskReads;
pub use shape::{Leaf, Names, Shape};
pub use steps::{Done, How, Tree};
pub use work::{Order, Step, TreeWork, Verb};

#[cfg(test)]
mod tests;

//! File tree workloads: several workers create, stat, read, copy and delete trees of empty folders, empty
//! files or files of a given size.
//!
//! A [`Shape`] computes the position of each leaf from its number alone: no list of names is needed, and a
//! tree built for a fixed time has the leaves `0..made`. A [`Tree`] is such a tree on a file system. A
//! [`TreeWork`] runs [`Step`]s on one; each measured step gives a stream (a copy one for each action on a
//! file).
//!
//! Invariants: everything is created below the given folder, and removed at the end. A step with a time limit
//! also ends, with a note, before it fills half of the initially free space.

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

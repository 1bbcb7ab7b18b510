//! Datasets: the tree of names, its snapshots and clones, properties and space (DSL).
//!
//! Idea: two kinds of nodes. A [`Dir`] is a name in the tree: it has a parent, children, properties and accounts. A
//! [`Dataset`] is one version of content: each directory has a head, and behind it the chain of its snapshots. A clone's
//! chain goes on into the snapshot it was made from.
//!
//! ```text
//!   Dir "pool" ── child ── Dir "pool/a" ── child ── Dir "pool/a/b"
//!     |                      | head
//!     .                    Dataset "pool/a" ──prev──> "pool/a@s2" ──prev──> "pool/a@s1" ──> $ORIGIN
//! ```
//!
//! Names that begin with `$` or contain `%` are OpenZFS's own and are not listed.
//!
//! Source: OpenZFS `dsl_dir.c`, `dsl_dataset.c`, `dsl_prop.c`, `dsl_bookmark.c`, `dsl_userhold.c`.

pub(crate) mod account;
pub mod bookmark;
mod dataset;
mod dir;
mod family;
pub(crate) mod make;
mod space;

pub use bookmark::Bookmark;
pub use dataset::{Dataset, DatasetKind};
pub use dir::Dir;
pub use space::Space;

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
//! Changes are methods of [`crate::engine::Engine`], one module each (`create`, `set`, `rename`, `snapshot`, `destroy`, ...). Each runs as a task
//! of the group that is written, and checks before it changes anything; `make` and `account` are what they share.
//!
//! Names that begin with `$` or contain `%` are OpenZFS's own and are not listed.
//!
//! Source: OpenZFS `dsl_dir.c`, `dsl_dataset.c`, `dsl_prop.c`, `dsl_bookmark.c`, `dsl_userhold.c`.

pub(crate) mod account;
pub mod bookmark;
mod change_key;
mod clone;
mod counts;
mod create;
pub(crate) mod crypt;
mod dataset;
mod deadlists;
mod destroy;
mod destroy_snapshot;
mod dir;
mod family;
mod hold;
mod livelist;
pub(crate) mod make;
mod mark;
mod name;
mod promote;
mod reclaim;
mod remapped;
mod rename;
mod rollback;
mod set;
mod snapshot;
mod space;

pub use bookmark::Bookmark;
pub use create::Settings;
pub(crate) use create::is_case_insensitive;
pub use dataset::{Dataset, DatasetKind};
pub use destroy_snapshot::InUse;
pub use dir::Dir;
pub(crate) use set::not_enabled;
pub use set::{Instead, check_settings};
pub use space::Space;

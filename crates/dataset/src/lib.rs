//! An imported pool and its datasets on disk: OpenZFS's DSL and the reading side of its SPA.
//!
//! ```text
//!   FoundPool --import--> Mos --dataset("pool/a@s")--> Dataset --objset--> Objset (cenote-object)
//!                          |  config, features,          |  properties, space,
//!                          |  history, error log,        |  snapshots, clones,
//!                          |  space maps, dedup          |  keys, bookmarks, holds
//!                          '- root_dir --> Dir: a name in the tree, its parent, children and accounts
//! ```
//!
//! The dataset tree has two kinds of nodes. A [`Dir`] is a name, with parent, children, properties and
//! accounting. A [`Dataset`] is one version of content: each directory has a head and, behind it, the chain
//! of its snapshots. A clone's chain continues into its origin snapshot.
//!
//! ```text
//!   Dir "pool" ── child ── Dir "pool/a" ── child ── Dir "pool/a/b"
//!     |                      | head
//!     .                    Dataset "pool/a" ──prev──> "pool/a@s2" ──prev──> "pool/a@s1" ──> $ORIGIN
//! ```
//!
//! Names that begin with `$` or contain `%` are internal to OpenZFS and not listed.
//!
//! This crate only reads; `cenote-engine` and `cenote-tasks` write. Read in this order: [`mod@import`],
//! [`mos`], [`dataset`], [`dir`], then [`properties`], [`keys`], [`spacemaps`], [`sharing`], then the rest.
//!
//! Source: OpenZFS `dsl_dir.c`, `dsl_dataset.c`, `dsl_prop.c`, `dsl_bookmark.c`, `dsl_userhold.c`, `spa.c`.
#![forbid(unsafe_code)]

pub mod bookmark;
mod capacity;
pub mod dataset;
pub mod delegation;
pub mod dir;
pub mod errlog;
mod family;
pub mod history;
pub mod import;
pub mod keys;
pub mod mos;
pub mod name;
pub mod properties;
mod reclaim;
mod removal;
mod salvage;
pub mod sharing;
pub mod space;
pub mod spacemaps;
pub mod traverse;
pub mod usage;

pub use bookmark::Bookmark;
pub use capacity::setting_in;
pub use dataset::{Dataset, DatasetKind};
pub use delegation::{Credentials, Delegated, Subject};
pub use dir::Dir;
pub use import::{ImportOptions, Rewind, import};
pub use keys::{EncryptionInfo, KeySource, KeyStatus, UserKey};
pub use mos::{FeatureState, Mos};
pub use properties::{Property, Source, Value};

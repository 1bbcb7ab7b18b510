//! The daemon's HTTP server: an API for every command, metrics, and a web page.
//!
//! ```text
//!   /                     the page (static files; its data comes from the API)
//!   /v1/zfs/list ...      the verb `zfs list`: its request, and its answer, in JSON
//!   /v1/openapi.json      description of all verbs with their types
//!   /metrics              Prometheus metrics, under the names that dashboards use
//! ```
//!
//! Idea: verbs are values. The API, its description and its rights come from the table of verbs
//! (`cenote_control::table`), so a new verb appears here by itself. A request runs its verb in the daemon,
//! exactly as the socket does; this crate knows no verb.
//!
//! Read in this order: [`server`] (from connection to answer), [`access`] (tokens and roles), `room`
//! (concurrent verbs), [`catalogue`] (verbs and their types), `fields` (requests in a query), `answer`,
//! [`openapi`], [`metrics`], [`page`].

pub mod access;
mod answer;
pub mod catalogue;
mod fields;
pub mod metrics;
pub mod openapi;
mod page;
mod patient;
mod room;
pub mod server;

pub use access::{Access, Tokens};
pub use server::HttpServer;

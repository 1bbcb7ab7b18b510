//! Permissions of users and groups: verbs that delegate them, show them, and take them back.

pub mod allow;
pub mod grant;
pub mod unallow;

//! The space and quotas of users, groups and projects in a file system.

pub mod groupspace;
pub mod owners;
pub mod projectspace;
pub mod userspace;

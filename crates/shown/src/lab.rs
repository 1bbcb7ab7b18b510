//! Answers of the lab: comparisons, studies, runs in progress, alerts.

pub mod alert;
pub mod compare;
pub mod live;
pub mod study;

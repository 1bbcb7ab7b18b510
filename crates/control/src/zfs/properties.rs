//! Properties of datasets: verbs that set and clear them, and how values are read.

pub mod inherit;
pub mod quota;
pub mod set;
pub mod settings;
pub mod upgrade;
pub mod volume_size;

//! Fields of on-disk structures, written as text for people or as JSON for programs while they are read.

mod json;
mod text;

pub use json::Json;
pub use text::Text;

//! Fuzz targets: one function a parser, fed with bytes that may be anything.
//!
//! A target must not panic, must end within a second, and must not hold more memory than its bound allows for the
//! length of its input. Where a structure can be encoded, a target also asserts that what was decoded comes back the
//! same: a parser that reads something else than it would write is as wrong as one that panics.
//!
//! Two drivers run them: the program `cenote-fuzz` (stable Rust; see `main.rs`) and a test that runs the corpus
//! (`tests/corpus.rs`). The corpus is `corpus/TARGET/*`: small real structures taken from golden pools by
//! `examples/extract.rs`, and every input that ever failed.

pub mod alloc;
pub mod corpus;
pub mod mutate;
pub mod targets;

/// One parser under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Parses.
    pub run: fn(&[u8]),
    /// Bytes that it may hold at any time beyond [`BYTES_PER_INPUT_BYTE`] times its input.
    pub spare_bytes: usize,
}

/// What parsing may hold for each byte of input. Decoded values are larger than packed ones: the smallest
/// nvlist pair has 24 bytes and becomes a name, a variant and their places in a vector.
pub const BYTES_PER_INPUT_BYTE: usize = 64;

impl Target {
    /// Bytes that may be held while parsing an input of this length.
    pub fn bound_bytes(&self, input_bytes: usize) -> usize {
        BYTES_PER_INPUT_BYTE * input_bytes + self.spare_bytes
    }
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    targets::TARGETS.iter().find(|target| target.name == name)
}

//! Fuzz targets: one function per parser, fed with arbitrary bytes.
//!
//! A target must not panic, must end within a second, and must not allocate more than its bound for the
//! input's length. Targets for structures that can be encoded also assert a round trip: a parser that reads
//! something other than it would write is as wrong as one that panics.
//!
//! Two drivers run the targets: the program `cenote-fuzz` (stable Rust; see `main.rs`) and a test of the
//! corpus (`tests/corpus.rs`). The corpus is `corpus/TARGET/*`: small real structures taken from golden pools
//! by `examples/extract`, and every input that ever failed.

pub mod alloc;
pub mod corpus;
pub mod coverage;
pub mod flatten;
pub mod forged;
pub mod mutate;
pub mod targets;

/// One parser under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of the target and of its corpus folder.
    pub name: &'static str,
    /// Runs the parser.
    pub run: fn(&[u8]),
    /// Bytes allowed beyond [`BYTES_PER_INPUT_BYTE`] times the input's length.
    pub spare_bytes: usize,
}

/// Allocation allowed per input byte. Decoded values are larger than packed ones: the smallest nvlist pair
/// has 24 bytes and becomes a name, a variant and their slots in a vector.
pub const BYTES_PER_INPUT_BYTE: usize = 64;

impl Target {
    /// Allocation bound for an input length.
    pub fn bound_bytes(&self, input_bytes: usize) -> usize {
        BYTES_PER_INPUT_BYTE * input_bytes + self.spare_bytes
    }
}

/// Finds a target.
pub fn target(name: &str) -> Option<&'static Target> {
    targets::TARGETS.iter().find(|target| target.name == name)
}

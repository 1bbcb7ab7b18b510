//! Content for tests, and searches for it in images.
//!
//! Idea: tests are compiled without optimisation, in which a loop over an image takes seconds. This crate is
//! optimised.

/// Incompressible bytes, generated from a seed.
#[must_use]
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// All places of `wanted` in an image, ascending.
#[must_use]
pub fn places_of(wanted: &[u8], image: &[u8]) -> Vec<usize> {
    let windows = image.windows(wanted.len()).enumerate();
    windows.filter(|(_, window)| *window == wanted).map(|(place, _)| place).collect()
}

//! Computational kernels: checksums, compression, encryption and RAID-Z parity.
//!
//! Every function here turns bytes into bytes. Nothing knows what the bytes mean beyond what the
//! transformation itself needs, nothing does I/O, keeps time or starts a task; so each kernel can be
//! tested against a published vector, and a vectorised one against its portable twin.
//!
//! Where to start reading:
//!
//! | module | holds |
//! |---|---|
//! | [`checksum`] | the checksum of a block pointer and the one embedded in a block's tail |
//! | [`compress`] | the compressors of a block pointer |
//! | [`crypto`] | block ciphers, key derivation, and which bytes of a block are encrypted |
//! | [`fletcher`] | fletcher2 and fletcher4, both byte orders |
//! | [`raidz`] | RAID-Z parity and reconstruction |

pub mod checksum;
pub mod compress;
pub mod crypto;
pub mod fletcher;
pub mod raidz;

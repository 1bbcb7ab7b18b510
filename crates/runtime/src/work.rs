//! CPU work and its cost: the engine names the work, the simulator prices it.
//!
//! A price is `fixed + bytes * rate`, on one core. The defaults are round figures for a current server (3
//! GHz, AVX2); the lab replaces them with measurements.

use std::num::NonZeroU64;

/// A kind of CPU work on a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // each variant is the name of an algorithm or step
pub enum WorkKind {
    Fletcher2,
    Fletcher4,
    Sha256,
    Sha512,
    Skein,
    EdonR,
    Blake3,
    CompressLzjb,
    CompressZle,
    CompressGzip,
    CompressLz4,
    CompressZstd,
    DecompressLzjb,
    DecompressZle,
    DecompressGzip,
    DecompressLz4,
    DecompressZstd,
    AesCcm,
    AesGcm,
    ParityGenerate,
    ParityReconstruct,
    /// Decoding a structure: dnodes, ZAP leaves, nvlists.
    Parse,
    /// Moving bytes in memory.
    Copy,
}

impl WorkKind {
    /// Every kind, in the order of the discriminants.
    pub const ALL: [WorkKind; 23] = {
        use WorkKind::*;
        [
            Fletcher2,
            Fletcher4,
            Sha256,
            Sha512,
            Skein,
            EdonR,
            Blake3,
            CompressLzjb,
            CompressZle,
            CompressGzip,
            CompressLz4,
            CompressZstd,
            DecompressLzjb,
            DecompressZle,
            DecompressGzip,
            DecompressLz4,
            DecompressZstd,
            AesCcm,
            AesGcm,
            ParityGenerate,
            ParityReconstruct,
            Parse,
            Copy,
        ]
    };

    /// One core, in MB (10^6 bytes) per second.
    const fn default_mb_per_s(self) -> NonZeroU64 {
        use WorkKind::*;
        let mb_per_s = match self {
            Fletcher2 | Fletcher4 | Copy => 10_000,
            Sha256 => 1_500,
            Sha512 => 800,
            Skein => 700,
            EdonR => 1_800,
            Blake3 => 3_500,
            CompressLzjb => 300,
            CompressZle | DecompressZle => 2_000,
            CompressGzip => 50,
            CompressLz4 => 700,
            CompressZstd => 400,
            DecompressLzjb => 600,
            DecompressGzip => 450,
            DecompressLz4 => 3_000,
            DecompressZstd => 1_200,
            AesCcm => 800,
            AesGcm => 3_000,
            ParityGenerate => 8_000,
            ParityReconstruct => 4_000,
            Parse => 2_000,
        };
        NonZeroU64::new(mb_per_s).expect("no rate above is zero")
    }
}

/// The price of a kind of work on one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Nanoseconds per call, before its first byte.
    pub fixed_ns: u64,
    /// Picoseconds per byte: 1,000,000 divided by the rate in MB/s.
    pub ps_per_byte: u64,
}

impl Cost {
    /// The price at this many MB (10^6 bytes) per second.
    pub const fn at_mb_per_s(fixed_ns: u64, mb_per_s: NonZeroU64) -> Cost {
        Cost { fixed_ns, ps_per_byte: 1_000_000 / mb_per_s.get() }
    }

    /// Nanoseconds for this many bytes.
    pub fn total_ns(self, bytes: u64) -> u64 {
        let variable_ns = u128::from(bytes) * u128::from(self.ps_per_byte) / 1000;
        self.fixed_ns.saturating_add(u64::try_from(variable_ns).unwrap_or(u64::MAX))
    }
}

/// The price list of a modelled core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostModel {
    costs: [Cost; WorkKind::ALL.len()],
}

impl CostModel {
    /// All work is free: for tests of logic only.
    pub fn free() -> CostModel {
        CostModel { costs: [Cost { fixed_ns: 0, ps_per_byte: 0 }; WorkKind::ALL.len()] }
    }

    /// The same list with one price replaced.
    pub fn with(mut self, kind: WorkKind, cost: Cost) -> CostModel {
        self.costs[kind as usize] = cost;
        self
    }

    /// The price of a kind of work.
    pub fn cost(&self, kind: WorkKind) -> Cost {
        self.costs[kind as usize]
    }
}

impl Default for CostModel {
    fn default() -> CostModel {
        CostModel { costs: WorkKind::ALL.map(|kind| Cost::at_mb_per_s(100, kind.default_mb_per_s())) }
    }
}

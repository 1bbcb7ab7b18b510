//! Run-time choice of the RAID-Z and Fletcher implementation.
//!
//! Invariant: a [`Kernel`] exists only where the processor has its instruction set. The vector code of
//! [`raidz`](crate::raidz) and [`fletcher`](crate::fletcher) relies on this, so only this file can create
//! one.

/// An implementation that this machine can run. All give identical results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(InstructionSet);

/// Instruction set of a [`Kernel`]. Fletcher does not use GFNI, which multiplies in RAID-Z's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionSet {
    Avx512Gfni,
    Avx512,
    Avx2Gfni,
    Avx2,
    Portable,
}

/// Fastest first.
const ALL: [InstructionSet; 5] = [
    InstructionSet::Avx512Gfni,
    InstructionSet::Avx512,
    InstructionSet::Avx2Gfni,
    InstructionSet::Avx2,
    InstructionSet::Portable,
];

impl Kernel {
    /// Supported kernels, fastest first.
    pub fn available() -> impl Iterator<Item = Kernel> {
        ALL.into_iter().filter(|set| set.is_supported()).map(Kernel)
    }

    /// Fastest supported kernel.
    #[must_use]
    pub fn best() -> Kernel {
        Kernel::available().next().unwrap_or(Kernel(InstructionSet::Portable))
    }

    /// Short name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            InstructionSet::Avx512Gfni => "avx512+gfni",
            InstructionSet::Avx512 => "avx512",
            InstructionSet::Avx2Gfni => "avx2+gfni",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Portable => "portable",
        }
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) fn instruction_set(self) -> InstructionSet {
        self.0
    }
}

impl InstructionSet {
    #[cfg(target_arch = "x86_64")]
    fn is_supported(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let gfni = is_x86_feature_detected!("gfni");
        match self {
            InstructionSet::Avx512Gfni => avx512 && gfni,
            InstructionSet::Avx512 => avx512,
            InstructionSet::Avx2Gfni => avx2 && gfni,
            InstructionSet::Avx2 => avx2,
            InstructionSet::Portable => true,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_supported(self) -> bool {
        self == InstructionSet::Portable
    }
}

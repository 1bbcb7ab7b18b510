//! Which implementation of the sums runs: chosen at run time from what the processor offers.

use super::portable;
#[cfg(target_arch = "x86_64")]
use super::x86::Extension;

/// An implementation of the Fletcher checksums that this machine can run. All give the same sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Implementation);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Implementation {
    #[cfg(target_arch = "x86_64")]
    X86(Extension),
    Portable,
}

impl Kernel {
    /// Every kernel this machine can run, the fastest first.
    pub fn available() -> impl Iterator<Item = Kernel> {
        #[cfg(target_arch = "x86_64")]
        let vectorised = Extension::ALL.into_iter().filter(|extension| extension.is_supported());
        #[cfg(target_arch = "x86_64")]
        let vectorised = vectorised.map(|extension| Kernel(Implementation::X86(extension)));
        #[cfg(not(target_arch = "x86_64"))]
        let vectorised = std::iter::empty();
        vectorised.chain([Kernel(Implementation::Portable)])
    }

    /// The fastest kernel this machine can run.
    #[must_use]
    pub fn best() -> Kernel {
        Kernel::available().next().unwrap_or(Kernel(Implementation::Portable))
    }

    /// A short name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Implementation::X86(extension) => extension.name(),
            Implementation::Portable => "portable",
        }
    }

    /// [`fletcher2`](super::fletcher2) with this kernel.
    #[must_use]
    pub fn fletcher2(self, data: &[u8], byteswap: bool) -> [u64; 4] {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Implementation::X86(extension) => {
                let (sums, rest) = extension.fletcher2(data, byteswap);
                portable::fletcher2(sums, rest, byteswap)
            }
            Implementation::Portable => portable::fletcher2([0; 4], data, byteswap),
        }
    }

    /// [`fletcher4`](super::fletcher4) with this kernel.
    #[must_use]
    pub fn fletcher4(self, data: &[u8], byteswap: bool) -> [u64; 4] {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Implementation::X86(extension) => {
                let (sums, rest) = extension.fletcher4(data, byteswap);
                portable::fletcher4(sums, rest, byteswap)
            }
            Implementation::Portable => portable::fletcher4([0; 4], data, byteswap),
        }
    }
}

//! Which implementation of *combine* runs: chosen at run time from what the processor offers.

use super::combine::Term;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::x86::Extension;

/// An implementation of the RAID-Z arithmetic that this machine can run. All give the same bytes.
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

    /// One part of a combination: all targets and sources are equally long.
    pub(super) fn combine(self, targets: &mut [&mut [u8]], terms: &[Term<'_>]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Implementation::X86(extension) => extension.combine(targets, terms),
            Implementation::Portable => portable::combine(targets, terms, 0),
        }
    }
}

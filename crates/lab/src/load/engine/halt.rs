//! Whether workers continue: the run may be stopped, or one has failed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::load::control::Control;
use crate::{LabError, Result};

#[derive(Debug)]
pub(super) struct Halt<'a> {
    pub control: &'a Control,
    /// A worker failed: the others stop.
    failed: AtomicBool,
}

impl<'a> Halt<'a> {
    pub fn new(control: &'a Control) -> Halt<'a> {
        Halt { control, failed: AtomicBool::new(false) }
    }

    pub fn fail(&self) {
        self.failed.store(true, Relaxed);
    }

    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.failed.load(Relaxed) { Err(LabError::Interrupted) } else { self.control.check() }
    }
}

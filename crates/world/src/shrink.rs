//! Shrinking: from a wrong world to a smaller one, wrong in the same way.
//!
//! ```text
//!   calls ... cuts ... clients ... kinds of calls and troubles ... single choices    repeated while it helps
//! ```
//!
//! Idea: each step leaves something out and stays if the world is still wrong. The rest then takes another
//! course, so a failed step may succeed later. Choices are left out in runs, long ones first.
//!
//! Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002).

use std::io::Result;

use crate::less::{Choice, Less, Part};
use crate::world::{Params, Report, run};

/// A wrong world, and the number of worlds run to find it.
pub struct Shrunk {
    /// The world.
    pub params: Params,
    /// What happens in it.
    pub report: Report,
    /// Worlds run.
    pub runs: u64,
}

struct Shrinker {
    best: Shrunk,
    /// The beginning of the fault's description.
    fault: String,
    runs_max: u64,
}

/// Shrinks a world; `None`: it is right.
///
/// # Errors
/// The host's file system.
pub fn shrink(params: Params, runs_max: u64) -> Result<Option<Shrunk>> {
    let report = run(params.clone())?;
    let Some(violation) = &report.violation else { return Ok(None) };
    let fault = kind_of(&violation.0);
    let mut shrinker = Shrinker { best: Shrunk { params, report, runs: 1 }, fault, runs_max };
    while shrinker.round()? {}
    Ok(Some(shrinker.best))
}

/// The part of a description that does not depend on numbers.
fn kind_of(violation: &str) -> String {
    let line = violation.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_ascii_digit()).take(40).collect()
}

impl Shrinker {
    /// One attempt at everything; returns whether something could be left out.
    fn round(&mut self) -> Result<bool> {
        let calls = self.calls()?;
        let cuts = self.cuts()?;
        let clients = self.clients()?;
        let kinds = self.kinds()?;
        Ok(self.choices()? || calls || cuts || clients || kinds)
    }

    /// Tries a smaller world; returns whether it is wrong in the same way.
    fn attempt(&mut self, change: impl FnOnce(&mut Params)) -> Result<bool> {
        let mut params = self.best.params.clone();
        change(&mut params);
        if params == self.best.params || self.best.runs >= self.runs_max {
            return Ok(false);
        }
        self.best.runs += 1;
        let report = run(params.clone())?;
        let is_wrong = report.violation.as_ref().is_some_and(|found| kind_of(&found.0) == self.fault);
        if is_wrong {
            (self.best.params, self.best.report) = (params, report);
        }
        Ok(is_wrong)
    }

    fn calls(&mut self) -> Result<bool> {
        let before = self.best.params.calls;
        for eighths in [1, 2, 4, 6, 7] {
            let most = self.best.params.calls.min(self.best.report.calls.max(1));
            if self.attempt(|params| params.calls = most * eighths / 8)? {
                break;
            }
        }
        Ok(self.best.params.calls < before)
    }

    fn cuts(&mut self) -> Result<bool> {
        for fewer in 0..self.best.params.cuts {
            if self.attempt(|params| params.cuts = fewer)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn clients(&mut self) -> Result<bool> {
        let mut is_less = false;
        let counts: [fn(&mut Less) -> &mut Option<usize>; 3] =
            [|less| &mut less.admins, |less| &mut less.volumes, |less| &mut less.posix];
        for of in counts {
            for most in 0..4 {
                let is_fewer = of(&mut self.best.params.less).is_none_or(|now| most < now);
                if is_fewer && self.attempt(|params| *of(&mut params.less) = Some(most))? {
                    is_less = true;
                    break;
                }
            }
        }
        Ok(is_less)
    }

    fn kinds(&mut self) -> Result<bool> {
        let kinds: Vec<_> = self.best.report.kinds.clone();
        self.runs(&kinds, |less, left_out| less.kinds.extend(left_out))
    }

    fn choices(&mut self) -> Result<bool> {
        let of = |(client, count): (&usize, &u64)| {
            let client = *client;
            (0..*count).map(move |number| Part { of: client, number })
        };
        let all = self.best.report.choices.iter().flat_map(of);
        let left: Vec<Choice> = all.filter(|one| !self.best.params.less.choices.contains(one)).collect();
        self.runs(&left, |less, left_out| less.choices.extend(left_out))
    }

    /// Leaves out runs of parts: half of them, quarters ... single ones.
    fn runs<T: Copy>(&mut self, parts: &[T], leave_out: impl Fn(&mut Less, Vec<T>)) -> Result<bool> {
        let (mut left, mut is_less) = (parts.to_vec(), false);
        let mut len = left.len();
        while len > 0 {
            let mut at = 0;
            while at < left.len() {
                let end = (at + len).min(left.len());
                let run: Vec<T> = left[at..end].to_vec();
                if self.attempt(|params| leave_out(&mut params.less, run))? {
                    left.drain(at..end);
                    is_less = true;
                } else {
                    at = end;
                }
            }
            len /= 2;
        }
        Ok(is_less)
    }
}

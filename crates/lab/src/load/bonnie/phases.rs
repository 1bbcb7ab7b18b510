//! Phases in order: the streams and processor use of each.

use std::time::Instant;

use crate::Result;
use crate::load::measurement::tally::nanoseconds;
use crate::load::measurement::{CpuTime, Figure, Outcome, Stream, Tally, Tool};
use crate::unit::Unit;

#[derive(Debug, Default)]
pub struct Phases {
    cpu: CpuTime,
    streams: Vec<Stream>,
    others: Vec<Figure>,
    pub notes: Vec<String>,
}

impl Phases {
    /// Runs a phase whose operations are all of one kind.
    pub fn phase(&mut self, name: &str, work: impl FnOnce(Instant) -> Result<Tally>) -> Result<()> {
        let (began, cpu) = (Instant::now(), CpuTime::of_process());
        let tally = work(began)?;
        let elapsed_ns = nanoseconds(Instant::now(), began);
        let cpu = CpuTime::of_process().since(cpu);
        self.streams.push(tally.into_stream(name, elapsed_ns));
        let percent = cpu.total_ns() as f64 * 100.0 / elapsed_ns.max(1) as f64;
        self.others.push(Figure::lower(format!("{name}.cpu"), percent, Unit::Percent));
        self.cpu.add(cpu);
        Ok(())
    }

    pub fn outcome(self) -> Outcome {
        let Phases { cpu, streams, others, notes } = self;
        Outcome { tool: Tool::cenote(), cpu: Some(cpu), streams, others, notes }
    }
}

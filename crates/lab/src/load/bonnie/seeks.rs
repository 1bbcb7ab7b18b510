//! Random seeks: several seekers read blocks anywhere in the large file, and rewrite a tenth of them.

use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::blocks::Blocks;
use crate::Result;
use crate::load::control::crew::Crew;
use crate::load::measurement::Tally;
use crate::load::workload::random::Random;

/// One block in this many is changed and written back.
const WRITTEN_OF: u64 = 10;

impl Blocks<'_> {
    /// Runs all seeks of all seekers; writes are made durable at the end.
    pub fn seek(&self, begun: Instant) -> Result<Tally> {
        let file = self.open()?;
        let crew = Crew { workers: self.bonnie.seekers, until: None, at_once: 1, control: self.control };
        let state = |_| Ok((Tally::new(begun), self.buffer()));
        let (seekers, _) = crew.each(
            self.bonnie.seeks,
            || true,
            state,
            |(tally, block), number| {
                let at = Random::new(self.bonnie.seed, number).below(self.count()) * self.bytes();
                let visit = || {
                    file.read_exact_at(block, at)?;
                    if number % WRITTEN_OF == 0 {
                        block[0] = block[0].wrapping_add(1);
                        file.write_all_at(block, at)?;
                    }
                    Ok(())
                };
                tally.time(self.bytes(), visit).map_err(self.failed())
            },
        )?;
        file.sync_all().map_err(self.failed())?;
        let mut tally = Tally::new(begun);
        seekers.iter().for_each(|(seeker, _)| tally.add(seeker));
        Ok(tally)
    }
}

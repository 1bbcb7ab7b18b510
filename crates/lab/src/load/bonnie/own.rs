//! The lab's own implementation of bonnie's tests.

use std::path::Path;
use std::time::Instant;

use super::Bonnie;
use super::blocks::Blocks;
use super::phases::Phases;
use crate::load::control::Control;
use crate::load::measurement::{Outcome, Tally};
use crate::load::target::Scratch;
use crate::load::tree::{Done, How, Leaf, Names, Order, Shape, Tree};
use crate::{LabError, Result};

/// Runs all phases in its own folder in `place`.
pub fn run(bonnie: &Bonnie, place: &Path, control: &Control) -> Result<Outcome> {
    let scratch = Scratch::new(place)?;
    let mut phases = Phases::default();
    blocks(bonnie, scratch.path(), control, &mut phases)?;
    for (order, names, prefix) in
        [(Order::Sequential, Names::Sequential, "sequential"), (Order::Random, Names::Random, "random")]
    {
        files(bonnie, scratch.path(), control, &mut phases, order, names, prefix)?;
    }
    Ok(phases.outcome())
}

type Phase = fn(&Blocks<'_>, Instant) -> Result<Tally>;

fn blocks(bonnie: &Bonnie, place: &Path, control: &Control, phases: &mut Phases) -> Result<()> {
    let blocks = Blocks { path: place.join("blocks"), bonnie, control };
    let all: [(&str, Phase); 4] = [
        ("write", |blocks, begun| blocks.write(begun)),
        ("rewrite", |blocks, begun| blocks.rewrite(begun)),
        ("read", |blocks, begun| blocks.read(begun)),
        ("seek", |blocks, begun| blocks.seek(begun)),
    ];
    for (name, phase) in all {
        if bonnie.fits_in_memory && name != "write" {
            let note = blocks.forget()?;
            phases.notes.extend(note.filter(|note| !phases.notes.contains(note)));
        }
        control.doing(name);
        phases.phase(name, |begun| phase(&blocks, begun))?;
    }
    std::fs::remove_file(&blocks.path).map_err(blocks.failed())
}

/// Empty files in one folder, by one worker.
fn files(
    bonnie: &Bonnie,
    place: &Path,
    control: &Control,
    phases: &mut Phases,
    order: Order,
    names: Names,
    prefix: &str,
) -> Result<()> {
    let leaf = Leaf::File { bytes: 0 };
    let shape = Shape { leaf, count: bonnie.files, per_folder: 1, depth: 0, names, seed: bonnie.seed };
    let mut tree = Tree::new(shape, place.join(prefix));
    let how = How { workers: 1, order, until: None, control };
    let mut phase = |what: &str, step: &mut dyn FnMut() -> Result<Done>| {
        let name = format!("{prefix}-{what}");
        control.doing(name.clone());
        phases.phase(&name, |begun| {
            let done = step()?;
            let mut tally = Tally::new(begun);
            done.tallies.iter().for_each(|(_, part)| tally.add(part));
            Ok(tally)
        })
    };
    phase("create", &mut || tree.create(how))?;
    phase("stat", &mut || tree.stat(how))?;
    phase("delete", &mut || tree.delete(how))
}

/// Refuses a data set that does not fit.
pub fn check_room(bonnie: &Bonnie, place: &Path) -> Result<()> {
    use crate::unit::Unit;
    let said = rustix::fs::statvfs(place).map_err(std::io::Error::from);
    let said = said.map_err(LabError::io(place.display().to_string()))?;
    let free = said.f_bavail.saturating_mul(said.f_frsize);
    if free > bonnie.size_bytes {
        return Ok(());
    }
    let show = |bytes: u64| Unit::Bytes.show(bytes as f64);
    Err(LabError::Refused(format!(
        "{}: the data set needs {}, but only {} are free; choose a smaller one with --size",
        place.display(),
        show(bonnie.size_bytes),
        show(free)
    )))
}

//! bonnie's tests by the real bonnie++.

use std::path::Path;
use std::process::Command;

use super::{Bonnie, csv};
use crate::load::control::Control;
use crate::load::measurement::{Outcome, Tool};
use crate::load::program;
use crate::load::target::Scratch;
use crate::{LabError, Result};

/// Runs it in its own folder in `place`.
pub fn run(bonnie: &Bonnie, place: &Path, control: &Control) -> Result<Outcome> {
    let Some(program) = program::find(&["bonnie++"]) else {
        return Err(LabError::Refused("bonnie++ is not installed (package bonnie++)".into()));
    };
    let scratch = Scratch::new(place)?;
    let mut command = Command::new(program);
    let Bonnie { block_bytes, seeks, seekers, .. } = bonnie;
    command
        .arg("-d")
        .arg(scratch.path())
        .args(["-s", &format!("{}M:{block_bytes}:{seeks}:{seekers}", bonnie.size_bytes >> 20)])
        .args(["-n", &format!("{}:0:0:1", bonnie.files / 1024)])
        // Skip the per-character tests and the memory check; print only CSV to standard output.
        .args(["-f", "-r", "0", "-q", "-m", "cenote", "-z", &bonnie.seed.to_string()]);
    if rustix::process::geteuid().is_root() {
        // bonnie++ refuses to run as root unless told to. The folder is new and private.
        command.args(["-u", "root:root"]);
    }
    control.doing("bonnie++");
    let list = scratch.path().join("bonnie.csv");
    let ran = program::run(&mut command, &list, control)?.well("bonnie++")?;
    let text = std::fs::read_to_string(&list).map_err(LabError::io("output of bonnie++"))?;
    let told = csv::parse(&text, (*block_bytes).into())?;
    let mut notes = told.notes;
    if bonnie.fits_in_memory {
        notes.push("bonnie++ does not drop caches: some reads came from memory".into());
    }
    let command = Some(program::shown(&command));
    let tool = Tool { name: "bonnie++".into(), version: told.version, command };
    Ok(Outcome { tool, cpu: Some(ran.cpu), streams: told.streams, others: told.others, notes })
}

//! State kept across restarts: alerts and undelivered events, in one JSON file replaced atomically.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Alert, Alerts, Outbox};
use crate::{LabError, Result};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    alerts: Vec<Alert>,
    outbox: Outbox,
}

/// Saved state; empty without a file.
pub(super) fn load(path: &Path) -> Result<(Alerts, Outbox)> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return Err(LabError::io(format!("{}: cannot read alerts", path.display()))(error)),
    };
    let wrong = |what: String| LabError::Result {
        path: path.to_owned(),
        what: format!("{what}: not a state file of this version; move it away to start afresh"),
    };
    let kept: Kept = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if kept.version != VERSION {
        return Err(wrong(format!("version {}", kept.version)));
    }
    Ok((Alerts::kept(kept.alerts), kept.outbox))
}

/// Saves the state atomically: a crash leaves the old or the new file.
pub(super) fn keep(path: &Path, alerts: &Alerts, outbox: &Outbox) -> Result<()> {
    let kept = Kept { version: VERSION, alerts: alerts.active().cloned().collect(), outbox: outbox.clone() };
    let failed = || LabError::io(format!("{}: cannot save alerts", path.display()));
    let text = serde_json::to_vec_pretty(&kept).map_err(|error| failed()(error.into()))?;
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let mut file = File::create(&name).map_err(failed())?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed())?;
    fs::rename(&name, path).map_err(failed())
}

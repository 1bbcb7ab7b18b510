//! Descendants of a dataset whose root is copied: `cp -r` skips and reports them; `--datasets` includes them.
//!
//! A dataset's name gives the path of its copy: `tank/home/ann` becomes `home/ann` below the copy of
//! `tank:/`. If a snapshot is copied, each dataset contributes its snapshot of the same name. The deepest
//! come first, so each folder's times are set after its contents.

use std::path::Path;

use cenote_dataset::{Dataset, DatasetKind};
use cenote_fs::Filesystem;
use cenote_inspect::copy::{CopySource, Folder, Name};
use rustix::fs::Mode;

use crate::error::{ControlError, Outcome};
use crate::files::place::Place;
use crate::session::Session;

/// Skipped datasets named.
const SHOWN: usize = 3;

/// A descendant, and its copy's path relative to the copy of the named dataset.
pub struct Below {
    /// Its root, with all contents.
    pub source: CopySource,
    /// The intermediate folders and its own.
    pub names: Vec<Name>,
}

/// Reports descendants not copied, if a whole file system is.
pub async fn tell_left_out(session: &Session, dataset: &Dataset, is_root: bool) {
    // Datasets that can't be listed do not concern this copy.
    let below = dataset.dir().children().await.unwrap_or_default();
    if !is_root || below.is_empty() {
        return;
    }
    let (name, top) = (dataset.name(), dataset.dir().name());
    let first: Vec<String> = below.iter().take(SHOWN).map(|(own, _)| format!("{top}/{own}")).collect();
    let more = if below.len() > SHOWN { ", ..." } else { "" };
    let first = first.join(", ");
    session.caller().note(format!(
        "{name}: datasets below it are not copied: {first}{more} \
         (--datasets includes them in copies out of a pool)"
    ));
}

/// The file systems below a file system's root, deepest first. Unopenable ones are reported.
pub async fn find(session: &Session, place: &Place) -> Result<(Vec<Below>, Outcome), ControlError> {
    let (mut found, mut outcome) = (Vec::new(), Outcome::Done);
    if place.object != place.filesystem.root() {
        return Ok((found, outcome));
    }
    let top = place.dataset.dir().head().await?;
    let (datasets, lost) = top.reachable().await;
    for (name, error) in lost {
        outcome = outcome.and(session.caller().tell(&name, &error.into()));
    }
    for head in datasets.into_iter().skip(1) {
        let opened = match open(session, &head, place.dataset.snapshot_name()).await {
            Ok(opened) => opened,
            Err(error) => {
                outcome = outcome.and(session.caller().tell(head.name(), &error));
                continue;
            }
        };
        let Some((dataset, filesystem)) = opened else { continue };
        let own = head.name().strip_prefix(top.name()).unwrap_or_default();
        let names = own.split('/').filter(|name| !name.is_empty()).map(|name| Name::new(name.as_bytes()));
        let Some(names) = names.collect::<Option<Vec<Name>>>() else { continue };
        let path = format!("{}:/", dataset.name()).into_bytes();
        let object = filesystem.root();
        found.push(Below { source: CopySource { filesystem, object, path }, names });
    }
    found.sort_by_key(|below| std::cmp::Reverse(below.names.len()));
    Ok((found, outcome))
}

/// The file system, or its snapshot of that name. A volume, or a dataset without that snapshot, is reported
/// and yields `None`.
async fn open(
    session: &Session,
    head: &Dataset,
    snapshot: Option<&str>,
) -> Result<Option<(Dataset, Filesystem)>, ControlError> {
    if head.kind().await? == DatasetKind::Volume {
        let name = head.name();
        session.caller().note(format!("{name}: skipped: it is a volume; `cenote volume cp` copies it"));
        return Ok(None);
    }
    let dataset = match snapshot {
        None => head.clone(),
        Some(name) => match head.snapshot(name).await? {
            Some(snapshot) => snapshot,
            None => {
                let head = head.name();
                session.caller().note(format!("{head}: skipped: it has no snapshot '{name}'"));
                return Ok(None);
            }
        },
    };
    let filesystem = session.filesystem(&dataset).await?;
    Ok(Some((dataset, filesystem)))
}

/// The folder that a copy goes into, created if needed, and its name there.
pub fn place<'n>(folder: &Folder, names: &'n [Name]) -> Result<(Folder, &'n Name), ControlError> {
    let (name, above) =
        names.split_last().ok_or_else(|| ControlError::Usage("a copy needs a name".into()))?;
    let failed = |name: &Name| {
        let shown = Path::new(name.as_os()).display().to_string();
        move |errno: rustix::io::Errno| ControlError::io(shown)(errno.into())
    };
    let mut at = folder.again().map_err(failed(name))?;
    for folder in above {
        at = at.make(folder, Mode::RWXU).map_err(failed(folder))?;
    }
    Ok((at, name))
}

//! Which datasets there are, and in which tree each opens.

use std::collections::BTreeSet;

use cenote_dataset::{DatasetKind, Dir, Mos};

use super::dataset::{self, Opened};
use super::*;

/// A dataset and where it would be copied from.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Its full name.
    pub name: String,
    /// Whether it can be copied.
    pub state: State,
    /// Why the newest tree could not give it, if it could not.
    pub newest_failed: Option<String>,
    opened: Option<Opened>,
}

/// What can be done with a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It opens.
    Opens {
        /// In the tree of this group.
        txg: Txg,
        /// What it is; `None` if not even that can be told.
        kind: Option<DatasetKind>,
        /// Bytes that it refers to.
        referenced_bytes: u64,
    },
    /// It is encrypted, and this says how to give the key.
    Locked(String),
    /// No tree gives it: why the newest doesn't.
    Lost(String),
}

impl Planned {
    pub(super) fn dataset(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }
}

/// Names found in one tree, and below which names there may be more.
#[derive(Debug, Default)]
struct Names {
    found: BTreeSet<String>,
    hidden_below: Vec<String>,
}

pub(super) async fn plan(trees: &mut Trees, options: &RescueOptions) -> Result<Vec<Planned>> {
    let names = names(trees, options).await?;
    let mut planned = Vec::new();
    for name in names {
        planned.push(plan_one(trees, name).await);
    }
    Ok(planned)
}

/// All names: of the newest tree that opens, and, where that one is damaged, of older ones.
async fn names(trees: &mut Trees, options: &RescueOptions) -> Result<Vec<String>> {
    let mut all: Option<Names> = None;
    let mut failure = None;
    for index in 0..trees.len() {
        let mos = match trees.get(index).await {
            Ok(mos) => mos,
            Err(error) if !error.is_damage() && !is_lack(&error) => return Err(error.into()),
            Err(error) => {
                failure.get_or_insert(error);
                continue;
            }
        };
        let here = names_in(&mos, options.snapshots).await;
        let known = match &mut all {
            None => all.insert(here),
            Some(known) => {
                let hidden = std::mem::take(&mut known.hidden_below);
                let is_hidden = |name: &&String| hidden.iter().any(|above| is_below(name, above));
                known.found.extend(here.found.iter().filter(is_hidden).cloned());
                known.hidden_below = here.hidden_below;
                known
            }
        };
        if known.hidden_below.is_empty() {
            break;
        }
    }
    let Some(all) = all else {
        return Err(failure.map_or_else(
            || InspectError::Request("no device has a valid uberblock".into()),
            InspectError::from,
        ));
    };
    let wanted = |name: &String| {
        options.datasets.is_empty() || options.datasets.iter().any(|asked| is_below(name, asked))
    };
    let found: Vec<String> = all.found.into_iter().filter(wanted).collect();
    if found.is_empty() {
        let text = format!("no dataset is called {}", options.datasets.join(" or "));
        return Err(InspectError::Request(text));
    }
    Ok(found)
}

/// An older tree may still have it.
fn is_lack(error: &cenote_dataset::DatasetError) -> bool {
    use cenote_dataset::DatasetError as E;
    matches!(error, E::NoObject { .. } | E::NotOpened { .. } | E::Pool(_))
}

/// `name` is `above`, a dataset below it, or a snapshot of one of these.
fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']) || above.ends_with('@'))
}

/// Walks the tree of names as far as it goes.
async fn names_in(mos: &Mos, snapshots: bool) -> Names {
    let mut names = Names::default();
    let pool = mos.pool().name().to_owned();
    names.found.insert(pool.clone());
    let mut pending: Vec<Dir> = match mos.root_dir().await {
        Ok(dir) => vec![dir],
        Err(_) => {
            names.hidden_below.push(pool);
            Vec::new()
        }
    };
    while let Some(dir) = pending.pop() {
        if snapshots {
            let listed = async { dir.head().await?.snapshot_names().await };
            match listed.await {
                Ok(listed) => {
                    names
                        .found
                        .extend(listed.into_iter().map(|(snapshot, _)| format!("{}@{snapshot}", dir.name())));
                }
                Err(_) => names.hidden_below.push(format!("{}@", dir.name())),
            }
        }
        let children = match dir.children().await {
            Ok(children) => children,
            Err(_) => {
                names.hidden_below.push(dir.name().to_owned());
                continue;
            }
        };
        for (name, _) in children {
            let full = format!("{}/{name}", dir.name());
            match dir.child(&name).await {
                Ok(Some(child)) => pending.push(child),
                _ => names.hidden_below.push(full.clone()),
            }
            names.found.insert(full);
        }
    }
    names
}

/// The newest tree in which a dataset opens.
async fn plan_one(trees: &mut Trees, name: String) -> Planned {
    let mut newest_failed = None;
    for index in 0..trees.len() {
        let Ok(mos) = trees.get(index).await else {
            newest_failed.get_or_insert_with(|| "the pool's newest tree is damaged".to_string());
            continue;
        };
        let txg = trees.txg(index);
        let tried = async {
            let dataset = mos.dataset(&name).await?;
            let opened = dataset::open(&dataset).await?;
            Ok::<_, FsError>((dataset, opened))
        };
        match tried.await {
            Ok((dataset, opened)) => {
                let kind = dataset.kind().await.ok();
                let referenced_bytes = dataset.phys().referenced_bytes;
                let state = State::Opens { txg, kind, referenced_bytes };
                return Planned { name, state, newest_failed, opened: Some(opened) };
            }
            Err(error) if dataset::is_locked(&error) => {
                let state = State::Locked(error.to_string());
                return Planned { name, state, newest_failed, opened: None };
            }
            Err(error) if dataset::is_absent(&error) && newest_failed.is_some() => {}
            Err(error) => {
                newest_failed.get_or_insert_with(|| error.to_string());
            }
        }
    }
    let why = newest_failed.clone().unwrap_or_else(|| "no tree has it".into());
    Planned { name, state: State::Lost(why), newest_failed, opened: None }
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn below_means_below_and_snapshots_belong_to_their_dataset() {
        for (name, above, below) in [
            ("p/a", "p", true),
            ("p/a", "p/a", true),
            ("p/a@s", "p/a", true),
            ("p/ab", "p/a", false),
            ("p/a@s", "p/a@", true),
            ("p/a/b", "p/a@", false),
        ] {
            assert_eq!(is_below(name, above), below, "{name} {above}");
        }
    }
}

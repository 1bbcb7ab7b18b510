//! Which datasets exist, and in which tree each opens.

use std::collections::BTreeSet;

use cenote_dataset::{Dataset, DatasetKind, Dir, Mos};
use cenote_format::units::Txg;
use cenote_fs::FsError;
use cenote_object::trail::Trail;

use super::dataset::{self, Opened};
use super::options::RescueOptions;
use super::trees::Trees;
use crate::error::{InspectError, Result};

/// A dataset, and the tree it would be copied from.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Its full name.
    pub name: String,
    /// Whether it can be copied.
    pub state: DatasetState,
    /// The error of the newest tree, if the dataset does not open there.
    pub newest_failed: Option<String>,
    /// Why the attribute tables of another tree, or standard ones, are used, if so.
    pub inferred: Option<String>,
    opened: Option<Opened>,
}

/// What can be done with a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatasetState {
    /// It opens.
    Opens {
        /// The txg of the tree.
        txg: Txg,
        /// Its type; `None` if even that is unknown.
        kind: Option<DatasetKind>,
        /// Bytes that it references.
        referenced_bytes: u64,
    },
    /// It is encrypted; the text says how to give the key.
    Locked(String),
    /// It opens in no tree; the text is the newest tree's error.
    Lost(String),
}

impl Planned {
    pub(super) fn dataset(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }
}

/// The names found in one tree, and the names below which there may be more.
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

/// All names: those of the newest tree that opens and, where it is damaged, of older ones.
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

/// Whether an older tree may still have it.
fn is_lack(error: &cenote_object::DatasetError) -> bool {
    use cenote_object::DatasetError as E;
    matches!(error, E::NoObject { .. } | E::NotOpened { .. } | E::Pool(_))
}

/// Whether `name` is `above`, a dataset below it, or a snapshot of one of these.
fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']) || above.ends_with('@'))
}

/// Walks the tree of names as far as it is readable.
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
    let mut trail = Trail::new(mos.objset(), "the datasets below");
    while let Some(dir) = pending.pop() {
        if trail.enter(dir.id()).is_err() {
            names.hidden_below.push(dir.name().to_owned());
            continue;
        }
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

/// A dataset that opens except for the attribute tables of its files.
struct Tableless {
    txg: Txg,
    dataset: Dataset,
    why: String,
}

/// Finds the newest tree in which a dataset opens.
async fn plan_one(trees: &mut Trees, name: String) -> Planned {
    let mut newest_failed = None;
    let mut tableless: Option<Tableless> = None;
    for index in 0..trees.len() {
        let Ok(mos) = trees.get(index).await else {
            newest_failed.get_or_insert_with(|| "the pool's newest tree is damaged".to_string());
            continue;
        };
        let txg = trees.txg(index);
        let dataset = mos.dataset(&name).await.map_err(FsError::from);
        let opened = match &dataset {
            Ok(dataset) => dataset::open(dataset).await,
            Err(error) => Err(error.clone()),
        };
        match (dataset, opened) {
            (Ok(dataset), Ok(opened)) => {
                if let Some(found) = &tableless
                    && let Ok(salvaged) = dataset::salvage(&found.dataset, Some(&opened)).await
                {
                    let why = format!("{}; those of txg {txg} were used", found.why);
                    return found.planned(name, salvaged, why).await;
                }
                let state = opens(&dataset, txg).await;
                return Planned { name, state, newest_failed, inferred: None, opened: Some(opened) };
            }
            (_, Err(error)) if dataset::is_locked(&error) => {
                let state = DatasetState::Locked(error.to_string());
                return Planned { name, state, newest_failed, inferred: None, opened: None };
            }
            (_, Err(error)) if dataset::is_absent(&error) && newest_failed.is_some() => {}
            (dataset, Err(error)) => {
                if let Ok(dataset) = dataset
                    && tableless.is_none()
                    && newest_failed.is_none()
                    && dataset::salvage(&dataset, None).await.is_ok()
                {
                    let why = format!("its attribute tables can't be read: {error}");
                    tableless = Some(Tableless { txg, dataset, why });
                }
                newest_failed.get_or_insert_with(|| error.to_string());
            }
            (Err(_), Ok(_)) => {}
        }
    }
    if let Some(found) = tableless
        && let Ok(salvaged) = dataset::salvage(&found.dataset, None).await
    {
        let why = format!("{}; those that OpenZFS creates were used", found.why);
        return found.planned(name, salvaged, why).await;
    }
    let why = newest_failed.clone().unwrap_or_else(|| "no tree has it".into());
    Planned { name, state: DatasetState::Lost(why), newest_failed, inferred: None, opened: None }
}

impl Tableless {
    async fn planned(&self, name: String, opened: Opened, why: String) -> Planned {
        let state = opens(&self.dataset, self.txg).await;
        Planned { name, state, newest_failed: None, inferred: Some(why), opened: Some(opened) }
    }
}

async fn opens(dataset: &Dataset, txg: Txg) -> DatasetState {
    let kind = dataset.kind().await.ok();
    DatasetState::Opens { txg, kind, referenced_bytes: dataset.phys().referenced_bytes }
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

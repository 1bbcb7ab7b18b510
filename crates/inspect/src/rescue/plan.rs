//! Which datasets exist, and in which tree each opens.

use cenote_dataset::{Dataset, DatasetKind, Mos};
use cenote_format::units::Txg;
use cenote_fs::FsError;

use super::dataset::{self, Opened};
use super::names::{Names, is_below};
use super::options::RescueOptions;
use super::trees::Trees;
use crate::error::{InspectError, Result};

const UNLISTED: &str = "the table that lists it can't be read: it was found by its parent, and its name is \
    that of an older txg, or its number";

/// A dataset, and the tree it would be copied from.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Its full name.
    pub name: String,
    /// Whether it can be copied.
    pub state: DatasetState,
    /// The error of the newest tree, if the dataset does not open there.
    pub newest_failed: Option<String>,
    /// The reason, if it was found without the table that lists it, or is read with other attribute tables
    /// than its own.
    pub inferred: Option<String>,
    opened: Option<Opened>,
}

/// The state of a dataset.
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

pub(super) async fn plan(trees: &mut Trees, options: &RescueOptions) -> Result<Vec<Planned>> {
    let names = names(trees, options).await?;
    let wanted = |name: &&String| {
        options.datasets.is_empty() || options.datasets.iter().any(|asked| is_below(name, asked))
    };
    let mut planned = Vec::new();
    for name in names.found.keys().filter(wanted) {
        planned.push(plan_one(trees, &names, name.clone()).await);
    }
    if planned.is_empty() {
        let text = format!("no dataset is called {}", options.datasets.join(" or "));
        return Err(InspectError::Request(text));
    }
    Ok(planned)
}

/// All names: those of the newest tree that opens and, where it is damaged, of older ones.
async fn names(trees: &mut Trees, options: &RescueOptions) -> Result<Names> {
    let mut all: Option<(Mos, Names)> = None;
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
        let here = Names::of(&mos, options.snapshots).await;
        let (_, known) = match &mut all {
            None => all.insert((mos, here)),
            Some(all) => {
                all.1.add_hidden(here);
                all
            }
        };
        if known.hidden_below.is_empty() {
            break;
        }
    }
    let Some((newest, mut names)) = all else {
        return Err(failure.map_or_else(
            || InspectError::Request("no device has a valid uberblock".into()),
            InspectError::from,
        ));
    };
    names.name_unlisted(&newest, options.snapshots).await;
    Ok(names)
}

/// Whether an older tree may still have it.
fn is_lack(error: &cenote_object::DatasetError) -> bool {
    use cenote_object::DatasetError as E;
    matches!(error, E::NoObject { .. } | E::NotOpened { .. } | E::Pool(_))
}

/// A dataset that opens except for the attribute tables of its files.
struct Tableless {
    txg: Txg,
    dataset: Dataset,
    why: String,
}

/// Finds the newest tree in which a dataset opens.
async fn plan_one(trees: &mut Trees, names: &Names, name: String) -> Planned {
    let mut newest_failed = None;
    let mut tableless: Option<Tableless> = None;
    for index in 0..trees.len() {
        let Ok(mos) = trees.get(index).await else {
            newest_failed.get_or_insert_with(|| "the pool's newest tree is damaged".to_string());
            continue;
        };
        let txg = trees.txg(index);
        let dataset = names.open(&mos, &name).await.map_err(FsError::from);
        let opened = match &dataset {
            Ok((dataset, _)) => dataset::open(dataset).await,
            Err(error) => Err(error.clone()),
        };
        match (dataset, opened) {
            (Ok((dataset, is_unlisted)), Ok(opened)) => {
                if let Some(found) = &tableless
                    && let Ok(salvaged) = dataset::salvage(&found.dataset, Some(&opened)).await
                {
                    let why = format!("{}; those of txg {txg} were used", found.why);
                    return found.planned(name, salvaged, why).await;
                }
                let state = opens(&dataset, txg).await;
                let inferred = is_unlisted.then(|| UNLISTED.to_owned());
                return Planned { name, state, newest_failed, inferred, opened: Some(opened) };
            }
            (_, Err(error)) if dataset::is_locked(&error) => {
                let state = DatasetState::Locked(error.to_string());
                return Planned { name, state, newest_failed, inferred: None, opened: None };
            }
            (_, Err(error)) if dataset::is_absent(&error) && newest_failed.is_some() => {}
            (dataset, Err(error)) => {
                if let Ok((dataset, _)) = dataset
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

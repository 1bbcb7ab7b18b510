//! The names of all datasets.
//!
//! Idea: names come from the tables of the newest tree. If a table is lost, older trees know the names, and
//! the directories, which know their parent, still lead to the newest content. A directory without a name in
//! any tree is named by its number.

use std::collections::{BTreeMap, BTreeSet};

use cenote_dataset::{Dataset, Dir, Mos};
use cenote_format::units::ObjectId;
use cenote_object::DatasetError;
use cenote_object::trail::Trail;

/// The names found in one tree, and the names below which there may be more.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Each dataset's directory; `None` for snapshots and for unreadable directories.
    pub found: BTreeMap<String, Option<ObjectId>>,
    pub hidden_below: Vec<String>,
    /// Directories below a lost table, and the name above.
    unlisted: Vec<(String, ObjectId)>,
}

impl Names {
    /// Walks the tree of names as far as it is readable.
    pub async fn of(mos: &Mos, snapshots: bool) -> Names {
        let mut names = Names::default();
        let pool = mos.pool().name().to_owned();
        match mos.root_dir().await {
            Ok(dir) => names.walk(dir, snapshots).await,
            Err(_) => names.hidden_below.push(pool.clone()),
        }
        names.found.entry(pool).or_default();
        names
    }

    /// Adds those of an older tree hidden here.
    pub fn add_hidden(&mut self, older: Names) {
        let hidden = std::mem::replace(&mut self.hidden_below, older.hidden_below);
        let is_hidden = |name: &str| hidden.iter().any(|above| is_below(name, above));
        for (name, dir) in older.found.into_iter().filter(|(name, _)| is_hidden(name)) {
            self.found.entry(name).or_insert(dir);
        }
    }

    /// Names the directories of the newest tree missing in its tables, and walks the tree below them.
    pub async fn name_unlisted(&mut self, newest: &Mos, snapshots: bool) {
        // A forged directory may be below itself.
        let mut named = BTreeSet::new();
        while let Some((above, id)) = self.unlisted.pop() {
            if !named.insert(id) {
                continue;
            }
            let known = self.found.iter().find(|(name, dir)| {
                **dir == Some(id) && name.rsplit_once('/').is_some_and(|(parent, _)| parent == above)
            });
            let name = known.map_or_else(|| format!("{above}/object-{id}"), |(name, _)| name.clone());
            self.found.insert(name.clone(), Some(id));
            if let Ok(dir) = self.dir(newest, &name).await {
                self.walk(dir, snapshots).await;
            }
        }
    }

    async fn walk(&mut self, top: Dir, snapshots: bool) {
        let mut trail = Trail::new(top.mos().objset(), "the datasets below");
        let mut pending = vec![top];
        while let Some(dir) = pending.pop() {
            if trail.enter(dir.id()).is_err() {
                self.hidden_below.push(dir.name().to_owned());
                continue;
            }
            self.found.insert(dir.name().to_owned(), Some(dir.id()));
            if snapshots {
                let listed = async { dir.head().await?.snapshot_names().await };
                match listed.await {
                    Ok(listed) => {
                        let full = |(snapshot, _)| (format!("{}@{snapshot}", dir.name()), None);
                        self.found.extend(listed.into_iter().map(full));
                    }
                    Err(_) => self.hidden_below.push(format!("{}@", dir.name())),
                }
            }
            let Ok(children) = dir.children().await else {
                self.hidden_below.push(dir.name().to_owned());
                let children = dir.unlisted_children().await.into_iter();
                self.unlisted.extend(children.map(|id| (dir.name().to_owned(), id)));
                continue;
            };
            for (name, _) in children {
                match dir.child(&name).await {
                    Ok(Some(child)) => pending.push(child),
                    _ => {
                        let full = format!("{}/{name}", dir.name());
                        self.hidden_below.push(full.clone());
                        self.found.entry(full).or_default();
                    }
                }
            }
        }
    }

    /// Opens a dataset, past a lost table. Also returns whether the table was lost.
    pub async fn open(&self, mos: &Mos, name: &str) -> Result<(Dataset, bool), DatasetError> {
        let error = match mos.dataset(name).await {
            Ok(dataset) => return Ok((dataset, false)),
            Err(error) if !error.is_damage() => return Err(error),
            Err(error) => error,
        };
        let unlisted = async {
            let (path, snapshot) = name.split_once('@').map_or((name, None), |(path, at)| (path, Some(at)));
            let head = self.dir(mos, path).await?.head().await?;
            match snapshot {
                None => Ok(Some(head)),
                Some(snapshot) => head.snapshot(snapshot).await,
            }
        };
        match unlisted.await {
            Ok(Some(dataset)) => Ok((dataset, true)),
            Ok(None) | Err(_) => Err(error),
        }
    }

    /// A directory by its name or, if a table is lost, by its number.
    async fn dir(&self, mos: &Mos, name: &str) -> Result<Dir, DatasetError> {
        let mut dir = mos.root_dir().await?;
        for part in name.split('/').skip(1) {
            if let Ok(Some(child)) = dir.child(part).await {
                dir = child;
                continue;
            }
            let name = format!("{}/{part}", dir.name());
            let missing = || DatasetError::NoDataset { name: name.as_str().into() };
            let id = self.found.get(&name).copied().flatten().ok_or_else(missing)?;
            let child = dir.open_child(part, id).await?;
            // In another tree the number may be another directory's.
            if child.phys().parent != dir.id() {
                return Err(missing());
            }
            dir = child;
        }
        Ok(dir)
    }
}

/// Whether `name` is `above`, a dataset below it, or a snapshot of one of these.
pub(super) fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']) || above.ends_with('@'))
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

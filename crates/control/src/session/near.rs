//! Errors for missing names, with a suggestion of the probable name.

use cenote_dataset::{Dataset, Mos};
use cenote_fs::{Filesystem, FsError, LastLink};
use cenote_object::DatasetError;

use crate::error::ControlError;
use crate::text::quoted;

/// Compared names of a folder; the rest of a larger folder is ignored.
const MOST_NAMES: usize = 20_000;

/// Opens a file system, volume or snapshot by its full name.
pub async fn dataset(mos: &Mos, name: &str) -> Result<Dataset, ControlError> {
    match mos.dataset(name).await {
        Err(DatasetError::NoDataset { .. }) => Err(ControlError::NotFound(no_dataset(mos, name).await)),
        found => Ok(found?),
    }
}

/// OpenZFS's sentence alone on the first line, where programs look for it.
async fn no_dataset(mos: &Mos, name: &str) -> String {
    let (path, snapshot) =
        name.split_once('@').map_or((name, None), |(path, snapshot)| (path, Some(snapshot)));
    if let (Some(snapshot), Ok(head)) = (snapshot, mos.dataset(path).await) {
        let names = head.snapshots().await.unwrap_or_default();
        let names = names.iter().filter_map(|snapshot| snapshot.snapshot_name());
        let meant = meant(snapshot, names).map(|near| format!("{path}@{near}"));
        return format!("cannot open '{name}': dataset does not exist\n{}", advice(meant));
    }
    let all = mos.reachable_datasets().await.map_or_else(|_| Vec::new(), |(all, _)| all);
    let meant = meant(path, all.iter().map(Dataset::name));
    format!("cannot open '{name}': dataset does not exist\n{}", advice(meant.map(str::to_owned)))
}

fn advice(meant: Option<String>) -> String {
    const HOW: &str = "`zfs list -t all` lists all names";
    meant.map_or_else(|| HOW.into(), |near| format!("did you mean '{near}'? {HOW}"))
}

/// Adds the probable name to a file error if the file does not exist.
pub async fn file_error(filesystem: &Filesystem, path: &[u8], error: FsError) -> ControlError {
    if !matches!(error, FsError::NotFound { .. }) {
        return error.into();
    }
    let Ok(text) = std::str::from_utf8(path) else { return error.into() };
    match near_path(filesystem, text).await {
        Some(near) => ControlError::NotFound(format!("{error}; did you mean {}?", quoted(near.as_bytes()))),
        None => error.into(),
    }
}

/// Replaces the first missing name by the most similar one in that folder.
async fn near_path(filesystem: &Filesystem, path: &str) -> Option<String> {
    let mut folder = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let below = format!("{folder}/{name}");
        if filesystem.resolve(below.as_bytes(), LastLink::Follow).await.is_ok() {
            folder = below;
            continue;
        }
        let object = filesystem.resolve(folder.as_bytes(), LastLink::Follow).await.ok()?;
        let mut entries = filesystem.read_dir(object).await.ok()?;
        let mut names = Vec::new();
        while let Ok(Some(batch)) = entries.next_batch().await {
            names.extend(batch.iter().filter_map(|entry| String::from_utf8(entry.name.to_vec()).ok()));
            if names.len() > MOST_NAMES {
                break;
            }
        }
        return meant(name, names.iter().map(String::as_str)).map(|near| format!("{folder}/{near}"));
    }
    None
}

/// The name most similar to the one typed, if similar enough.
pub fn meant<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.filter_map(|name| Some((distance(typed, name)?, name))).min().map(|(_, name)| name)
}

/// The edit distance between two names, summed over their parts. `None` if more than one letter in three
/// differs in some part.
fn distance(typed: &str, name: &str) -> Option<usize> {
    let (typed, name): (Vec<&str>, Vec<&str>) = (typed.split('/').collect(), name.split('/').collect());
    let part = |(typed, name): (&&str, &&str)| match typed.to_lowercase() == name.to_lowercase() {
        true => Some(0),
        false => Some(strsim::osa_distance(typed, name)).filter(|far| *far <= typed.chars().count() / 3),
    };
    if typed.len() != name.len() {
        return None;
    }
    typed.iter().zip(&name).map(part).sum()
}

/// The pool of a dataset, snapshot or bookmark name.
pub fn pool_of(name: &(impl AsRef<str> + ?Sized)) -> &str {
    name.as_ref().split(['/', '@', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {

    #[test]
    fn what_was_meant_is_near() {
        let names = ["home", "homes", "tank/mail", "Photos"];
        let meant = |typed| super::meant(typed, names.into_iter());
        assert_eq!(meant("hoem"), Some("home"));
        assert_eq!(meant("tank/mial"), Some("tank/mail"));
        assert_eq!(meant("photos"), Some("Photos"));
        assert_eq!(meant("tank"), None);
        assert_eq!(meant("elsewhere"), None);
    }
}

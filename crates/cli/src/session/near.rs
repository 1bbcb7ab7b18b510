//! Names that are not there, with the one that was probably meant.

use cenote_dataset::{Dataset, DatasetError, Mos};
use cenote_fs::{Filesystem, FsError, LastLink};

use crate::outcome::CliError;
use crate::render::escape_terminal;

/// Names of a folder that are looked through; of a larger one the rest is not.
const MOST_NAMES: usize = 20_000;

/// A file system, volume or snapshot by its full name.
pub async fn dataset(mos: &Mos, name: &str) -> Result<Dataset, CliError> {
    match mos.dataset(name).await {
        Err(DatasetError::NoDataset { .. }) => Err(CliError::NotFound(no_dataset(mos, name).await)),
        found => Ok(found?),
    }
}

async fn no_dataset(mos: &Mos, name: &str) -> String {
    let (path, snapshot) =
        name.split_once('@').map_or((name, None), |(path, snapshot)| (path, Some(snapshot)));
    if let (Some(snapshot), Ok(head)) = (snapshot, mos.dataset(path).await) {
        let names = head.snapshots().await.unwrap_or_default();
        let names = names.iter().filter_map(|snapshot| snapshot.snapshot_name());
        let meant = meant(snapshot, names).map(|near| format!("{path}@{near}"));
        return format!("cannot open '{name}': snapshot does not exist; {}", advice(meant));
    }
    let all = mos.all_datasets().await.unwrap_or_default();
    let meant = meant(path, all.iter().map(Dataset::name));
    format!("cannot open '{name}': dataset does not exist; {}", advice(meant.map(str::to_owned)))
}

fn advice(meant: Option<String>) -> String {
    const HOW: &str = "`zfs list -t all` shows what there is";
    meant.map_or_else(|| HOW.into(), |near| format!("did you mean '{near}'? {HOW}"))
}

/// A file's error with the name that was probably meant, if it is that there is no such file.
pub async fn file_error(filesystem: &Filesystem, path: &str, error: FsError) -> CliError {
    if !matches!(error, FsError::NotFound { .. }) {
        return error.into();
    }
    match near_path(filesystem, path).await {
        Some(near) => CliError::NotFound(format!("{error}; did you mean {near}?")),
        None => error.into(),
    }
}

/// The path with its first missing name replaced by the nearest in that folder.
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
            names.extend(batch.iter().map(|entry| escape_terminal(&entry.name)));
            if names.len() > MOST_NAMES {
                break;
            }
        }
        return meant(name, names.iter().map(String::as_str)).map(|near| format!("{folder}/{near}"));
    }
    None
}

/// The name that differs least from the one typed, if it does so little.
fn meant<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.filter_map(|name| Some((distance(typed, name)?, name))).min().map(|(_, name)| name)
}

/// How far two names are from each other, part by part; none if in some part more than a letter in three differs.
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

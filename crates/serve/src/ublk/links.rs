//! Links to block devices, named after their volumes. Other files in the folder are left alone.

use std::fs::{create_dir_all, read_dir, read_link, remove_dir, remove_file, rename};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cenote_ublk::users::path_of;

use cenote_host::volumes::path_below;

/// Nesting of folders.
const DEPTH_MAX: usize = 64;

/// A link, removed on drop.
pub struct Link {
    dir: PathBuf,
    path: PathBuf,
    device: PathBuf,
}

impl Link {
    /// Makes a link. Replaces a link to another ublk device.
    ///
    /// # Errors
    /// Another file is in its place.
    pub fn make(dir: &Path, name: &str, device: u32) -> io::Result<Link> {
        let (path, device) = (path_below(dir, name).ok_or(io::ErrorKind::InvalidInput)?, path_of(device));
        if path.symlink_metadata().is_ok() && !is_ours(&path) {
            let why = format!("{} is there, and no link to a block device", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        if let Some(folder) = path.parent() {
            create_dir_all(folder)?;
        }
        // No dataset has such a name.
        let mut beside = path.clone().into_os_string();
        beside.push("%new");
        remove_file(&beside).ok();
        symlink(&device, &beside)?;
        rename(&beside, &path)?;
        Ok(Link { dir: dir.into(), path, device })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Another link may have its place by now.
        if read_link(&self.path).is_ok_and(|to| to == self.device) {
            remove_file(&self.path).ok();
        }
        // Remove folders now empty.
        let folders = self.path.ancestors().skip(1).take_while(|folder| *folder != self.dir);
        for folder in folders {
            if remove_dir(folder).is_err() {
                return;
            }
        }
    }
}

/// Removes links to missing block devices.
pub fn remove_dead(dir: &Path) {
    let mut folders = vec![(dir.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => folders.push((path, depth + 1)),
                Ok(kind) if kind.is_symlink() && is_ours(&path) && !path.exists() => {
                    remove_file(&path).ok();
                }
                _ => {}
            }
        }
    }
}

fn is_ours(path: &Path) -> bool {
    let number = |to: PathBuf| to.to_str()?.strip_prefix("/dev/ublkb")?.parse::<u32>().ok();
    read_link(path).ok().and_then(number).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_and_go_and_leave_all_else_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, to) = (folder.path(), |name: &str| read_link(folder.path().join(name)).ok());
        std::fs::create_dir(dir.join("tank")).unwrap();
        std::fs::write(dir.join("tank/file"), "kept").unwrap();
        assert!(Link::make(dir, "tank/file", 7).is_err() && Link::make(dir, "../tank", 7).is_err());
        let old = Link::make(dir, "tank/a/v", 4_000_000).unwrap();
        assert_eq!(to("tank/a/v").unwrap(), Path::new("/dev/ublkb4000000"));
        let new = Link::make(dir, "tank/a/v", 4_000_001).unwrap();
        drop(old);
        assert_eq!(to("tank/a/v").unwrap(), Path::new("/dev/ublkb4000001"), "the new one stays");
        drop(new);
        assert!(!dir.join("tank/a").exists() && dir.join("tank/file").exists());

        std::mem::forget(Link::make(dir, "tank/v@one", 4_000_000).unwrap());
        symlink("/dev/nothing", dir.join("other")).unwrap();
        remove_dead(dir);
        assert_eq!((to("tank/v@one"), to("other")), (None, Some("/dev/nothing".into())));
    }
}

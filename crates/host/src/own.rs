//! The daemon's own files, in its state folders, and an administrator's files with secrets.
//!
//! Idea: the daemon trusts these files and acts on them as root, so no other user may write or replace them.
//! Folders and files must belong to the daemon's user (folders possibly to root) and not be writable by
//! others. In a sticky folder such as `/tmp` others can add files, but not replace ours. Links, and files
//! with several names, are refused: each could be a foreign file. Files are replaced atomically, by renaming.
//!
//! Secrets (tokens, accounts, keys of certificates) are read only from regular files of the daemon's user or
//! root that no other user can open.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

const OTHERS_WRITE: u32 = 0o022;
const OTHERS_USE: u32 = 0o077;
/// Only owners may remove or rename a folder's files.
const STICKY: u32 = 0o1000;
/// Bound on the size of a state file.
const BYTES_MAX: u64 = 64 << 20;
/// Bound on the size of a secret.
const SECRET_BYTES_MAX: u64 = 1 << 20;

/// Whether a user controls the daemon anyway: root, or its own user.
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::getuid().as_raw()
}

/// Makes a folder if necessary, and checks its ownership and mode.
///
/// # Errors
/// It can't be made, is another user's, or is writable by others.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    let found = std::fs::metadata(path)?;
    let may_write = if found.mode() & STICKY == 0 { OTHERS_WRITE } else { 0 };
    check(&found, found.uid() == 0 || is_own(&found), may_write, "use another folder")
}

/// Opens a file for reading and writing; creates it if necessary.
///
/// # Errors
/// As of [`read`].
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    checked(options, path)
}

/// Reads a file, if it exists.
///
/// # Errors
/// It can't be read, is a link or another user's, or is writable by others.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut options = OpenOptions::new();
    options.read(true);
    match checked(options, path) {
        Ok(file) => {
            let mut content = Vec::new();
            file.take(BYTES_MAX).read_to_end(&mut content)?;
            Ok(Some(content))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a file with secrets.
///
/// # Errors
/// It can't be read, is a link, too large, another user's, or accessible to others.
pub fn secret(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => refused("is a link; name the file that it leads to"),
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(refused("is no regular file"));
    }
    if found.uid() != 0 && !is_own(&found) {
        let why = format!("belongs to user {}, who could change it; `chown` it", found.uid());
        return Err(refused(&why));
    }
    if found.mode() & OTHERS_USE != 0 {
        let mode = found.mode() & 0o7777;
        return Err(refused(&format!("others can read it or write it (mode {mode:o}): `chmod 600` it")));
    }
    if found.len() > SECRET_BYTES_MAX {
        return Err(refused(&format!("is larger than {SECRET_BYTES_MAX} bytes")));
    }
    let mut content = Vec::new();
    file.take(SECRET_BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// Reads secret text.
///
/// # Errors
/// Those of [`secret`]; invalid UTF-8.
pub fn secret_text(path: &Path) -> io::Result<String> {
    String::from_utf8(secret(path)?).map_err(|_| refused("is no text"))
}

/// Replaces a file atomically and durably.
///
/// # Errors
/// It can't be written, and is unchanged.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    // Left by a killed daemon.
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn checked(mut options: OpenOptions, path: &Path) -> io::Result<File> {
    // It may be a pipe without a writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.mode(0o600).custom_flags(flags.bits() as i32).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => refused("is a link; remove it"),
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(refused("is no regular file; remove it"));
    }
    if found.nlink() != 1 {
        return Err(refused("has other names; remove it"));
    }
    check(&found, is_own(&found), OTHERS_WRITE, "remove it unless you trust what it says")?;
    Ok(file)
}

fn is_own(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

fn check(found: &Metadata, is_own: bool, forbidden: u32, instead: &str) -> io::Result<()> {
    if !is_own {
        return Err(refused(&format!("belongs to user {}, and would be believed; {instead}", found.uid())));
    }
    match found.mode() & forbidden {
        0 => Ok(()),
        _ => {
            let mode = found.mode() & 0o7777;
            Err(refused(&format!(
                "others can write it (mode {mode:o}), and it is believed; {instead}, or \
                `chmod go-w` it"
            )))
        }
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_others_could_have_written_is_refused() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("state");
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, b"one").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), b"one");
        set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("mode 620"));
        assert!(open(&path).is_err());
        folder(&here.path().join("made/deep")).unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        std::fs::hard_link(&path, here.path().join("other")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("other names"));
        for (mode, is_fine) in [(0o1777, true), (0o777, false), (0o770, false), (0o755, true)] {
            set_permissions(here.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(folder(here.path()).is_ok(), is_fine, "{mode:o}");
        }
    }

    #[test]
    fn secrets_are_read_only_from_files_that_nobody_else_can_open() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("secret");
        write(&path, "hidden").unwrap();
        for (mode, is_fine) in
            [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o602, false), (0o610, false)]
        {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = secret_text(&path);
            assert_eq!(read.is_ok(), is_fine, "{mode:o}");
            assert!(read.err().is_none_or(|error| error.to_string().contains("chmod 600")), "{mode:o}");
        }
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        symlink(&path, here.path().join("link")).unwrap();
        assert!(secret(&here.path().join("link")).unwrap_err().to_string().contains("is a link"));
        assert!(secret(here.path()).unwrap_err().to_string().contains("no regular file"));
        assert_eq!(secret(&here.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        write(&path, [0xff, 0xfe]).unwrap();
        assert!(secret_text(&path).unwrap_err().to_string().contains("no text"));
        write(&path, vec![0; SECRET_BYTES_MAX as usize + 1]).unwrap();
        assert!(secret(&path).unwrap_err().to_string().contains("larger"));
        // Only root can give a file away.
        write(&path, "").unwrap();
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            assert!(secret(&path).unwrap_err().to_string().contains("belongs to user 65534"));
        }
    }

    #[test]
    fn links_are_not_followed() {
        let here = tempfile::tempdir().unwrap();
        let (path, victim) = (here.path().join("state"), here.path().join("victim"));
        write(&victim, "kept").unwrap();
        symlink(&victim, &path).unwrap();
        symlink(&victim, here.path().join("state.new")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("link"));
        assert!(open(&path).is_err());
        replace(&path, b"new").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), b"new");
        assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
    }
}

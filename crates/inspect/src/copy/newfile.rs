//! A file without a name yet.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, RenameFlags, linkat, renameat, renameat_with};
use rustix::io::Errno;

use super::folder::{Folder, Name};

/// A file being written. Dropping it before it is published removes it.
#[derive(Debug)]
pub(super) struct NewFile {
    folder: Arc<Folder>,
    file: File,
    /// Its temporary name, on file systems without `O_TMPFILE`.
    temporary: Option<Name>,
}

impl NewFile {
    pub fn create(folder: Arc<Folder>, mode: Mode) -> Result<NewFile, Errno> {
        match folder.open_unnamed(mode) {
            Ok(file) => return Ok(NewFile { folder, file, temporary: None }),
            // File systems differ in which of these they return.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::NOSYS) => {}
            Err(errno) => return Err(errno),
        }
        let temporary = Name::temporary();
        let file = folder.open_new(&temporary, mode)?;
        Ok(NewFile { folder, file, temporary: Some(temporary) })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.file.write_all_at(bytes, offset).map_err(errno)
    }

    pub fn set_len(&self, bytes: u64) -> Result<(), Errno> {
        self.file.set_len(bytes).map_err(errno)
    }

    /// Gives the file its name, replacing an existing file if `replace` is set.
    pub fn publish(mut self, name: &Name, replace: bool) -> Result<File, Errno> {
        match &self.temporary {
            None => self.folder.place(name, replace, |name| self.link_as(name))?,
            Some(temporary) if replace => {
                renameat(&*self.folder, temporary.as_os(), &*self.folder, name.as_os())?;
            }
            Some(temporary) => self.rename_to_new(temporary, name)?,
        }
        self.temporary = None;
        self.file.try_clone().map_err(errno)
    }

    fn link_as(&self, name: &Name) -> Result<(), Errno> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match linkat(CWD, own, &*self.folder, name.as_os(), AtFlags::SYMLINK_FOLLOW) {
            // Works without /proc, but needs more privileges.
            Err(Errno::NOENT) => linkat(&self.file, c"", &*self.folder, name.as_os(), AtFlags::EMPTY_PATH),
            done => done,
        }
    }

    fn rename_to_new(&self, temporary: &Name, name: &Name) -> Result<(), Errno> {
        let (folder, flags) = (&*self.folder, RenameFlags::NOREPLACE);
        match renameat_with(folder, temporary.as_os(), folder, name.as_os(), flags) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                folder.link(folder, temporary, name)?;
                folder.remove(temporary);
                Ok(())
            }
            done => done,
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            self.folder.remove(temporary);
        }
    }
}

pub(super) fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &std::path::Path) -> Vec<String> {
        let names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    fn written(folder: &Arc<Folder>, temporary: bool) -> NewFile {
        let new = match temporary {
            false => NewFile::create(folder.clone(), Mode::RWXU).unwrap(),
            true => {
                let name = Name::temporary();
                let file = folder.open_new(&name, Mode::RWXU).unwrap();
                NewFile { folder: folder.clone(), file, temporary: Some(name) }
            }
        };
        new.write(2, b"new").unwrap();
        new
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all_and_replaces_only_when_told() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::open(scratch.path()).unwrap());
        let name = Name::new(b"f").unwrap();
        for temporary in [false, true] {
            drop(written(&folder, temporary));
            assert!(files(scratch.path()).is_empty());
            std::fs::write(scratch.path().join("f"), "old").unwrap();
            assert_eq!(written(&folder, temporary).publish(&name, false).err(), Some(Errno::EXIST));
            assert_eq!(std::fs::read(scratch.path().join("f")).unwrap(), b"old");
            written(&folder, temporary).publish(&name, true).unwrap();
            assert_eq!(std::fs::read(scratch.path().join("f")).unwrap(), b"\0\0new");
            assert_eq!(files(scratch.path()), ["f"]);
            std::fs::remove_file(scratch.path().join("f")).unwrap();
            written(&folder, temporary).publish(&name, false).unwrap();
            assert_eq!(files(scratch.path()), ["f"]);
            std::fs::remove_file(scratch.path().join("f")).unwrap();
        }
    }
}

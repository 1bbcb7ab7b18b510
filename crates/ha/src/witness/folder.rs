//! A witness in a folder: a file for each register, swapped under a lock.
//!
//! The file has a number in its first line, raised by each swap: its tag. A swap replaces the file as a
//! whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use cenote_runtime::Runtime;
use rustix::fs::{FlockOperation, flock};

use super::{Asking, Seen, Tag, Witness, WitnessError, Written, file_of};

/// Longest file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Registers in a folder.
pub struct FolderWitness {
    folder: PathBuf,
    runtime: Runtime,
}

impl FolderWitness {
    /// Registers in this folder.
    pub fn new(folder: &Path, runtime: &Runtime) -> FolderWitness {
        FolderWitness { folder: folder.to_owned(), runtime: runtime.clone() }
    }

    fn on_thread<T: Send + 'static>(
        &self,
        name: &str,
        call: impl FnOnce(&Path, &str) -> io::Result<T> + Send + 'static,
    ) -> Asking<T> {
        let (runtime, folder, name) = (self.runtime.clone(), self.folder.clone(), file_of(name));
        Box::pin(async move {
            let place = folder.display().to_string();
            let done = runtime.blocking(move || call(&folder, &name)).await;
            done.map_err(|error| WitnessError(format!("{place}: {error}")))
        })
    }
}

impl Witness for FolderWitness {
    fn check(&self) -> Asking<()> {
        self.on_thread("", |folder, _| {
            let mode = fs::metadata(folder)?.permissions().mode();
            match mode & 0o002 {
                0 => Ok(()),
                _ => Err(io::Error::other("every user may write to the folder; `chmod o-w` it")),
            }
        })
    }

    fn read(&self, name: &str) -> Asking<Option<Seen>> {
        self.on_thread(name, read)
    }

    fn write(&self, name: &str, before: Option<&Tag>, bytes: Bytes) -> Asking<Written> {
        let before = before.cloned();
        self.on_thread(name, move |folder, name| {
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
                .open(folder.join(format!("{name}.lock")))?;
            flock(&lock, FlockOperation::LockExclusive)?;
            let now = read(folder, name)?;
            if now.as_ref().map(|seen| &seen.tag) != before.as_ref() {
                return Ok(Written::Changed);
            }
            let number = now.map_or(0, |seen| seen.tag.0.parse::<u64>().unwrap_or(0)) + 1;
            let aside = folder.join(format!("{name}.new"));
            fs::remove_file(&aside).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
            let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&aside)?;
            file.write_all(format!("{number}\n").as_bytes())?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&aside, folder.join(name))?;
            File::open(folder)?.sync_all()?;
            Ok(Written::Done(Tag(number.to_string().into())))
        })
    }
}

fn read(folder: &Path, name: &str) -> io::Result<Option<Seen>> {
    let file = match File::open(folder.join(name)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    let bad = || io::Error::other(format!("{name} is no register"));
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(bad)?;
    let number = std::str::from_utf8(&bytes[..end]).ok().and_then(|text| text.parse::<u64>().ok());
    let tag = Tag(number.ok_or_else(bad)?.to_string().into());
    Ok(Some(Seen { bytes: Bytes::from(bytes).slice(end + 1..), tag }))
}

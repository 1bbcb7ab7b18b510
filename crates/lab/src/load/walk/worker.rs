//! One worker of a walk: takes units of work until there are none.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use rustix::fs::{RawDir, RawDirEntry};

use super::entry::{Entry, MOST_PENDING, Visitor, WalkOptions, Walked};
use super::folder::{EntryKind, Folder};
use super::queue::{Pending, Queue};
use crate::Result;
use crate::load::control::Control;

/// Part of a folder's listing: about 2000 entries.
const LIST_BYTES: usize = 64 << 10;
/// Entries after which the rest of a folder may be given away: smaller folders are not worth it.
const GIVE_AFTER: u32 = 256;

pub struct Worker<'w, V> {
    queue: &'w Queue,
    options: WalkOptions,
    control: &'w Control,
    visitor: V,
    walked: Walked,
    stack: Vec<Pending>,
    /// Sub-folders of the folder being listed.
    found: Vec<Pending>,
}

#[derive(PartialEq)]
enum Listed {
    Further,
    Over,
}

impl<'w, V: Visitor> Worker<'w, V> {
    pub fn new(queue: &'w Queue, options: WalkOptions, control: &'w Control, visitor: V) -> Worker<'w, V> {
        let (stack, found) = (Vec::new(), Vec::new());
        Worker { queue, options, control, visitor, walked: Walked::default(), stack, found }
    }

    pub fn run(mut self) -> Result<(Walked, V)> {
        // However this worker ends, the others must not wait for it.
        let _ends = EndsWalk(self.queue);
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        while let Some(piece) = self.next() {
            let folder = match piece {
                Pending::Rest(folder) => Ok(folder),
                Pending::Below(above, name) => above
                    .open(&name)
                    .map(Arc::new)
                    .map_err(|error| (path(&above.path, name.to_bytes()), error)),
                Pending::Far(root, path) => {
                    Folder::open_far(root, path.clone()).map(Arc::new).map_err(|error| (path, error))
                }
            };
            match folder {
                Ok(folder) => self.list(&folder, &mut buffer)?,
                Err((path, error)) => self.failed(&path, &error),
            }
            if self.queue.is_wanted() {
                self.queue.give_half(&mut self.stack);
            }
        }
        self.visitor.finish()?;
        Ok((self.walked, self.visitor))
    }

    fn next(&mut self) -> Option<Pending> {
        if self.queue.is_over() { None } else { self.stack.pop().or_else(|| self.queue.get()) }
    }

    /// Lists a folder to its end, or until there is enough work below it or another worker takes the rest.
    fn list(&mut self, folder: &Arc<Folder>, buffer: &mut Vec<u8>) -> Result<()> {
        while self.list_piece(folder, buffer)? == Listed::Further {
            if self.found.len() >= MOST_PENDING {
                self.stack.push(Pending::Rest(Arc::clone(folder)));
                break;
            }
        }
        self.stack.append(&mut self.found);
        Ok(())
    }

    fn list_piece(&mut self, folder: &Arc<Folder>, buffer: &mut Vec<u8>) -> Result<Listed> {
        self.control.check()?;
        self.visitor.begin();
        let mut list = RawDir::new(&folder.fd, buffer.spare_capacity_mut());
        let (mut seen, mut state) = (0, Listed::Further);
        while let Some(entry) = list.next() {
            match entry {
                Ok(entry) => {
                    if self.entry(folder, &entry)?.is_break() {
                        self.queue.end();
                        state = Listed::Over;
                        break;
                    }
                }
                Err(error) => {
                    self.failed(&folder.path, &error.into());
                    state = Listed::Over;
                    break;
                }
            }
            seen += 1;
            if list.is_buffer_empty() {
                break;
            }
            if seen == GIVE_AFTER && state == Listed::Further && self.queue.is_wanted() {
                self.queue.give(Pending::Rest(Arc::clone(folder)));
                state = Listed::Over;
            }
        }
        if seen == 0 {
            state = Listed::Over;
        }
        self.control.count(seen.into(), 0);
        Ok(state)
    }

    fn entry(&mut self, folder: &Arc<Folder>, entry: &RawDirEntry<'_>) -> Result<ControlFlow<()>> {
        let name: &CStr = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return Ok(ControlFlow::Continue(()));
        }
        let stat = match folder.stat(name) {
            Ok(stat) => stat,
            Err(error) => {
                self.failed(&path(&folder.path, name.to_bytes()), &error.into());
                return Ok(ControlFlow::Continue(()));
            }
        };
        let kind = EntryKind::of(&stat);
        match kind {
            EntryKind::File => {
                self.walked.files += 1;
                self.walked.bytes += stat.stx_size;
            }
            EntryKind::Folder => {
                self.walked.folders += 1;
                if self.options.one_file_system && !folder.is_inside(&stat) {
                    self.walked.borders += 1;
                } else {
                    self.found.push(Pending::below(folder, name));
                }
            }
            EntryKind::Link | EntryKind::Other => self.walked.others += 1,
        }
        self.visitor.entry(&Entry { folder: &folder.path, name: name.to_bytes(), kind, stat: &stat })
    }

    fn failed(&mut self, path: &[u8], error: &std::io::Error) {
        self.walked.errors += 1;
        if self.walked.first_error.is_none() {
            let path = Path::new(OsStr::from_bytes(path)).display();
            self.walked.first_error = Some(format!("{path}: {error}"));
        }
    }
}

fn path(folder: &[u8], name: &[u8]) -> Vec<u8> {
    [folder, b"/", name].concat()
}

struct EndsWalk<'w>(&'w Queue);

impl Drop for EndsWalk<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

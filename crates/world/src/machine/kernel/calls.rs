//! System calls.
//!
//! A path is a mount, and names below its root.

use std::sync::Arc;

use cenote_fuse::{Errno, Result};

use super::inode::{Inode, PAGE_BYTES};
use super::wire::{self, Attr, Body, Entry, FATTR_MODE, FATTR_SIZE, Listed, Opcode};
use super::{Dentry, Mount, Name, Ticket, User};

/// The longest listing per request.
const LISTING_BYTES: u32 = 4096;
/// `READ` of a page.
const XATTR_BYTES: u32 = 64 << 10;

/// How `open` treats a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It exists.
    Existing,
    /// `O_CREAT`.
    Any,
    /// `O_CREAT | O_EXCL`.
    New,
}

/// An open file. It keeps its mount busy, and its file alive.
pub struct Descriptor {
    user: User,
    inode: Arc<Inode>,
}

/// Whether a walk may use cached names.
#[derive(Clone, Copy, PartialEq)]
enum Trust {
    Caches,
    /// `LOOKUP_REVAL`.
    Nothing,
}

/// Repeats a call that met `ESTALE`, without caches, as the system calls of Linux do.
macro_rules! retrying {
    ($call:expr) => {{
        let call = $call;
        match call(Trust::Caches).await {
            Err(Errno::STALE) => call(Trust::Nothing).await,
            done => done,
        }
    }};
}

impl Mount {
    fn now(&self) -> cenote_runtime::Instant {
        self.runtime.now()
    }

    fn root(&self) -> Result<Arc<Inode>> {
        self.state.lock().root.clone().ok_or(Errno::NOTCONN)
    }

    /// Sends a request whose answer will be cached under names of a directory.
    async fn ask_for(
        &self,
        dir: &Arc<Inode>,
        request: impl FnOnce(u64) -> wire::Request,
    ) -> Result<(Vec<u8>, u64, Ticket)> {
        let (number, version) = {
            let state = &mut *self.state.lock();
            let number = state.tickets.last_key_value().map_or(0, |(last, _)| last + 1);
            let ticket = Ticket::of(dir.node());
            state.tickets.insert(number, ticket);
            (number, state.version)
        };
        let reply = self.ask(request).await;
        let ticket = self.state.lock().tickets.remove(&number).ok_or(Errno::IO)?;
        Ok((reply?, version, ticket))
    }

    /// Takes in an answer that names a node.
    fn take(
        self: &Arc<Mount>,
        name: &[u8],
        (reply, version, ticket): (Vec<u8>, u64, Ticket),
    ) -> Result<Option<Arc<Inode>>> {
        let entry = wire::entry(&mut Body(&reply))?;
        Ok(self.take_entry(name, &entry, version, &ticket))
    }

    fn take_entry(
        self: &Arc<Mount>,
        name: &[u8],
        entry: &Entry,
        version: u64,
        ticket: &Ticket,
    ) -> Option<Arc<Inode>> {
        let valid_until = self.now() + entry.entry_valid;
        let inode = (entry.node != 0).then(|| self.take_node(entry, version, ticket));
        if !ticket.overtaken.contains(name) {
            self.put((ticket.dir, name.to_vec()), Dentry { inode: inode.clone(), valid_until });
        }
        inode
    }

    fn take_node(self: &Arc<Mount>, entry: &Entry, version: u64, ticket: &Ticket) -> Arc<Inode> {
        let known = self.inode(entry.node);
        let known = known.filter(|known| {
            let is_root = entry.node == cenote_fuse::Node::ROOT.0;
            let is_same = is_root || known.is(entry.generation, &entry.attr);
            if !is_same {
                known.make_bad();
            }
            is_same && !known.is_bad()
        });
        let inode = known.unwrap_or_else(|| {
            let new = Inode::new(Arc::downgrade(self), entry.node, entry.generation);
            self.state.lock().inodes.insert(entry.node, Arc::downgrade(&new));
            new
        });
        inode.was_given();
        inode.take_attr(entry.attr, entry.attr_valid, version, self.now());
        if ticket.changed.contains(&entry.node) {
            inode.expire(self.next_version());
            inode.drop_pages(0..u64::MAX);
        }
        inode
    }

    fn put(&self, name: Name, dentry: Dentry) {
        let before = self.state.lock().dentries.insert(name, dentry);
        drop(before);
    }

    fn remove(&self, dir: &Inode, name: &[u8]) {
        let before = self.state.lock().dentries.remove(&(dir.node(), name.to_vec()));
        drop(before);
    }

    fn cached(&self, dir: &Inode, name: &[u8]) -> Option<Option<Arc<Inode>>> {
        let state = self.state.lock();
        let dentry = state.dentries.get(&(dir.node(), name.to_vec()))?;
        let is_good = dentry.inode.as_ref().is_none_or(|inode| !inode.is_bad());
        (is_good && self.now() < dentry.valid_until).then(|| dentry.inode.clone())
    }

    /// Looks a name up in a locked directory.
    async fn look(
        self: &Arc<Mount>,
        dir: &Arc<Inode>,
        name: &[u8],
        trust: Trust,
    ) -> Result<Option<Arc<Inode>>> {
        if let Some(found) = self.cached(dir, name).filter(|_| trust == Trust::Caches) {
            return Ok(found);
        }
        let request = |unique| wire::Request::new(Opcode::Lookup, unique, dir.node()).name(name);
        match self.ask_for(dir, request).await {
            Ok(answer) => self.take(name, answer),
            Err(Errno::NOENT) => {
                self.remove(dir, name);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn step(self: &Arc<Mount>, dir: &Arc<Inode>, name: &[u8], trust: Trust) -> Result<Arc<Inode>> {
        if let Some(found) = self.cached(dir, name).filter(|_| trust == Trust::Caches) {
            return found.ok_or(Errno::NOENT);
        }
        let _locked = dir.names.read().await;
        self.look(dir, name, trust).await?.ok_or(Errno::NOENT)
    }

    /// The file at a path.
    async fn walk(self: &Arc<Mount>, path: &[&str], trust: Trust) -> Result<Arc<Inode>> {
        let mut at = self.root()?;
        for name in path {
            if at.last_attr().is_some_and(|attr| !attr.is_dir()) {
                return Err(Errno::NOTDIR);
            }
            at = self.step(&at, name.as_bytes(), trust).await?;
        }
        Ok(at)
    }

    /// The directory of a path, and the last name.
    async fn walk_to<'a>(
        self: &Arc<Mount>,
        path: &[&'a str],
        trust: Trust,
    ) -> Result<(Arc<Inode>, &'a [u8])> {
        let (name, above) = path.split_last().ok_or(Errno::INVAL)?;
        let dir = self.walk(above, trust).await?;
        match dir.last_attr() {
            Some(attr) if !attr.is_dir() => Err(Errno::NOTDIR),
            _ => Ok((dir, name.as_bytes())),
        }
    }

    async fn attr_of(&self, inode: &Inode) -> Result<Attr> {
        if inode.is_bad() {
            return Err(Errno::IO);
        }
        if let Some(attr) = inode.valid_attr(self.now()) {
            return Ok(attr);
        }
        let version = self.now_version();
        let request = |unique| {
            // `fuse_getattr_in`: getattr_flags, dummy, fh (8).
            wire::Request::new(Opcode::Getattr, unique, inode.node()).u32(0).u32(0).u64(0)
        };
        let (attr, valid) = wire::attr(&self.ask(request).await?)?;
        inode.take_attr(attr, valid, version, self.now());
        Ok(attr)
    }

    /// A change of names in `dir` succeeded.
    fn names_changed(&self, dir: &Inode) {
        dir.expire(self.next_version());
    }

    /// `stat`.
    pub async fn stat(self: &Arc<Mount>, path: &[&str]) -> Result<Attr> {
        let _user = self.enter();
        retrying!(async |trust| {
            let inode = self.walk(path, trust).await?;
            self.attr_of(&inode).await
        })
    }

    /// `open`.
    pub async fn open(self: &Arc<Mount>, path: &[&str], how: How) -> Result<Descriptor> {
        let user = self.enter();
        let inode = retrying!(async |trust| {
            if how == How::Existing {
                return self.walk(path, trust).await;
            }
            let (dir, name) = self.walk_to(path, trust).await?;
            let _locked = dir.names.write().await;
            match self.look(&dir, name, trust).await? {
                Some(_) if how == How::New => Err(Errno::EXIST),
                Some(found) => Ok(found),
                None => {
                    let request = |unique| {
                        let request = wire::Request::new(Opcode::Mknod, unique, dir.node());
                        request.u32(0o100644).u32(0).u32(0).u32(0).name(name)
                    };
                    self.make(&dir, name, request).await
                }
            }
        })?;
        match inode.last_attr() {
            Some(attr) if attr.is_dir() => Err(Errno::ISDIR),
            Some(attr) if attr.is_symlink() => Err(Errno::LOOP),
            _ => Ok(Descriptor { user, inode }),
        }
    }

    /// Makes a name with a request that answers with its node.
    async fn make(
        self: &Arc<Mount>,
        dir: &Arc<Inode>,
        name: &[u8],
        request: impl FnOnce(u64) -> wire::Request,
    ) -> Result<Arc<Inode>> {
        let answer = self.ask_for(dir, request).await?;
        let made = self.take(name, answer)?;
        self.names_changed(dir);
        made.ok_or(Errno::IO)
    }

    async fn make_new(
        self: &Arc<Mount>,
        path: &[&str],
        request: impl Fn(u64, u64, &[u8]) -> wire::Request,
    ) -> Result<()> {
        let _user = self.enter();
        retrying!(async |trust| {
            let (dir, name) = self.walk_to(path, trust).await?;
            let _locked = dir.names.write().await;
            if self.look(&dir, name, trust).await?.is_some() {
                return Err(Errno::EXIST);
            }
            self.make(&dir, name, |unique| request(unique, dir.node(), name)).await.map(drop)
        })
    }

    /// `mkdir`.
    pub async fn mkdir(self: &Arc<Mount>, path: &[&str]) -> Result<()> {
        self.make_new(path, |unique, dir, name| {
            wire::Request::new(Opcode::Mkdir, unique, dir).u32(0o755).u32(0).name(name)
        })
        .await
    }

    /// `symlink`.
    pub async fn symlink(self: &Arc<Mount>, path: &[&str], target: &str) -> Result<()> {
        self.make_new(path, |unique, dir, name| {
            wire::Request::new(Opcode::Symlink, unique, dir).name(name).name(target.as_bytes())
        })
        .await
    }

    /// `link`.
    pub async fn link(self: &Arc<Mount>, from: &[&str], to: &[&str]) -> Result<()> {
        let _user = self.enter();
        retrying!(async |trust| {
            let old = self.walk(from, trust).await?;
            let (dir, name) = self.walk_to(to, trust).await?;
            let _locked = dir.names.write().await;
            if self.look(&dir, name, trust).await?.is_some() {
                return Err(Errno::EXIST);
            }
            if old.last_attr().is_some_and(|attr| attr.is_dir()) {
                return Err(Errno::PERM);
            }
            let request =
                |unique| wire::Request::new(Opcode::Link, unique, dir.node()).u64(old.node()).name(name);
            let made = self.make(&dir, name, request).await.map(drop);
            old.expire(self.next_version());
            made
        })
    }

    /// `readlink`.
    pub async fn readlink(self: &Arc<Mount>, path: &[&str]) -> Result<Vec<u8>> {
        let _user = self.enter();
        retrying!(async |trust| {
            let inode = self.walk(path, trust).await?;
            if inode.last_attr().is_some_and(|attr| !attr.is_symlink()) {
                return Err(Errno::INVAL);
            }
            self.ask(|unique| wire::Request::new(Opcode::Readlink, unique, inode.node())).await
        })
    }

    /// `unlink`, or `rmdir`.
    pub async fn unlink(self: &Arc<Mount>, path: &[&str], is_dir: bool) -> Result<()> {
        let _user = self.enter();
        retrying!(async |trust| {
            let (dir, name) = self.walk_to(path, trust).await?;
            let _locked = dir.names.write().await;
            let victim = self.look(&dir, name, trust).await?.ok_or(Errno::NOENT)?;
            match victim.last_attr() {
                Some(attr) if attr.is_dir() && !is_dir => return Err(Errno::ISDIR),
                Some(attr) if !attr.is_dir() && is_dir => return Err(Errno::NOTDIR),
                _ => {}
            }
            let opcode = if is_dir { Opcode::Rmdir } else { Opcode::Unlink };
            let done = self.ask(|unique| wire::Request::new(opcode, unique, dir.node()).name(name)).await;
            if matches!(done, Ok(_) | Err(Errno::NOENT)) {
                self.remove(&dir, name);
                victim.expire(self.next_version());
                self.names_changed(&dir);
            }
            done.map(drop)
        })
    }

    /// `renameat2`; `exchange`: `RENAME_EXCHANGE`.
    pub async fn rename(self: &Arc<Mount>, from: &[&str], to: &[&str], exchange: bool) -> Result<()> {
        const EXCHANGE: u32 = 2;
        let _user = self.enter();
        retrying!(async |trust| {
            let ((old_dir, old_name), (new_dir, new_name)) =
                (self.walk_to(from, trust).await?, self.walk_to(to, trust).await?);
            let (first, second) = match old_dir.node() <= new_dir.node() {
                true => (&old_dir, &new_dir),
                false => (&new_dir, &old_dir),
            };
            let _first = first.names.write().await;
            let _second = match first.node() == second.node() {
                true => None,
                false => Some(second.names.write().await),
            };
            let old = self.look(&old_dir, old_name, trust).await?.ok_or(Errno::NOENT)?;
            let new = self.look(&new_dir, new_name, trust).await?;
            let is_dir = |inode: &Inode| inode.last_attr().is_some_and(|attr| attr.is_dir());
            match &new {
                None if exchange => return Err(Errno::NOENT),
                Some(new) if Arc::ptr_eq(new, &old) => return Ok(()),
                Some(new) if !exchange && is_dir(new) && !is_dir(&old) => return Err(Errno::ISDIR),
                Some(new) if !exchange && !is_dir(new) && is_dir(&old) => return Err(Errno::NOTDIR),
                _ => {}
            }
            let flags = if exchange { EXCHANGE } else { 0 };
            let request = |unique| {
                let request = wire::Request::new(Opcode::Rename2, unique, old_dir.node());
                request.u64(new_dir.node()).u32(flags).u32(0).name(old_name).name(new_name)
            };
            self.ask(request).await?;
            let names = ((old_dir.node(), old_name.to_vec()), (new_dir.node(), new_name.to_vec()));
            let dropped = {
                let state = &mut *self.state.lock();
                let (old, new) = (state.dentries.remove(&names.0), state.dentries.remove(&names.1));
                let old = old.map(|old| state.dentries.insert(names.1, old));
                let new = match exchange {
                    true => (None, new.map(|new| state.dentries.insert(names.0, new))),
                    false => (new, None),
                };
                (old, new)
            };
            drop(dropped);
            old.expire(self.next_version());
            new.into_iter().for_each(|new| new.expire(self.next_version()));
            self.names_changed(&old_dir);
            self.names_changed(&new_dir);
            Ok(())
        })
    }

    /// Names of a directory, sorted.
    pub async fn list(self: &Arc<Mount>, path: &[&str]) -> Result<Vec<String>> {
        let _user = self.enter();
        let mut names = retrying!(async |trust| {
            let dir = self.walk(path, trust).await?;
            if dir.last_attr().is_some_and(|attr| !attr.is_dir()) {
                return Err(Errno::NOTDIR);
            }
            let _locked = dir.names.read().await;
            let (mut all, mut cookie) = (Vec::new(), 0);
            loop {
                let request = |unique| read(Opcode::Readdirplus, unique, dir.node(), cookie, LISTING_BYTES);
                let (reply, version, ticket) = self.ask_for(&dir, request).await?;
                let (names, last) = wire::listing(&reply)?;
                for Listed { name, entry } in names {
                    if entry.node != 0 {
                        self.take_entry(&name, &entry, version, &ticket);
                    }
                    all.push(String::from_utf8_lossy(&name).into_owned());
                }
                match last {
                    Some(last) => cookie = last,
                    None => return Ok(all),
                }
            }
        })?;
        names.sort_unstable();
        Ok(names)
    }

    /// `truncate`, `chmod`: sets the given fields.
    async fn set(&self, inode: &Inode, size: Option<u64>, mode: Option<u32>) -> Result<()> {
        let _locked = inode.content.lock().await;
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let valid = bit(size.is_some(), FATTR_SIZE) | bit(mode.is_some(), FATTR_MODE);
        let request = |unique| {
            let request = wire::Request::new(Opcode::Setattr, unique, inode.node());
            request.setattr(valid, size.unwrap_or(0), mode.unwrap_or(0))
        };
        let reply = self.ask(request).await?;
        let version = self.next_version();
        inode.resized(|before| size.unwrap_or(before), version);
        let (attr, valid) = wire::attr(&reply)?;
        inode.take_attr(attr, valid, version, self.now());
        Ok(())
    }

    /// `chmod`.
    pub async fn chmod(self: &Arc<Mount>, path: &[&str], mode: u32) -> Result<()> {
        let _user = self.enter();
        retrying!(async |trust| {
            let inode = self.walk(path, trust).await?;
            self.set(&inode, None, Some(mode)).await
        })
    }

    /// `setxattr`.
    pub async fn setxattr(self: &Arc<Mount>, path: &[&str], name: &str, value: &[u8]) -> Result<()> {
        let _user = self.enter();
        retrying!(async |trust| {
            let inode = self.walk(path, trust).await?;
            let _locked = inode.content.lock().await;
            let request = |unique| {
                let request = wire::Request::new(Opcode::Setxattr, unique, inode.node());
                request.u32(value.len() as u32).u32(0).u32(0).u32(0).name(name.as_bytes()).data(value)
            };
            let done = self.ask(request).await.map(drop);
            inode.expire(self.next_version());
            done
        })
    }

    /// `getxattr`.
    pub async fn getxattr(self: &Arc<Mount>, path: &[&str], name: &str) -> Result<Vec<u8>> {
        let _user = self.enter();
        retrying!(async |trust| {
            let inode = self.walk(path, trust).await?;
            let request = |unique| {
                let request = wire::Request::new(Opcode::Getxattr, unique, inode.node());
                request.u32(XATTR_BYTES).u32(0).name(name.as_bytes())
            };
            self.ask(request).await
        })
    }
}

/// `fuse_read_in`: fh (8), offset (8), size, read_flags, lock_owner (8), flags, padding.
fn read(opcode: Opcode, unique: u64, node: u64, offset: u64, len: u32) -> wire::Request {
    let request = wire::Request::new(opcode, unique, node);
    request.u64(0).u64(offset).u32(len).u32(0).u64(0).u32(0).u32(0)
}

impl Descriptor {
    fn mount(&self) -> &Arc<Mount> {
        &self.user.0
    }

    fn check(&self) -> Result<()> {
        if self.inode.is_bad() { Err(Errno::IO) } else { Ok(()) }
    }

    /// `fstat`.
    pub async fn stat(&self) -> Result<Attr> {
        self.mount().attr_of(&self.inode).await
    }

    /// `pread`.
    pub async fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.check()?;
        let known = self.inode.last_attr().map_or(0, |attr| attr.size_bytes);
        let size = if offset + len > known { self.stat().await?.size_bytes } else { known };
        let mut end = (offset + len).min(size);
        let mut all = Vec::new();
        let mut at = offset;
        while at < end {
            let number = at / PAGE_BYTES;
            let page = self.page(number).await?;
            // The answer may have told that the file ends before.
            end = end.min(self.inode.last_attr().map_or(end, |attr| attr.size_bytes));
            if at >= end {
                break;
            }
            let (from, to) =
                ((at % PAGE_BYTES) as usize, (end - number * PAGE_BYTES).min(PAGE_BYTES) as usize);
            all.extend(&page[from..to]);
            at = (number + 1) * PAGE_BYTES;
        }
        Ok(all)
    }

    async fn page(&self, number: u64) -> Result<Vec<u8>> {
        if let Some(page) = self.inode.page(number) {
            return Ok(page);
        }
        let version = self.mount().now_version();
        let (node, offset) = (self.inode.node(), number * PAGE_BYTES);
        let request = |unique| read(Opcode::Read, unique, node, offset, PAGE_BYTES as u32);
        let mut page = self.mount().ask(request).await?;
        let read = page.len() as u64;
        page.resize(PAGE_BYTES as usize, 0);
        self.inode.take_page(number, page.clone(), version);
        if read < PAGE_BYTES {
            self.inode.ends_at(offset + read, version, self.mount().next_version());
        }
        Ok(page)
    }

    /// `pwrite`, in one request.
    pub async fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check()?;
        let _locked = self.inode.content.lock().await;
        let request = |unique| {
            // `fuse_write_in`: fh (8), offset (8), size, write_flags, lock_owner (8), flags, padding.
            let request = wire::Request::new(Opcode::Write, unique, self.inode.node());
            let request = request.u64(0).u64(offset).u32(data.len() as u32).u32(0);
            request.u64(0).u32(0).u32(0).data(data)
        };
        let end = offset + data.len() as u64;
        match self.mount().ask(request).await {
            Ok(_) => {
                self.inode.resized(|size| size.max(end), self.mount().next_version());
                self.inode.write_pages(offset, data);
                Ok(())
            }
            Err(error) => {
                self.inode.drop_pages(offset..end);
                Err(error)
            }
        }
    }

    /// `copy_file_range` of a whole range, if the daemon can share its blocks: `OPNOTSUPP` otherwise, and
    /// callers read and write, as Linux does then. If only the first blocks can be shared, pages are copied
    /// from there.
    ///
    /// Source: `fuse_copy_file_range`, `generic_copy_file_checks`.
    pub async fn copy(&self, from: &Descriptor, from_at: u64, to_at: u64, len: u64) -> Result<()> {
        from.check()?;
        self.check()?;
        if Arc::ptr_eq(&self.inode, &from.inode) {
            let len = len.min(self.stat().await?.size_bytes.saturating_sub(from_at));
            if to_at + len > from_at && to_at < from_at + len {
                return Err(Errno::INVAL);
            }
        }
        let mut done = 0;
        while done < len {
            match self.share(from, from_at + done, to_at + done, len - done).await {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::OPNOTSUPP | Errno::XDEV) if done == 0 => return Err(Errno::OPNOTSUPP),
                Err(Errno::OPNOTSUPP | Errno::XDEV) => {
                    let data = from.read(from_at + done, len - done).await?;
                    if !data.is_empty() {
                        self.write(to_at + done, &data).await?;
                    }
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Asks the daemon to copy; the bytes that it copied.
    async fn share(&self, from: &Descriptor, from_at: u64, to_at: u64, len: u64) -> Result<u64> {
        if !Arc::ptr_eq(self.mount(), from.mount()) {
            return Err(Errno::XDEV);
        }
        let _locked = self.inode.content.lock().await;
        let request = |unique| {
            // `fuse_copy_file_range_in`: fh_in, off_in, nodeid_out, fh_out, off_out, len, flags (8 each).
            let request = wire::Request::new(Opcode::CopyFileRange, unique, from.inode.node());
            let request = request.u64(0).u64(from_at).u64(self.inode.node());
            request.u64(0).u64(to_at).u64(len).u64(0)
        };
        let count = u64::from(wire::Body(&self.mount().ask(request).await?).u32()?);
        if count > 0 {
            let end = to_at + count;
            self.inode.drop_pages(to_at..end);
            self.inode.resized(|size| size.max(end), self.mount().next_version());
        }
        Ok(count)
    }

    /// `ftruncate`.
    pub async fn truncate(&self, size: u64) -> Result<()> {
        self.check()?;
        self.mount().set(&self.inode, Some(size), None).await
    }

    /// `fsync`.
    pub async fn fsync(&self) -> Result<()> {
        self.check()?;
        let node = self.inode.node();
        // `fuse_fsync_in`: fh (8), fsync_flags, padding.
        let request = |unique| wire::Request::new(Opcode::Fsync, unique, node).u64(0).u32(0).u32(0);
        self.mount().ask(request).await.map(drop)
    }
}

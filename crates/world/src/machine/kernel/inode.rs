//! A node as the kernel caches it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cenote_fuse::Node;
use cenote_runtime::Instant;
use parking_lot::Mutex;

use super::Mount;
use super::wire::{Attr, Opcode, Request};

pub const PAGE_BYTES: u64 = 4096;

/// Dropped with its last name and user, it is forgotten: the daemon hears how often it was given.
pub struct Inode {
    node: u64,
    generation: u64,
    mount: Weak<Mount>,
    state: Mutex<State>,
    /// Held exclusively to change names in a directory, shared to look them up.
    pub names: tokio::sync::RwLock<()>,
    /// Held to change a file's content.
    pub content: tokio::sync::Mutex<()>,
}

struct State {
    /// `None`: not known yet.
    attr: Option<Attr>,
    valid_until: Instant,
    /// Of its last change or notice.
    version: u64,
    pages: BTreeMap<u64, Vec<u8>>,
    given: u64,
    /// Its number was given to another file.
    is_bad: bool,
}

impl Inode {
    pub fn root(mount: Weak<Mount>) -> Arc<Inode> {
        Inode::new(mount, Node::ROOT.0, 0)
    }

    pub fn new(mount: Weak<Mount>, node: u64, generation: u64) -> Arc<Inode> {
        let (attr, valid_until, pages) = (None, Instant::default(), BTreeMap::new());
        let state = State { attr, valid_until, version: 0, pages, given: 0, is_bad: false };
        let (names, content) = Default::default();
        Arc::new(Inode { node, generation, mount, state: state.into(), names, content })
    }

    pub fn node(&self) -> u64 {
        self.node
    }

    /// Whether an answer about this node is about this file.
    pub fn is(&self, generation: u64, attr: &Attr) -> bool {
        let known = self.state.lock().attr;
        self.generation == generation && known.is_none_or(|known| known.is_kin(attr))
    }

    pub fn make_bad(&self) {
        self.state.lock().is_bad = true;
    }

    pub fn is_bad(&self) -> bool {
        self.state.lock().is_bad
    }

    pub fn was_given(&self) {
        self.state.lock().given += 1;
    }

    /// The last known attributes, even if out of date.
    pub fn last_attr(&self) -> Option<Attr> {
        self.state.lock().attr
    }

    pub fn valid_attr(&self, now: Instant) -> Option<Attr> {
        let state = self.state.lock();
        state.attr.filter(|_| now < state.valid_until)
    }

    /// Takes attributes from an answer to a request sent at `version`. A later change overtakes them.
    pub fn take_attr(&self, attr: Attr, valid: Duration, version: u64, now: Instant) {
        let mut state = self.state.lock();
        if state.version <= version {
            let before = state.attr.replace(attr);
            state.valid_until = now + valid;
            if before.is_some_and(|before| before.size_bytes > attr.size_bytes) {
                state.drop_behind(attr.size_bytes);
            }
        } else if state.attr.is_none() {
            state.attr = Some(attr);
        }
    }

    /// Attributes are out of date as of `version`.
    pub fn expire(&self, version: u64) {
        let mut state = self.state.lock();
        (state.valid_until, state.version) = (Instant::default(), version);
    }

    /// A write or truncation succeeded; answers before `version` are overtaken.
    pub fn resized(&self, size: impl FnOnce(u64) -> u64, version: u64) {
        let mut state = self.state.lock();
        (state.valid_until, state.version) = (Instant::default(), version);
        let Some(known) = &mut state.attr else { return };
        let before = known.size_bytes;
        let now = size(before);
        known.size_bytes = now;
        if now < before {
            state.drop_behind(now);
        }
    }

    /// An answer to a read sent at `version` was short: the file ends there, unless a later change overtakes
    /// that (`fuse_short_read`). `now`: the version of this change.
    pub fn ends_at(&self, size_bytes: u64, version: u64, now: u64) {
        let mut state = self.state.lock();
        let is_new = state.version <= version;
        if let Some(attr) = state.attr.as_mut().filter(|attr| is_new && attr.size_bytes > size_bytes) {
            attr.size_bytes = size_bytes;
            state.version = now;
        }
    }

    pub fn page(&self, number: u64) -> Option<Vec<u8>> {
        self.state.lock().pages.get(&number).cloned()
    }

    /// Caches a page read by a request sent at `version`.
    pub fn take_page(&self, number: u64, page: Vec<u8>, version: u64) {
        let mut state = self.state.lock();
        if state.version <= version {
            state.pages.insert(number, page);
        }
    }

    /// Written data goes into cached pages, and into pages that it covers.
    pub fn write_pages(&self, offset: u64, data: &[u8]) {
        let mut state = self.state.lock();
        let end = offset + data.len() as u64;
        for number in offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            let start = number * PAGE_BYTES;
            let (from, to) = (offset.max(start), end.min(start + PAGE_BYTES));
            let is_whole = to - from == PAGE_BYTES;
            let page = match state.pages.get_mut(&number) {
                Some(page) => page,
                None if is_whole => state.pages.entry(number).or_insert(vec![0; PAGE_BYTES as usize]),
                None => continue,
            };
            let (in_page, in_data) = ((from - start) as usize, (from - offset) as usize);
            let len = (to - from) as usize;
            page[in_page..in_page + len].copy_from_slice(&data[in_data..in_data + len]);
        }
    }

    pub fn drop_pages(&self, range: Range<u64>) {
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        self.state.lock().pages.retain(|number, _| !pages.contains(number));
    }
}

impl State {
    /// Pages with bytes behind the end of the file.
    fn drop_behind(&mut self, size_bytes: u64) {
        self.pages.retain(|number, _| (number + 1) * PAGE_BYTES <= size_bytes);
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        let given = self.state.lock().given;
        let Some(mount) = self.mount.upgrade().filter(|_| given > 0) else { return };
        let connection = mount.state.lock().connection.clone();
        if let Some(connection) = connection {
            // The daemon does not answer, and nobody waits.
            drop(connection.send(Request::new(Opcode::Forget, 0, self.node).u64(given).finish()));
        }
    }
}

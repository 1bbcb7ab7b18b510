//! Notifies the kernel of changes to the mounted dataset that did not come through it.
//!
//! ```text
//!   cp, rm, mkdir ... --FsWriter--> Holder::changed --+
//!   snapshots, properties ----------------------------+--> queue --> task --> notices, by a thread
//!                                                            settled() waits here
//! ```
//!
//! Idea: a change is only queued, if the kernel holds its node, so no lock is held while the kernel handles a
//! notice. A command waits for the queue before it returns ([`Files::settled`]); if dropped earlier, the
//! notices still follow.
//!
//! In a batch names come first, since a lookup holds its directory's lock: then earlier answers have been
//! absorbed, and nodes follow (see [`Notifier`](cenote_fuse::Notifier)).
//!
//! Locking: `queue` is held for one look or change, under the locks of the changed object. A reader of
//! attributes for the kernel compares `changes` from before with those after the kernel holds the node:
//! either the reader sees the change, or the writer finds the node held.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use cenote_format::units::ObjectId;
use cenote_fs::write::{Changed, Holder};
use cenote_fuse::{Node, Notifier};
use futures::channel::oneshot;
use parking_lot::Mutex;

use super::node::TreeId;
use super::{Files, Inner};

/// A cache for the kernel to drop.
#[derive(Debug)]
pub(super) enum Notice {
    /// A name in a directory.
    Name(Node, Bytes),
    /// A name to look up again: perhaps the same file.
    Expired(Node, Bytes),
    /// Attributes and content of a node.
    Node(Node),
    /// Attributes alone.
    Attributes(Node),
    /// Attributes and content of an object of the mounted dataset.
    Object(Node, ObjectId),
    /// Attributes and content of a directory, and its names.
    Listing(Node),
}

/// Mounted file systems of the process whose kernel is being told of something.
static TELLING: AtomicUsize = AtomicUsize::new(0);

/// Whether [`Files::settled`] of every mounted file system would return at once.
pub fn all_told() -> bool {
    TELLING.load(Ordering::SeqCst) == 0
}

#[derive(Debug, Default)]
pub(super) struct Telling {
    queue: Mutex<Queue>,
    /// Number of external changes so far.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    batch: Batch,
    waiting: Vec<oneshot::Sender<()>>,
    is_telling: bool,
}

#[derive(Debug, Default)]
struct Batch {
    names: BTreeSet<(Node, Bytes)>,
    expired: BTreeSet<(Node, Bytes)>,
    /// Directories whose lookups and listings must be absorbed first.
    listings: BTreeSet<Node>,
    nodes: BTreeMap<Node, Option<ObjectId>>,
    attributes: BTreeSet<Node>,
}

impl Batch {
    fn add(&mut self, notice: Notice) {
        match notice {
            Notice::Name(dir, name) => _ = self.names.insert((dir, name)),
            Notice::Expired(dir, name) => _ = self.expired.insert((dir, name)),
            Notice::Node(node) => _ = self.nodes.entry(node).or_default(),
            Notice::Attributes(node) => _ = self.attributes.insert(node),
            Notice::Object(node, object) => _ = self.nodes.insert(node, Some(object)),
            Notice::Listing(node) => {
                self.listings.insert(node);
                self.nodes.entry(node).or_default();
            }
        }
    }

    fn is_empty(&self) -> bool {
        let is_empty = self.names.is_empty() && self.expired.is_empty();
        is_empty && self.nodes.is_empty() && self.attributes.is_empty()
    }

    /// Blocks.
    fn tell(self, notifier: &Notifier) {
        self.names.iter().for_each(|(dir, name)| notifier.name_changed(*dir, name));
        self.expired.iter().for_each(|(dir, name)| notifier.name_expired(*dir, name));
        self.listings.into_iter().for_each(|dir| notifier.names_taken_in(dir));
        self.nodes.into_keys().for_each(|node| notifier.changed(node));
        self.attributes.into_iter().for_each(|node| notifier.attributes_changed(node));
    }
}

impl Telling {
    /// Number of external changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn count(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

impl Inner {
    pub(super) fn tell(&self, notices: impl IntoIterator<Item = Notice>) {
        let mut queue = self.telling.queue.lock();
        notices.into_iter().for_each(|notice| queue.batch.add(notice));
        self.begin_telling(&mut queue);
    }

    fn begin_telling(&self, queue: &mut Queue) {
        if queue.is_telling || queue.batch.is_empty() {
            return;
        }
        // Without a notifier they stay queued.
        if let (Some(notifier), Some(me)) = (self.notifier.get(), self.me.upgrade()) {
            queue.is_telling = true;
            TELLING.fetch_add(1, Ordering::SeqCst);
            self.runtime.spawn(Files(me).tell_all(notifier.clone())).detach();
        }
    }
}

impl Files {
    /// Enables notices; called once, when mounted.
    pub fn set_notifier(&self, notifier: Notifier) {
        self.0.notifier.set(notifier).ok();
        self.0.begin_telling(&mut self.0.telling.queue.lock());
    }

    /// Waits until the kernel knows of all changes so far.
    pub async fn settled(&self) {
        let told = {
            let mut queue = self.0.telling.queue.lock();
            if !queue.is_telling {
                return;
            }
            let (sender, told) = oneshot::channel();
            queue.waiting.push(sender);
            told
        };
        told.await.ok();
    }

    async fn tell_all(self, notifier: Notifier) {
        loop {
            let (mut batch, waiting) = {
                let mut queue = self.0.telling.queue.lock();
                let waiting = std::mem::take(&mut queue.waiting);
                if queue.batch.is_empty() {
                    queue.is_telling = false;
                    TELLING.fetch_sub(1, Ordering::SeqCst);
                    waiting.into_iter().for_each(|waiting| _ = waiting.send(()));
                    return;
                }
                (std::mem::take(&mut queue.batch), waiting)
            };
            let objects: Vec<ObjectId> = batch.nodes.values().copied().flatten().collect();
            for object in objects {
                batch.listings.extend(self.parent_of(object).await);
            }
            let notifier = notifier.clone();
            self.0.runtime.blocking(move || batch.tell(&notifier)).await;
            waiting.into_iter().for_each(|waiting| _ = waiting.send(()));
        }
    }

    /// The directory through which the kernel found an object, if held.
    async fn parent_of(&self, object: ObjectId) -> Option<Node> {
        let attr = self.head().view().attr(object).await.ok()?;
        self.0.references.node_of(TreeId::Head, attr.parent)
    }

    /// For an operation: makes the kernel write back and drop a node's content that it may have changed
    /// through a mapping. Returns whether it did.
    pub(super) async fn write_back(&self, node: Node, range: Range<u64>) -> bool {
        match self.0.notifier.get() {
            Some(notifier) => notifier.write_back(&self.0.runtime, node, range).await,
            None => false,
        }
    }

    /// The same for the whole dataset, outside of operations.
    pub(super) async fn write_all_back(&self, notifier: &Notifier) {
        let (files, notifier) = (self.clone(), notifier.clone());
        let write = move || {
            let held = files.0.references.of_tree(TreeId::Head);
            held.into_iter().for_each(|(node, _)| notifier.changed(node));
        };
        self.0.runtime.blocking(write).await;
    }
}

impl Holder for Inner {
    fn keeps(&self, file: ObjectId) -> bool {
        self.references.keep(file)
    }

    fn freed(&self, file: ObjectId) {
        self.telling.count();
        if let Some(node) = self.references.node_of(TreeId::Head, file) {
            self.references.make_stale(node);
        }
    }

    fn changed(&self, what: Changed<'_>) {
        self.telling.count();
        let (Changed::Name(object, _) | Changed::File(object)) = what;
        // The kernel caches nothing of nodes it does not hold.
        let Some(node) = self.references.node_of(TreeId::Head, object) else { return };
        let notice = match what {
            Changed::Name(_, name) => Notice::Name(node, Bytes::copy_from_slice(name)),
            Changed::File(object) => Notice::Object(node, object),
        };
        self.tell([notice]);
    }
}

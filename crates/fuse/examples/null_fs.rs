//! The cost of FUSE alone: a file system that keeps names and sizes in memory, and no content.
//!
//! `cargo run --release -p cenote-fuse --example null_fs -- DIR` serves it on DIR, as root, until unmounted.
//! Files read as zeros; writes are dropped. `bench/mount` compares it with Cenote's own mount: the same
//! transport, no storage.
#![allow(clippy::print_stderr)]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cenote_fuse::vfs::{NewNode, ReadFlags, WriteFlags};
use cenote_fuse::{
    Attr, Caller, DirSink, Errno, FileType, MountOptions, Node, Result, Session, SessionOptions, SetAttr,
    Statfs, Time, Vfs, mount,
};
use cenote_runtime::Runtime;
use parking_lot::Mutex;

const ZEROS: &[u8] = &[0; 1 << 20];
/// How long the kernel may cache names and attributes.
const VALID: Duration = Duration::from_secs(3600);
const DIRECTORY: u32 = 0o040_755;
const TYPE_BITS: u32 = 0o170_000;

struct NullFs(Mutex<Tree>);

struct Tree {
    files: HashMap<Node, File>,
    last: u64,
}

struct File {
    attr: Attr,
    names: BTreeMap<Vec<u8>, Node>,
}

impl NullFs {
    fn new() -> NullFs {
        let root = File { attr: attr(Node::ROOT, DIRECTORY), names: BTreeMap::new() };
        NullFs(Mutex::new(Tree { files: [(Node::ROOT, root)].into(), last: Node::ROOT.0 }))
    }

    fn with<T>(&self, node: Node, look: impl FnOnce(&mut File) -> T) -> Result<T> {
        self.0.lock().files.get_mut(&node).map(look).ok_or(Errno::NOENT)
    }
}

fn attr(node: Node, mode: u32) -> Attr {
    let now = Time::default();
    Attr {
        ino: node.0,
        size_bytes: 0,
        sectors: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        mode,
        links: 1,
        uid: 0,
        gid: 0,
        device: (0, 0),
        block_bytes: 128 << 10,
        statx: 0,
        valid: VALID,
    }
}

fn entry(attr: Attr) -> cenote_fuse::vfs::Entry {
    cenote_fuse::vfs::Entry { node: Node(attr.ino), generation: 1, attr }
}

impl Vfs for NullFs {
    fn valid_for(&self, _: Node) -> Duration {
        VALID
    }

    async fn lookup(&self, _: Caller, dir: Node, name: &[u8]) -> Result<Option<cenote_fuse::vfs::Entry>> {
        let Some(node) = self.with(dir, |file| file.names.get(name).copied())? else { return Ok(None) };
        self.with(node, |file| Some(entry(file.attr)))
    }

    async fn getattr(&self, node: Node) -> Result<Attr> {
        self.with(node, |file| file.attr)
    }

    async fn setattr(&self, _: Caller, node: Node, set: SetAttr) -> Result<Attr> {
        self.with(node, |file| {
            file.attr.size_bytes = set.size_bytes.unwrap_or(file.attr.size_bytes);
            file.attr
        })
    }

    async fn mknod(
        &self,
        _: Caller,
        dir: Node,
        name: &[u8],
        new: NewNode,
    ) -> Result<cenote_fuse::vfs::Entry> {
        let mut tree = self.0.lock();
        tree.last += 1;
        let node = Node(tree.last);
        let attr = attr(node, new.mode);
        tree.files.insert(node, File { attr, names: BTreeMap::new() });
        tree.files.get_mut(&dir).ok_or(Errno::NOENT)?.names.insert(name.to_vec(), node);
        Ok(entry(attr))
    }

    async fn unlink(&self, _: Caller, dir: Node, name: &[u8]) -> Result<()> {
        self.with(dir, |file| file.names.remove(name).map(drop).ok_or(Errno::NOENT))?
    }

    async fn rmdir(&self, caller: Caller, dir: Node, name: &[u8]) -> Result<()> {
        self.unlink(caller, dir, name).await
    }

    async fn read(&self, node: Node, offset_bytes: u64, len_bytes: u32, _: ReadFlags) -> Result<Vec<Bytes>> {
        let size_bytes = self.with(node, |file| file.attr.size_bytes)?;
        let len = size_bytes.saturating_sub(offset_bytes).min(len_bytes.into()).min(ZEROS.len() as u64);
        Ok(vec![Bytes::from_static(&ZEROS[..len as usize])])
    }

    async fn write(
        &self,
        _: Caller,
        node: Node,
        offset_bytes: u64,
        data: Bytes,
        _: WriteFlags,
    ) -> Result<()> {
        self.with(node, |file| {
            file.attr.size_bytes = file.attr.size_bytes.max(offset_bytes + data.len() as u64);
        })
    }

    async fn readdir(&self, dir: Node, cookie: u64, _: ReadFlags, sink: &mut dyn DirSink) -> Result<()> {
        let tree = self.0.lock();
        let names = &tree.files.get(&dir).ok_or(Errno::NOENT)?.names;
        // The cookie is the node's number: names are listed in the order of creation.
        let mut in_order: Vec<(&Node, &Vec<u8>)> = names.iter().map(|(name, node)| (node, name)).collect();
        in_order.sort();
        for (node, name) in in_order.into_iter().filter(|(node, _)| node.0 > cookie) {
            let attr = tree.files[node].attr;
            let kind = match attr.mode & TYPE_BITS {
                0o040_000 => FileType::Directory,
                _ => FileType::Regular,
            };
            let fits = match sink.wants_entries() {
                true => sink.add_entry(name, &entry(attr), node.0),
                false => sink.add(name, node.0, Some(kind), node.0),
            };
            if !fits {
                break;
            }
        }
        Ok(())
    }

    async fn statfs(&self, _: Node) -> Result<Statfs> {
        let (blocks, block_bytes) = (1 << 30, 128 << 10);
        Ok(Statfs {
            block_bytes,
            blocks,
            free: blocks,
            available: blocks,
            name_bytes: 255,
            ..Statfs::default()
        })
    }
}

fn main() {
    let dir = std::env::args().nth(1).expect("null_fs DIR");
    let options = MountOptions { source: "null".into(), subtype: "null", ..MountOptions::default() };
    let (device, _mounted) =
        mount::mount(Path::new(&dir), &options).unwrap_or_else(|error| panic!("{error}"));
    let runtime = Runtime::real(None);
    let session = Session::start(&runtime, device, NullFs::new(), SessionOptions::default());
    let session = session.unwrap_or_else(|error| panic!("{error}"));
    runtime.block_on(session.ended());
}

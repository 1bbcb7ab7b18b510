//! Files in streams of OpenZFS, read without a pool: as the kernel shows them after a receive.

#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::BTreeMap;

use cenote_format::units::ObjectId;
use cenote_fs::manifest::{escape_path, sha256};
use cenote_fs::{Attr, FileKind};
use cenote_inspect::sent::{Piece, Sent, SentError};
use cenote_runtime::Runtime;
use cenote_stream::StreamFile;
use cenote_testkit::{decompress, needs, shared_path};

/// A stream, the snapshot in it, and the manifest of what receiving gives.
const STREAMS: [(&str, &str, &str); 13] = [
    ("full", "@1", "full@1"),
    ("props-p", "gsrc/a@2", "props@2"),
    ("rep-R", "a@1", "rep@1"),
    ("big-noL", "@1", "bignoL@1"),
    ("big-L", "@1", "bigL@1"),
    ("big-Lc", "@2", "bigLc@2"),
    ("comp-plain", "@1", "comp@1"),
    ("comp-c", "@1", "compc@1"),
    ("comp-Lce", "@1", "compLce@1"),
    ("emb-e", "@1", "emb@1"),
    ("xa", "@1", "xa@1"),
    // The kernel loses the embedded spill blocks of xa-ec.
    ("xa-ec", "@2", "xa@2"),
    ("enc-plain", "@2", "encplain@2"),
];

fn stream(name: &str) -> StreamFile {
    in_memory(decompress(&std::fs::read(shared_path(&format!("streams/{name}.zs.zst"))).unwrap()))
}

fn in_memory(bytes: Vec<u8>) -> StreamFile {
    StreamFile::new(move |at, buffer| {
        let rest = bytes.get(at as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    })
}

fn open(name: &str, snapshot: Option<&str>) -> Result<Sent, SentError> {
    Runtime::real(Some(1)).block_on(Sent::open(stream(name), snapshot))
}

fn content(sent: &mut Sent, id: ObjectId, attr: &Attr) -> Vec<u8> {
    let mut content = sent.content(id, 0..attr.size).unwrap();
    let mut all = Vec::new();
    while let Some(piece) = content.next(sent).unwrap() {
        match piece {
            Piece::Data(data) => all.extend_from_slice(&data),
            Piece::Hole(count) => all.resize(all.len() + count as usize, 0),
        }
    }
    all
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    escape_path(bytes, &mut text);
    text
}

/// Path, type, mode, owner, size, links, time of change, device, hash of the content, target.
fn row(sent: &mut Sent, path: &[u8], id: ObjectId) -> (String, String) {
    let attr = sent.attr(id).unwrap();
    let kind = attr.kind();
    let hash = match kind {
        FileKind::Regular => {
            let data = content(sent, id, &attr);
            assert_eq!(data.len() as u64, attr.size);
            sha256(&data).iter().map(|byte| format!("{byte:02x}")).collect()
        }
        _ => "-".to_owned(),
    };
    let target = match kind {
        FileKind::Symlink => escaped(&sent.read_link(id, &attr).unwrap()),
        _ => "-".to_owned(),
    };
    let (uid, gid) = attr.owner();
    let text = format!(
        "{}\t{:04o}\t{uid}\t{gid}\t{}\t{}\t{}\t{hash}\t{target}",
        kind.letter(),
        attr.permissions(),
        attr.size,
        attr.links,
        attr.mtime,
    );
    let shown = if path.is_empty() { ".".to_owned() } else { escaped(path) };
    (shown, text)
}

fn below(sent: &mut Sent, path: &[u8], id: ObjectId, rows: &mut BTreeMap<String, String>) {
    rows.extend([row(sent, path, id)]);
    if !sent.attr(id).unwrap().is_dir() {
        return;
    }
    let mut entries = Vec::new();
    sent.read_dir(id, |name, dirent| entries.push((name.to_vec(), dirent.object))).unwrap();
    for (name, object) in entries {
        let path = if path.is_empty() { name } else { [path, b"/", &name].concat() };
        below(sent, &path, object, rows);
    }
}

/// The same columns of a manifest.
fn manifest(name: &str) -> BTreeMap<String, String> {
    let packed = std::fs::read(shared_path(&format!("streams/manifests/{name}.tsv.zst"))).unwrap();
    let text = String::from_utf8(decompress(&packed)).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let shown = [1, 2, 3, 4, 5, 6, 7, 9, 10].map(|at| cells[at]).join("\t");
        (cells[0].to_owned(), shown)
    };
    text.lines().skip(1).map(row).collect()
}

#[needs("streams/streams.json")]
#[test]
fn files_of_a_stream_are_those_that_a_receive_gives() {
    for (name, snapshot, wanted) in STREAMS {
        let mut sent = open(name, Some(snapshot)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(sent.name().ends_with(snapshot), "{name}: {}", sent.name());
        let mut rows = BTreeMap::new();
        let root = sent.root();
        below(&mut sent, b"", root, &mut rows);
        let wanted = manifest(wanted);
        for (path, row) in &wanted {
            assert_eq!(rows.get(path), Some(row), "{name}: {path}");
        }
        assert_eq!(rows.len(), wanted.len(), "{name}");
    }
}

#[needs("streams/streams.json")]
#[test]
fn a_stream_without_readable_files_says_why() {
    for (name, why) in [
        ("inc-i", "gsrc/a@2 is an increment"),
        ("enc-w", "is encrypted"),
        ("vol", "is no file system"),
        ("resume-rest", "is the rest of a stream that broke off"),
    ] {
        let error = open(name, None).err().unwrap().to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
    let error = open("full", Some("@2")).err().unwrap().to_string();
    assert!(error.contains("no full stream of @2"), "{error}");
    for (name, words) in [("truncated-inc-I", "incomplete stream"), ("corrupt-full", "checksum mismatch")] {
        let error = open(name, None).err().unwrap().to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
}

#[needs("streams/streams.json")]
#[test]
fn paths_lead_to_files() {
    let mut sent = open("full", None).unwrap();
    let (_, attr) = sent.find(b"/t//big/").unwrap();
    assert!(attr.is_dir());
    for (path, words) in [(&b"/t/none"[..], "/t/none: no such file"), (b"/t/none/x", "no such file")] {
        let error = sent.find(path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// Any change of one byte in the records of a small stream is found by the first pass, or in the files.
#[needs("streams/streams.json")]
#[test]
fn a_damaged_stream_opens_with_an_error() {
    let bytes = decompress(&std::fs::read(shared_path("streams/xa.zs.zst")).unwrap());
    let runtime = Runtime::real(Some(1));
    for at in (0..bytes.len()).step_by(977) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x40;
        assert!(runtime.block_on(Sent::open(in_memory(changed), None)).is_err(), "byte {at}");
    }
}

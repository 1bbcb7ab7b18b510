//! `stat`: all attributes of files, and their blocks.

use cenote_control::files::stat::{Block, BlockKind, Described, Known, Xattr};
use cenote_control::files::{Attr, FileKind, Timestamp};
use cenote_control::text::{iso_utc, json_name, quoted};
use serde::Serialize;

use super::line::{FileJson, mode_text};
use crate::table::{Align, Table};

/// The files received so far, each with its blocks.
#[derive(Default)]
pub struct Received(Vec<(Described, Vec<Block>)>);

impl Received {
    /// Takes a part.
    pub fn take(&mut self, known: Known) {
        match known {
            Known::File(file) => self.0.push((*file, Vec::new())),
            Known::Blocks(more) => {
                if let Some((_, blocks)) = self.0.last_mut() {
                    blocks.extend(more);
                }
            }
        }
    }

    /// The text of the last file, once all its blocks are here; it is then forgotten.
    pub fn next_text(&mut self) -> Option<String> {
        let next = self.0.pop_if(|(file, blocks)| file.blocks.unwrap_or(0) <= blocks.len());
        next.map(|(file, blocks)| text(&file, &blocks))
    }

    /// All files as JSON.
    pub fn json(&self) -> impl Serialize {
        self.0.iter().map(|(file, blocks)| full(file, blocks)).collect::<Vec<_>>()
    }
}

#[derive(Serialize)]
struct Full<'a> {
    #[serde(flatten)]
    file: FileJson,
    dataset: &'a str,
    flags: &'a [String],
    projid: u64,
    parent: u64,
    created_txg: u64,
    block_size: u32,
    xattrs: Vec<XattrJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<&'a [Block]>,
}

#[derive(Serialize)]
struct XattrJson {
    name: String,
    size: usize,
}

fn full<'a>(described: &'a Described, blocks: &'a [Block]) -> Full<'a> {
    let file = &described.file;
    let attr = file.attr.unwrap_or_default();
    let xattrs = described.xattrs.iter();
    Full {
        file: FileJson::new(&file.path, file),
        dataset: &described.dataset,
        flags: &described.flags,
        projid: attr.project,
        parent: attr.parent.0,
        created_txg: attr.generation,
        block_size: attr.block_bytes,
        xattrs: xattrs
            .map(|xattr| XattrJson { name: json_name(&xattr.name), size: xattr.size_bytes })
            .collect(),
        blocks: described.blocks.map(|_| blocks),
    }
}

/// A name in a line of text; a non-UTF-8 name is escaped as in JSON.
fn in_line(name: &[u8]) -> String {
    let name = json_name(name);
    if name.starts_with("$'") { name } else { quoted(name.as_bytes()) }
}

fn text(described: &Described, blocks: &[Block]) -> String {
    let attr: &Attr = &described.file.attr.unwrap_or_default();
    let kind = match attr.kind() {
        FileKind::Regular => "regular file",
        FileKind::Directory => "folder",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::BlockDevice => "block device",
        FileKind::CharDevice => "character device",
        FileKind::Other(_) => "unknown",
    };
    let xattr = |xattr: &Xattr| ("xattr", format!("{} ({} bytes)", in_line(&xattr.name), xattr.size_bytes));
    let time = |t: Timestamp| format!("{} ({t})", iso_utc(t.seconds));
    let mut lines = vec![("path", quoted(&described.file.path)), ("type", kind.to_string())];
    if let Some(target) = &described.file.link {
        lines.push(("target", in_line(target)));
    }
    if matches!(attr.kind(), FileKind::BlockDevice | FileKind::CharDevice) {
        let (major, minor) = attr.device();
        lines.push(("device", format!("{major}, {minor}")));
    }
    lines.extend([
        ("size", format!("{} bytes in blocks of {}", attr.size, attr.block_bytes)),
        ("allocated", format!("{} bytes", attr.allocated_bytes())),
        ("mode", format!("{:04o} ({})", attr.permissions(), mode_text(attr))),
        ("owner", format!("{} group {}", attr.uid, attr.gid)),
        ("links", attr.links.to_string()),
        (
            "object",
            format!(
                "{} in folder {}, created in txg {}",
                described.file.object, attr.parent, attr.generation
            ),
        ),
        ("accessed", time(attr.atime)),
        ("modified", time(attr.mtime)),
        ("changed", time(attr.ctime)),
        ("born", time(attr.crtime)),
    ]);
    if !described.flags.is_empty() {
        lines.push(("flags", described.flags.join(", ")));
    }
    if attr.project != 0 {
        lines.push(("project", attr.project.to_string()));
    }
    lines.extend(described.xattrs.iter().map(xattr));
    let mut out: String = lines.iter().map(|(name, value)| format!("{name:>9}: {value}\n")).collect();
    if described.blocks.is_some() {
        out.push_str(&table(blocks).aligned());
    }
    out
}

fn table(blocks: &[Block]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("LEVEL", Right),
        ("OFFSET", Right),
        ("LSIZE", Right),
        ("PSIZE", Right),
        ("ASIZE", Right),
        ("BIRTH", Right),
        ("COMPRESSION", Left),
        ("CHECKSUM", Left),
        ("CLASS", Left),
        ("VDEV:OFFSET:ASIZE", Left),
    ]);
    for block in blocks {
        let dvas: Vec<String> = block
            .dvas
            .iter()
            .map(|dva| format!("{}:{:#x}:{:#x}", dva.vdev.0, dva.offset, dva.asize.0))
            .collect();
        let class = block.dvas.first().and_then(|dva| dva.class.as_deref()).unwrap_or("-").to_string();
        let place = if dvas.is_empty() { kind(block.kind).to_string() } else { dvas.join(" ") };
        table.row([
            block.level.to_string(),
            block.offset.map_or_else(|| "spill".to_string(), |offset| offset.to_string()),
            block.lsize.0.to_string(),
            block.psize.0.to_string(),
            block.asize.0.to_string(),
            block.birth_txg.0.to_string(),
            block.compression.clone(),
            block.checksum.clone(),
            class,
            place,
        ]);
    }
    table
}

fn kind(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Hole => "hole",
        BlockKind::Embedded => "embedded",
        BlockKind::Redacted => "redacted",
        BlockKind::Gang => "gang",
        BlockKind::Block => "block",
    }
}

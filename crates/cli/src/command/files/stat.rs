//! Command line and output of `cenote stat`: files and their blocks.

use std::sync::Arc;

use cenote_control::files::stat::{Block, BlockKind, Described, Known, Stat as Request, Xattr};
use cenote_control::files::{Attr, FileKind, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;

use super::Stat;
use super::line::{FileJson, mode_text};
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, iso_utc, json_name, quoted};
use crate::session::{Session, print, print_json};

/// A file with all its attributes.
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

/// The files received so far, each with its blocks.
struct Files {
    json: bool,
    all: Vec<(Described, Vec<Block>)>,
}

impl Stat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Request { targets: self.targets, follow: self.follow, blocks: self.blocks };
        let files = Arc::new(Mutex::new(Files { json: session.json(), all: Vec::new() }));
        let answered = session.control().run_in_parts(request, &files, Files::take).await?;
        if session.json() {
            print_json(
                &files.lock().all.iter().map(|(file, blocks)| full(file, blocks)).collect::<Vec<_>>(),
            )?;
        }
        Ok(answered.outcome)
    }
}

impl Files {
    fn take(&mut self, known: Known) -> Result<(), CliError> {
        match known {
            Known::File(file) => self.all.push((*file, Vec::new())),
            Known::Blocks(more) => {
                if let Some((_, blocks)) = self.all.last_mut() {
                    blocks.extend(more);
                }
            }
        }
        // With JSON, all are printed at the end.
        match self.all.pop_if(|(file, blocks)| !self.json && file.blocks.unwrap_or(0) <= blocks.len()) {
            Some((file, blocks)) => print(text(&file, &blocks)),
            None => Ok(()),
        }
    }
}

fn full<'a>(described: &'a Described, blocks: &'a [Block]) -> Full<'a> {
    let file = &described.file;
    let attr = file.attr.unwrap_or_default();
    let xattrs = described.xattrs.iter();
    Full {
        file: FileJson::new(&file.path, file.object, &attr, file.link.as_deref()),
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

//! `cenote stat`: everything known about a file, including where its blocks lie.

use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::znode::{ZFS_PROJID, znode_flag_names};
use cenote_fs::{FileKind, LastLink};
use cenote_object::object::{SPILL_BLOCK, Visited};
use cenote_pool::VdevClass;
use cenote_pool::zbookmark::in_object;
use serde::Serialize;

use super::Stat;
use super::line::{FileJson, mode_text};
use super::place::{PoolFile, PoolFiles, complain};
use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, iso_utc, json_name, quoted};
use crate::session::{Session, print, print_json};

/// A file with all its attributes.
#[derive(Serialize)]
struct Full {
    #[serde(flatten)]
    file: FileJson,
    dataset: String,
    flags: Vec<&'static str>,
    projid: u64,
    parent: u64,
    created_txg: u64,
    block_size: u32,
    xattrs: Vec<XattrJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<Vec<Block>>,
}

#[derive(Serialize)]
struct XattrJson {
    name: String,
    size: usize,
}

/// A block of a file.
#[derive(Serialize)]
struct Block {
    level: u8,
    /// The offset of the first byte it covers; the spill block has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    kind: &'static str,
    dvas: Vec<DvaJson>,
    lsize: u64,
    psize: u64,
    asize: u64,
    compression: String,
    checksum: String,
    birth_txg: u64,
    encrypted: bool,
    dedup: bool,
}

#[derive(Serialize)]
struct DvaJson {
    vdev: u64,
    offset: u64,
    asize: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
}

impl Stat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let last = if self.follow { LastLink::Follow } else { LastLink::Keep };
        let mut places = PoolFiles::new(session);
        let mut outcome = Outcome::Done;
        let mut json = Vec::new();
        for target in &self.targets {
            let shown = async {
                let place = places.find(target, last).await?;
                self.show(&place, session, &mut json).await
            };
            match shown.await {
                Ok(how) => outcome = outcome.and(how),
                Err(error) => outcome = outcome.and(complain(target, error)?),
            }
        }
        if session.json() {
            print_json(&json)?;
        }
        Ok(outcome)
    }

    async fn show(
        &self,
        place: &PoolFile,
        session: &Session,
        json: &mut Vec<Full>,
    ) -> Result<Outcome, CliError> {
        let (mut blocks, mut outcome) = (None, Outcome::Done);
        if self.blocks {
            let (found, how) = read_blocks(place).await?;
            (blocks, outcome) = (Some(found), how);
        }
        let mut full = describe(place).await?;
        full.blocks = blocks;
        if session.json() {
            json.push(full);
        } else {
            print(text(place, &full))?;
        }
        Ok(outcome)
    }
}

async fn describe(place: &PoolFile) -> Result<Full, CliError> {
    let (fs, attr) = (&place.filesystem, &place.attr);
    let target = match attr.kind() {
        FileKind::Symlink => Some(fs.read_link(place.object).await?),
        _ => None,
    };
    let xattrs = fs.xattrs(place.object).await?;
    Ok(Full {
        file: FileJson::new(&place.shown, place.object, attr, target.as_deref()),
        dataset: place.dataset.name().to_string(),
        flags: flags(attr.flags),
        projid: attr.project,
        parent: attr.parent.0,
        created_txg: attr.generation,
        block_size: attr.block_bytes,
        xattrs: xattrs
            .iter()
            .map(|xattr| XattrJson { name: json_name(&xattr.name), size: xattr.value.len() })
            .collect(),
        blocks: None,
    })
}

/// A name from the JSON output for a line of text; it is quoted already if it was not text.
fn in_line(name: &str) -> String {
    if name.starts_with("$'") { name.to_owned() } else { quoted(name.as_bytes()) }
}

/// Names of the flags that are set, except those that only describe how attributes are stored.
fn flags(bits: u64) -> Vec<&'static str> {
    const FILE_SYSTEMS_OWN: u64 = 0xffff_ffff | ZFS_PROJID;
    znode_flag_names(bits & !FILE_SYSTEMS_OWN).collect()
}

fn text(place: &PoolFile, full: &Full) -> String {
    let attr = &place.attr;
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
    let time = |t: cenote_fs::Timestamp| format!("{} ({t})", iso_utc(t.seconds));
    let mut lines = vec![("path", quoted(&place.shown)), ("type", kind.to_string())];
    if let Some(target) = &full.file.target {
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
        ("object", format!("{} in folder {}, created in txg {}", place.object, attr.parent, attr.generation)),
        ("accessed", time(attr.atime)),
        ("modified", time(attr.mtime)),
        ("changed", time(attr.ctime)),
        ("born", time(attr.crtime)),
    ]);
    if !full.flags.is_empty() {
        lines.push(("flags", full.flags.join(", ")));
    }
    if attr.project != 0 {
        lines.push(("project", attr.project.to_string()));
    }
    lines.extend(full.xattrs.iter().map(|x| ("xattr", format!("{} ({} bytes)", in_line(&x.name), x.size))));
    let mut out: String = lines.iter().map(|(name, value)| format!("{name:>9}: {value}\n")).collect();
    if let Some(blocks) = &full.blocks {
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
        let dvas: Vec<String> =
            block.dvas.iter().map(|dva| format!("{}:{:#x}:{:#x}", dva.vdev, dva.offset, dva.asize)).collect();
        let class = block.dvas.first().and_then(|dva| dva.class).unwrap_or("-").to_string();
        let place = if dvas.is_empty() { block.kind.to_string() } else { dvas.join(" ") };
        table.row([
            block.level.to_string(),
            block.offset.map_or_else(|| "spill".to_string(), |offset| offset.to_string()),
            block.lsize.to_string(),
            block.psize.to_string(),
            block.asize.to_string(),
            block.birth_txg.to_string(),
            block.compression.clone(),
            block.checksum.clone(),
            class,
            place,
        ]);
    }
    table
}

/// All blocks of a file, parents first, sorted by offset.
async fn read_blocks(place: &PoolFile) -> Result<(Vec<Block>, Outcome), CliError> {
    let file = place.filesystem.open_file(place.object).await?;
    let Some(object) = file.plain_object() else {
        return Err(CliError::Usage("a replayed file has no blocks of its own; omit --replay".into()));
    };
    let shift = object.dnode().fanout_shift();
    let mut walk = object.walk();
    let (mut blocks, mut outcome) = (Vec::new(), Outcome::Done);
    while let Some(batch) = walk.next_batch().await {
        for visited in batch {
            match visited {
                Visited::Block { level, block, bp } => {
                    let below = 1u64.checked_shl(shift * u32::from(level)).unwrap_or(0);
                    let offset = block.0.saturating_mul(below).saturating_mul(object.block_bytes());
                    let offset = (block != SPILL_BLOCK).then_some(offset);
                    blocks.push(describe_block(place, level, offset, &bp));
                }
                Visited::Unreadable { level, block, error } => {
                    say!("{}: {}: {error}", quoted(&place.shown), in_object(level, block));
                    outcome = Outcome::Damaged;
                }
            }
        }
    }
    blocks.sort_by_key(|block| (block.offset.is_none(), block.offset, std::cmp::Reverse(block.level)));
    Ok((blocks, outcome))
}

fn describe_block(place: &PoolFile, level: u8, offset: Option<u64>, bp: &Blkptr) -> Block {
    let pool = place.filesystem.objset().pool();
    let name = |found: Option<&str>, id: u8| found.map_or_else(|| format!("unknown {id}"), str::to_string);
    let checksum = Checksum::try_from(bp.checksum_id()).ok();
    let compression = Compression::try_from(bp.compression_id()).ok();
    let kind = match bp.kind() {
        BlkptrKind::Hole => "hole",
        BlkptrKind::Embedded => "embedded",
        BlkptrKind::Redacted => "redacted",
        BlkptrKind::Normal if bp.is_gang() => "gang",
        BlkptrKind::Normal => "block",
    };
    Block {
        level,
        offset,
        kind,
        dvas: bp
            .dvas()
            .map(|dva| DvaJson {
                vdev: dva.vdev.0,
                offset: dva.offset_bytes,
                asize: dva.asize.0,
                class: pool.class_of(dva.vdev).map(VdevClass::name),
            })
            .collect(),
        lsize: bp.lsize().0,
        psize: bp.psize().0,
        asize: bp.asize().0,
        compression: name(compression.map(|c| c.name()), bp.compression_id()),
        checksum: if bp.is_embedded() {
            "-".into()
        } else {
            name(checksum.map(|c| c.name()), bp.checksum_id())
        },
        birth_txg: bp.logical_birth().0,
        encrypted: bp.is_encrypted(),
        dedup: bp.is_dedup(),
    }
}

//! `stat`: attributes of files, and the locations of their blocks.

use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::text_or_bytes;
use cenote_format::units::{Asize, Lsize, Psize, Txg, VdevId};
use cenote_format::znode::{ZFS_PROJID, znode_flag_names};
use cenote_fs::{FileKind, LastLink};
use cenote_object::object::{SPILL_BLOCK, Visited};
use cenote_pool::VdevClass;
use cenote_pool::zbookmark::in_object;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Target;
use super::listed::{FILES_AT_ONCE, File};
use super::place::{Place, on_each};
use crate::error::{ControlError, Outcome};
use crate::parts::Part;
use crate::session::Session;
use crate::text::quoted;
use crate::verb::{Answered, InParts, Looks, Needs, Verb};

/// Show all attributes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stat {
    /// Files.
    pub targets: Vec<Target>,
    /// Follow a final symbolic link.
    #[serde(default)]
    pub follow: bool,
    /// Include each file's blocks.
    #[serde(default)]
    pub blocks: bool,
}

/// A part of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// Next file.
    File(Box<Described>),
    /// Blocks of the last file, parents first, by offset.
    Blocks(Vec<Block>),
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Described {
    /// `pool/dataset@snapshot:/path`, and attributes.
    pub file: File,
    /// Dataset or snapshot.
    pub dataset: String,
    /// Names of set flags.
    pub flags: Vec<String>,
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
    /// Number of blocks that follow, if requested.
    pub blocks: Option<usize>,
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Xattr {
    /// Name.
    #[serde(with = "text_or_bytes")]
    #[schemars(with = "text_or_bytes::TextOrBytes")]
    pub name: Vec<u8>,
    /// Length of its value.
    pub size_bytes: usize,
}

/// A block of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// Its level; 0 is data.
    pub level: u8,
    /// Offset of the first byte covered; the spill block has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Kind.
    pub kind: BlockKind,
    /// Copies.
    pub dvas: Vec<Copy>,
    /// Logical size.
    pub lsize: Lsize,
    /// Compressed size.
    pub psize: Psize,
    /// Allocated size of all copies.
    pub asize: Asize,
    /// Compression algorithm.
    pub compression: String,
    /// Checksum algorithm.
    pub checksum: String,
    /// Birth txg.
    pub birth_txg: Txg,
    /// Encrypted.
    pub encrypted: bool,
    /// In the dedup table.
    pub dedup: bool,
}

/// A kind of block pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// Zeros.
    Hole,
    /// Data in the pointer itself.
    Embedded,
    /// Left out by `zfs redact`.
    Redacted,
    /// Block in pieces.
    Gang,
    /// Block.
    Block,
}

/// Location of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Copy {
    /// Top-level vdev.
    pub vdev: VdevId,
    /// The offset there, in bytes.
    pub offset: u64,
    /// Allocated size.
    pub asize: Asize,
    /// The vdev's class, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

impl InParts for Stat {
    type Part = Known;
}

impl Verb for Stat {
    const NAME: &'static str = "stat";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = ();

    /// # Errors
    /// The caller takes no more. Unreadable files are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let last = if self.follow { LastLink::Follow } else { LastLink::Keep };
        let show = async |_, place: Place| {
            let (mut blocks, mut outcome) = (None, Outcome::Done);
            if self.blocks {
                let (found, how) = read_blocks(session, &place).await?;
                (blocks, outcome) = (Some(found), how);
            }
            let described = describe(&place, blocks.as_ref().map(Vec::len)).await?;
            let give = |known| session.caller().give(Part::of(known));
            give(Known::File(Box::new(described)))?;
            let blocks = blocks.unwrap_or_default();
            blocks.chunks(FILES_AT_ONCE).try_for_each(|blocks| give(Known::Blocks(blocks.to_vec())))?;
            Ok(outcome)
        };
        Ok(on_each(session, &self.targets, last, show).await?.into())
    }
}

async fn describe(place: &Place, blocks: Option<usize>) -> Result<Described, ControlError> {
    let fs = &place.filesystem;
    let link = match place.attr.kind() {
        FileKind::Symlink => Some(fs.read_link(place.object).await?),
        _ => None,
    };
    let xattrs = fs.xattrs(place.object).await?.into_iter();
    let xattr = |xattr: cenote_fs::Xattr| Xattr { name: xattr.name.to_vec(), size_bytes: xattr.value.len() };
    Ok(Described {
        file: File { path: place.shown.clone(), object: place.object, attr: Some(place.attr), link },
        dataset: place.dataset.name().to_string(),
        flags: flags(place.attr.flags).map(str::to_owned).collect(),
        xattrs: xattrs.map(xattr).collect(),
        blocks,
    })
}

/// Without flags that only describe how attributes are stored.
fn flags(bits: u64) -> impl Iterator<Item = &'static str> {
    const FILE_SYSTEMS_OWN: u64 = 0xffff_ffff | ZFS_PROJID;
    znode_flag_names(bits & !FILE_SYSTEMS_OWN)
}

/// Parents first, by offset.
async fn read_blocks(session: &Session, place: &Place) -> Result<(Vec<Block>, Outcome), ControlError> {
    let file = place.filesystem.open_file(place.object).await?;
    let Some(object) = file.plain_object() else {
        return Err(ControlError::Usage("a replayed file has no blocks of its own; omit --replay".into()));
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
                    let at = in_object(level, block);
                    session.caller().note(format!("{}: {at}: {error}", quoted(&place.shown)));
                    outcome = Outcome::Damaged;
                }
            }
        }
    }
    blocks.sort_by_key(|block| (block.offset.is_none(), block.offset, std::cmp::Reverse(block.level)));
    Ok((blocks, outcome))
}

fn describe_block(place: &Place, level: u8, offset: Option<u64>, bp: &Blkptr) -> Block {
    let pool = place.filesystem.objset().pool();
    let name = |found: Option<&str>, id: u8| found.map_or_else(|| format!("unknown {id}"), str::to_string);
    let checksum = Checksum::try_from(bp.checksum_id()).ok();
    let compression = Compression::try_from(bp.compression_id()).ok();
    let copy = |dva: cenote_format::blkptr::Dva| Copy {
        vdev: dva.vdev,
        offset: dva.offset_bytes,
        asize: dva.asize,
        class: pool.tree().vdevs().class_of(dva.vdev).map(|class| VdevClass::name(class).to_owned()),
    };
    Block {
        level,
        offset,
        kind: match bp.kind() {
            BlkptrKind::Hole => BlockKind::Hole,
            BlkptrKind::Embedded => BlockKind::Embedded,
            BlkptrKind::Redacted => BlockKind::Redacted,
            BlkptrKind::Normal if bp.is_gang() => BlockKind::Gang,
            BlkptrKind::Normal => BlockKind::Block,
        },
        dvas: bp.dvas().map(copy).collect(),
        lsize: bp.lsize(),
        psize: bp.psize(),
        asize: bp.asize(),
        compression: name(compression.map(|c| c.name()), bp.compression_id()),
        checksum: match bp.is_embedded() {
            true => "-".into(),
            false => name(checksum.map(|c| c.name()), bp.checksum_id()),
        },
        birth_txg: bp.logical_birth(),
        encrypted: bp.is_encrypted(),
        dedup: bp.is_dedup(),
    }
}

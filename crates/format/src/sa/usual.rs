//! OpenZFS's usual layouts, for file systems that lost their layout table.
//!
//! Idea: a new file gets its attributes in a fixed order; later ones are appended. Attributes that exceed the
//! bonus move to the spill block, from the end of the list. So every layout is the beginning or end of one of
//! few lists:
//!
//! ```text
//!   mode size gen uid gid parent flags atime mtime ctime crtime links     always in the bonus
//!   projid? rdev? dacl_count dacl_aces symlink?                           in the bonus, while there is room,
//!   xattr? dxattr?                     in any order                       then in the spill block
//! ```
//!
//! In a bonus, length, mode (link, device) and flags (project) determine the attributes; in a spill block,
//! the shape of the values.
//!
//! Source: OpenZFS `zfs_mknode`, `zfs_sa_upgrade`, `sa_add_projid`, `sa_build_layouts`.

use std::collections::HashSet;

use super::registry::{SaLayout, SaRegistry};
use super::zpl_attr::ZplAttr::{self, *};
use super::{LENGTHS_AT, SaReader};
use crate::bytes::Endian;
use crate::error::Result;
use crate::znode::{FileKind, ZFS_PROJID};

const BASE: [ZplAttr; 12] = [Mode, Size, Gen, Uid, Gid, Parent, Flags, Atime, Mtime, Ctime, Crtime, Links];
/// Appendable attributes. Scan stamps are left out: Linux makes none, and any 32 bytes look like one.
const LATER: [&[ZplAttr]; 5] = [&[], &[Xattr], &[Dxattr], &[Xattr, Dxattr], &[Dxattr, Xattr]];

#[derive(Debug, Clone)]
pub(super) struct Usual {
    bonus: Vec<SaLayout>,
    spill: Vec<SaLayout>,
}

impl Usual {
    /// Usual layouts of a file system.
    ///
    /// # Errors
    /// A ZPL attribute is not registered.
    pub fn of(registry: &SaRegistry) -> Result<Usual> {
        let (mut bonus, mut spill) = (Vec::new(), Vec::new());
        for list in lists() {
            // Longest first: a shorter layout that also fits explains less.
            bonus.extend((BASE.len()..=list.len()).rev().map(|end| list[..end].to_vec()));
            spill.extend((BASE.len()..list.len()).rev().map(|start| list[start..].to_vec()));
        }
        let layouts = |mut lists: Vec<Vec<ZplAttr>>| {
            let mut known = HashSet::new();
            lists.retain(|list| known.insert(list.clone()));
            lists.iter().map(|list| registry.layout_of(list)).collect::<Result<_>>()
        };
        Ok(Usual { bonus: layouts(bonus)?, spill: layouts(spill)? })
    }

    /// Layout that fits a bonus or spill block.
    pub fn fitting(&self, data: &[u8], endian: Endian, header_bytes: usize) -> Option<&SaLayout> {
        let find = |layouts, test| largest(layouts, data, endian, header_bytes, test);
        // With a spill block, the bonus continues after its values.
        find(&self.bonus, |reader| fits_bonus(reader) && ends(reader))
            .or_else(|| find(&self.bonus, fits_bonus))
            .or_else(|| find(&self.spill, is_plausible))
    }
}

fn largest<'l>(
    layouts: &'l [SaLayout],
    data: &[u8],
    endian: Endian,
    header_bytes: usize,
    test: fn(&SaReader<'_>) -> bool,
) -> Option<&'l SaLayout> {
    // The header has a length per variable value, then zeros.
    let lengths = data.get(LENGTHS_AT..header_bytes).unwrap_or_default().as_chunks::<2>().0;
    let variable = lengths.iter().take_while(|length| **length != [0, 0]).count();
    let fits = |layout: &&SaLayout| {
        layout.variable_count() == variable
            && SaReader::with_layout(layout, data, endian, header_bytes).is_ok_and(|reader| test(&reader))
    };
    layouts.iter().filter(fits).max_by_key(|layout| layout.slots().len())
}

fn lists() -> impl Iterator<Item = Vec<ZplAttr>> {
    let optional = |attr: ZplAttr| [Vec::new(), vec![attr]];
    optional(Projid).into_iter().flat_map(move |project| {
        optional(Rdev).into_iter().flat_map(move |device| {
            let project = project.clone();
            optional(Symlink).into_iter().flat_map(move |link| {
                let (project, device) = (project.clone(), device.clone());
                LATER.into_iter().map(move |later| {
                    [&BASE[..], &project, &device, &[DaclCount, DaclAces], &link, later].concat()
                })
            })
        })
    })
}

fn fits_bonus(reader: &SaReader<'_>) -> bool {
    let (Some(mode), Some(flags)) = (reader.u64(Mode), reader.u64(Flags)) else { return false };
    let kind = FileKind::from_mode(mode);
    let has = |attr| reader.get(attr).is_some();
    let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
    let has_project = flags & ZFS_PROJID != 0;
    // Attributes missing here may be in the spill block, but only those after all present ones. Every present
    // attribute must have a reason.
    (!has(Rdev) || is_device)
        && (!has(Projid) || has_project)
        && (!has(Symlink) || kind == FileKind::Symlink)
        && (!has(DaclCount) || (has(Rdev) == is_device && has(Projid) == has_project))
        && (0o010_000..0o200_000).contains(&mode)
        && is_plausible(reader)
}

fn ends(reader: &SaReader<'_>) -> bool {
    reader.end().is_ok_and(|end| end.next_multiple_of(8) == reader.len().next_multiple_of(8))
}

fn is_plausible(reader: &SaReader<'_>) -> bool {
    let is = |attr, test: fn(&[u8]) -> bool| reader.get(attr).is_none_or(test);
    let has_aces = |bytes: &[u8]| {
        let entries = count_aces(bytes, reader.endian());
        entries.is_some_and(|entries| reader.u64(DaclCount).is_none_or(|count| count == entries))
    };
    // A packed nvlist begins with its encoding (XDR), byte order, version and flags.
    is(Dxattr, |value| matches!(value, [1, 0 | 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, ..]))
        && is(Symlink, |value| !value.contains(&0))
        && reader.get(DaclAces).is_none_or(has_aces)
        && is(Xattr, |value| value.iter().any(|&byte| byte != 0))
        && reader.u64(Xattr).is_none_or(|object| object < 1 << 48)
}

/// Number of ACL entries, if the bytes are an ACL.
fn count_aces(mut bytes: &[u8], endian: Endian) -> Option<u64> {
    /// Owner, owning group, everyone.
    const SPECIAL: u16 = 0x7000;
    const FLAGS: u16 = SPECIAL | 0xff;
    let mut count = 0;
    while let [a, b, c, d, ..] = *bytes {
        let (kind, flags) = (endian.u16([a, b]), endian.u16([c, d]));
        let len = match kind {
            // With object types.
            5..=8 => 48,
            0..=19 if flags & SPECIAL != 0 => 8,
            0..=19 => 16,
            _ => return None,
        };
        if flags & !FLAGS != 0 {
            return None;
        }
        bytes = bytes.get(len..)?;
        count += 1;
    }
    bytes.is_empty().then_some(count)
}

//! Operations by `ioctl`: flags and projects (`lsattr`, `chattr`, `zfs project`), and `zfs rewrite`.
//!
//! Linux 5.13 and later check the caller's right to change them. Older kernels pass on requests of any
//! process with the file open; the same rules are then applied here, with uid 0 standing for all
//! capabilities.
//!
//! Source: Linux `include/uapi/linux/fs.h`; OpenZFS `zpl_file.c`.

use cenote_engine::Need;
use cenote_format::units::ObjectId;
use cenote_fs::attr::pflags;
use cenote_fs::write::SetAttr;
use cenote_fs::{Attr, FileKind, Refusal};
use cenote_fuse::{Caller, Errno, Node, Result, kernel};

use super::Files;
use super::attr::FIXED;
use super::errno::errno;
use super::rewrite::ZFS_IOC_REWRITE;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

const FS_IMMUTABLE_FL: u32 = 0x10;
const FS_APPEND_FL: u32 = 0x20;
const FS_NODUMP_FL: u32 = 0x40;
const FS_PROJINHERIT_FL: u32 = 0x2000_0000;
const SETTABLE: u32 = FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL | FS_PROJINHERIT_FL;

/// `FS_XFLAG_*`, in the order of the flags above.
const XFLAGS: [(u32, u32); 4] =
    [(0x8, FS_IMMUTABLE_FL), (0x10, FS_APPEND_FL), (0x80, FS_NODUMP_FL), (0x200, FS_PROJINHERIT_FL)];
/// `struct fsxattr`: xflags, extsize, nextents, projid, cowextsize (4 each), padding (8).
const FSXATTR_BYTES: usize = 28;

const PFLAGS: [(u32, u64); 4] = [
    (FS_IMMUTABLE_FL, pflags::IMMUTABLE),
    (FS_APPEND_FL, pflags::APPENDONLY),
    (FS_NODUMP_FL, pflags::NODUMP),
    (FS_PROJINHERIT_FL, pflags::PROJINHERIT),
];

impl Files {
    pub(super) async fn do_ioctl(
        &self,
        caller: Caller,
        node: Node,
        command: u32,
        input: &[u8],
    ) -> Result<Vec<u8>> {
        let (_, tree, object) = self.file(node).await?;
        let attr = async || tree.view().attr(object).await.map_err(|e| errno(&e));
        match command {
            FS_IOC_GETFLAGS => Ok(attr().await?.linux_flags().to_ne_bytes().to_vec()),
            FS_IOC_GETVERSION => Ok((attr().await?.generation as u32).to_ne_bytes().to_vec()),
            FS_IOC_FSGETXATTR => Ok(fsxattr(&attr().await?)),
            FS_IOC_SETFLAGS => {
                self.set_flags(caller, node, word(input, 0)?, None).await?;
                Ok(Vec::new())
            }
            FS_IOC_FSSETXATTR => {
                let xflags = word(input, 0)?;
                let known: u32 = XFLAGS.iter().map(|(xflag, _)| xflag).sum();
                if xflags & !known != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
                let flags =
                    XFLAGS.iter().filter(|(xflag, _)| xflags & xflag != 0).map(|(_, flag)| flag).sum();
                self.set_flags(caller, node, flags, Some(word(input, 12)?)).await?;
                Ok(Vec::new())
            }
            ZFS_IOC_REWRITE => {
                let args = [0, 8, 16, 24].map(|at| long(input, at));
                let [offset, len, flags, zero] = args;
                if zero? != 0 {
                    return Err(Errno::INVAL);
                }
                self.rewrite(caller, node, (offset?, len?), flags?).await?;
                Ok(Vec::new())
            }
            _ => Err(Errno::NOTTY),
        }
    }

    async fn set_flags(&self, caller: Caller, node: Node, flags: u32, project: Option<u32>) -> Result<()> {
        let object = self.own(node)?;
        if flags & !SETTABLE != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let of = move |is_set: bool| -> u64 {
            PFLAGS.iter().filter(|(flag, _)| (flags & flag != 0) == is_set).map(|(_, pflag)| pflag).sum()
        };
        let becomes_fixed = self.becomes_fixed(object, of(true)).await?;
        if becomes_fixed {
            // Changes through mappings so far belong to the file.
            self.write_back(node, 0..u64::MAX).await;
        }
        self.change(Need::Write(8 << 10), Some(object), move |fs, change| {
            Box::pin(async move {
                let attr = fs.view().attr(object).await?;
                if !kernel::checks_flags() && !may_set_flags(caller.uid, &attr, flags) {
                    return Err(Refusal::NotPermitted.of(object));
                }
                let project = project.filter(|&project| u64::from(project) != attr.project);
                let (set_flags, clear_flags) = (of(true), of(false));
                let set = SetAttr { set_flags, clear_flags, project, ..SetAttr::default() };
                fs.set_attr(change, object, &set).await
            })
        })
        .await?;
        if becomes_fixed {
            self.forget_names(node, object).await;
        }
        Ok(())
    }

    async fn becomes_fixed(&self, object: ObjectId, set_flags: u64) -> Result<bool> {
        let attr = self.head().view().attr(object).await.map_err(|e| errno(&e))?;
        Ok(attr.kind() == FileKind::Regular && set_flags & !attr.flags & FIXED != 0)
    }
}

/// Whether a user may set these flags and the project (`fileattr_set_prepare`).
fn may_set_flags(uid: u32, attr: &Attr, flags: u32) -> bool {
    let changes = attr.linux_flags() ^ flags;
    uid == 0 || (u64::from(uid) == attr.uid && changes & (FS_IMMUTABLE_FL | FS_APPEND_FL) == 0)
}

fn fsxattr(attr: &Attr) -> Vec<u8> {
    let flags = attr.linux_flags();
    let xflags: u32 = XFLAGS.iter().filter(|(_, flag)| flags & flag != 0).map(|(xflag, _)| xflag).sum();
    let has_project = matches!(attr.kind(), FileKind::Regular | FileKind::Directory);
    let project = if has_project { attr.project as u32 } else { 0 };
    let mut bytes = vec![0; FSXATTR_BYTES];
    bytes[..4].copy_from_slice(&xflags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&project.to_ne_bytes());
    bytes
}

fn word(input: &[u8], at: usize) -> Result<u32> {
    let bytes = input.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>()).ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(*bytes))
}

fn long(input: &[u8], at: usize) -> Result<u64> {
    let bytes = input.get(at..at + 8).and_then(|bytes| bytes.first_chunk::<8>()).ok_or(Errno::INVAL)?;
    Ok(u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_owners_and_those_that_fix_a_file_are_roots() {
        let attr = Attr { uid: 1000, flags: pflags::NODUMP, ..Attr::default() };
        let (same, none) = (FS_NODUMP_FL, 0);
        for (uid, flags, may) in [
            (0, FS_IMMUTABLE_FL | FS_APPEND_FL, true),
            (1000, same, true),
            (1000, none, true),
            (1000, same | FS_PROJINHERIT_FL, true),
            (1000, same | FS_IMMUTABLE_FL, false),
            (1000, FS_APPEND_FL, false),
            (1001, same, false),
            (1001, none, false),
        ] {
            assert_eq!(may_set_flags(uid, &attr, flags), may, "{uid} {flags:x}");
        }
        // Nor may the owner clear such a flag.
        let fixed = Attr { flags: pflags::IMMUTABLE, ..attr };
        assert!(!may_set_flags(1000, &fixed, none) && may_set_flags(0, &fixed, none));
    }
}

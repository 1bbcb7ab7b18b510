//! Boot settings in a label, shared by boot loaders and `zpool bootenv` tools.
//!
//! Layout of the 8 KiB: form (8, big-endian: 0 text, 1 packed nvlist), 8144 bytes of content, checksum (40).
//!
//! Source: OpenZFS `vdev_impl.h` (`vdev_boot_envblock_t`, `vbe_vers_t`).

use super::{ECK_BYTES, VDEV_PAD_SIZE};
use crate::bytes::{Endian, Reader};
use crate::error::Result;
use crate::nvlist::Nvlist;

const CONTENT_BYTES: usize = 8144;

const _: () = assert!(8 + CONTENT_BYTES + ECK_BYTES == VDEV_PAD_SIZE as usize);

/// Content of the boot settings.
#[derive(Debug, Clone, PartialEq)]
pub enum BootEnv {
    /// `VB_RAW`: text up to the first NUL, GRUB's environment. Empty in most labels.
    Raw(Vec<u8>),
    /// `VB_NVLIST`.
    Nvlist(Nvlist),
    /// Other forms, such as FreeBSD's old `bootonce` text.
    Other(u64),
}

impl BootEnv {
    /// Decodes the 8 KiB at `BOOT_ENV_OFFSET`. The caller has verified its checksum.
    ///
    /// # Errors
    /// Truncated bytes; a malformed nvlist.
    pub fn decode(block: &[u8]) -> Result<BootEnv> {
        let mut r = Reader::new("boot settings", block, Endian::Big);
        let form = r.u64()?;
        let content = r.bytes(CONTENT_BYTES)?;
        Ok(match form {
            0 => BootEnv::Raw(content.split(|b| *b == 0).next().unwrap_or_default().to_vec()),
            1 => BootEnv::Nvlist(Nvlist::decode(content)?),
            other => BootEnv::Other(other),
        })
    }
}

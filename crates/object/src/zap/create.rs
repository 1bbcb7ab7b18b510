//! Making ZAPs.

use cenote_boxed::boxed;
use cenote_format::FormatError;
use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::zap::{ZapHasher, swap_block};

use crate::error::Result;
use crate::live::{Edit, NewObject};
use crate::zap::{fat, micro};

/// log2 of block sizes, up to `SPA_OLD_MAXBLOCKSHIFT`.
const FAT_BLOCK_SHIFTS: std::ops::RangeInclusive<u32> = 9..=17;

/// A new ZAP: micro while it fits, unless it has flags.
#[derive(Debug, Clone)]
pub struct NewZap {
    object: NewObject,
    normflags: u64,
    flags: u64,
    salt: Option<u64>,
}

impl NewZap {
    /// A ZAP without folding.
    pub fn of(object_type: ObjectType) -> NewZap {
        NewZap::in_object(NewObject::of(object_type))
    }

    /// In an object with a bonus or a large dnode.
    pub fn in_object(object: NewObject) -> NewZap {
        NewZap { object, normflags: 0, flags: 0, salt: None }
    }

    /// Folds names by these `fold::U8_*` before hashing.
    pub fn normalized(self, normflags: u64) -> NewZap {
        NewZap { normflags, ..self }
    }

    /// Fat from the start, with `ZAP_FLAG_*` and blocks of `1 << block_shift` bytes.
    pub fn with_flags(self, flags: u64, block_shift: u32) -> NewZap {
        let shift = block_shift.clamp(*FAT_BLOCK_SHIFTS.start(), *FAT_BLOCK_SHIFTS.end());
        NewZap { object: self.object.block_bytes(1 << shift), flags, ..self }
    }

    /// Sets the salt, otherwise random.
    pub fn salt(self, salt: u64) -> NewZap {
        NewZap { salt: Some(salt), ..self }
    }

    /// Makes it under a free number.
    ///
    /// # Errors
    /// Unreadable dnodes.
    #[boxed]
    pub async fn create(&self, edit: &Edit) -> Result<ObjectId> {
        let object = edit.create(&self.object).await?;
        self.fill(edit, object).await?;
        Ok(object)
    }

    /// Makes it under this number.
    ///
    /// # Errors
    /// The number is taken.
    #[boxed]
    pub async fn create_at(&self, edit: &Edit, object: ObjectId) -> Result<()> {
        edit.create_at(object, &self.object).await?;
        self.fill(edit, object).await
    }

    /// Turns an existing object into a ZAP.
    ///
    /// # Errors
    /// No such object.
    #[boxed]
    pub async fn fill(&self, edit: &Edit, object: ObjectId) -> Result<()> {
        // 0 would give equal hashes to all names that begin with zeros.
        let salt = self.salt.unwrap_or_else(|| edit.view().pool().runtime().random_u64() | 1);
        let block_bytes = self.object.block_bytes;
        edit.in_place(object, swap_block, |blocks| {
            if self.flags == 0 {
                blocks.put(BlockId(0), micro::empty(block_bytes as usize, salt, self.normflags));
                return Ok(());
            }
            let shift = block_bytes.checked_ilog2().filter(|_| block_bytes.is_power_of_two());
            let why = FormatError::Corrupt { what: "ZAP", why: "has blocks of no power of two" };
            let hasher = ZapHasher { salt, flags: self.flags };
            fat::create(blocks, shift.ok_or(why)?, hasher, self.normflags)
        })
        .await
    }
}

//! Copying a table of numbers.
//!
//! Idea: a copy with the same names and one number for all of them has the same blocks, except for the
//! values: the hashes are equal, too, since the salt is copied. That costs some nanoseconds an entry, not
//! microseconds.

use bytes::BytesMut;
use cenote_format::bytes::Endian;
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::zap::{ZapBlock0, set_numbers};

use crate::error::Result;
use crate::live::{Edit, NewObject};
use crate::object::Object;
use crate::zap::Zap;

/// Blocks read at once.
const WINDOW: u64 = 64;

/// Makes `new` a copy of a table of `count` entries from names to single numbers, with `number` under each
/// name. `None`: the table is damaged, has another number of entries, or is in the other byte order.
///
/// # Errors
/// The table could not be read now.
pub(crate) async fn copy_with(
    edit: &Edit,
    from: ObjectId,
    new: NewObject,
    number: u64,
    count: usize,
) -> Result<Option<ObjectId>> {
    let from = edit.view().object(from).await?;
    let copy = edit.create(&new.block_bytes(from.dnode().data_block_bytes)).await?;
    match copy_blocks(edit, &from, copy, number).await {
        Ok(Some(copied)) if copied == count => return Ok(Some(copy)),
        Err(error) if !error.is_damage() => return Err(error),
        _ => {}
    }
    edit.destroy(copy).await?;
    Ok(None)
}

/// Returns the number of entries; `None`: the table is in the other byte order.
async fn copy_blocks(edit: &Edit, from: &Object, copy: ObjectId, number: u64) -> Result<Option<usize>> {
    let end = match &*Zap::open(from.clone()).await?.block0 {
        ZapBlock0::Micro(_) => 1,
        ZapBlock0::Fat(fat) => fat.free_block.0.min(from.dnode().max_block_id.0.saturating_add(1)),
    };
    let (mut next, mut count) = (0, 0);
    while next < end {
        let window = next..end.min(next + WINDOW);
        next = window.end;
        for block in from.read_blocks(window).await {
            let Some(bytes) = block.data? else { continue };
            if block.endian != Endian::NATIVE {
                return Ok(None);
            }
            let mut bytes = BytesMut::from(&bytes[..]);
            count += set_numbers(&mut bytes, number).map_err(|error| from.format(error))?;
            edit.write_block(copy, BlockId(block.id.0), bytes.freeze()).await?;
        }
    }
    Ok(Some(count))
}

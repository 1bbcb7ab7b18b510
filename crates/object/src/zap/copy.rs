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
use crate::zap::Zap;

/// Blocks read at once.
const WINDOW: u64 = 64;

/// Makes `new` a copy of a table from names to single numbers, with `number` under each name. Returns its
/// number and that of its entries; `None` if the table is in the other byte order.
///
/// # Errors
/// Damage; a value that is no single number.
pub(crate) async fn copy_with(
    edit: &Edit,
    from: ObjectId,
    new: NewObject,
    number: u64,
) -> Result<Option<(ObjectId, usize)>> {
    let from = edit.view().object(from).await?;
    let end = match &*Zap::open(from.clone()).await?.block0 {
        ZapBlock0::Micro(_) => 1,
        ZapBlock0::Fat(fat) => fat.free_block.0.min(from.dnode().max_block_id.0.saturating_add(1)),
    };
    let copy = edit.create(&new.block_bytes(from.dnode().data_block_bytes)).await?;
    let (mut next, mut count) = (0, 0);
    while next < end {
        let window = next..end.min(next + WINDOW);
        next = window.end;
        for block in from.read_blocks(window).await {
            let Some(bytes) = block.data? else { continue };
            if block.endian != Endian::NATIVE {
                edit.destroy(copy).await?;
                return Ok(None);
            }
            let mut bytes = BytesMut::from(&bytes[..]);
            count += set_numbers(&mut bytes, number).map_err(|error| from.format(error))?;
            edit.write_block(copy, BlockId(block.id.0), bytes.freeze()).await?;
        }
    }
    Ok(Some((copy, count)))
}

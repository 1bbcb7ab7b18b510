//! Content in order, read ahead, with its holes: the source of bytes for copies and `cat`.
//!
//! Content entirely on disk is read ahead in windows. If a replayed log overlays it, both are read together,
//! one piece at a time; such content is small.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use cenote_fs::manifest::Content;
use cenote_fs::{FsError, OpenFile, Result, Volume};
use cenote_object::object::Chunks;

/// Bytes read at a time under an overlay.
const OVERLAY_BYTES: u64 = 1 << 20;

/// The bytes that holes are written from.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

/// Writes the zeros of a hole in parts, for destinations without a better way.
///
/// # Errors
/// Those of `write`.
pub fn write_zeros(mut len: u64, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        write(&ZEROS[..part as usize])?;
        len -= part;
    }
    Ok(())
}

/// A piece of content.
#[derive(Debug)]
pub struct Piece {
    /// Its position.
    pub range: Range<u64>,
    /// Its bytes; `None` for a hole; the error if unreadable.
    pub data: Result<Option<Bytes>>,
}

/// The content of a file or volume between two offsets, in consecutive pieces.
pub struct Pieces<C> {
    source: Source<C>,
}

enum Source<C> {
    Plain(Chunks),
    Layered { content: C, at: u64, end: u64, block_by_block_until: u64 },
}

impl Pieces<OpenFile> {
    /// A file's content, clipped to its size.
    pub fn of_file(file: &OpenFile, range: Range<u64>) -> Pieces<OpenFile> {
        let end = range.end.min(file.attr().size);
        match file.plain_object() {
            Some(object) => Pieces { source: Source::Plain(object.chunks(range.start, end)) },
            None => Pieces::layered(file.clone(), range.start..end),
        }
    }
}

impl Pieces<Volume> {
    /// A volume's content.
    pub fn of_volume(volume: &Volume) -> Pieces<Volume> {
        match volume.plain_object() {
            Some(object) => Pieces { source: Source::Plain(object.chunks(0, volume.size_bytes())) },
            None => Pieces::layered(volume.clone(), 0..volume.size_bytes()),
        }
    }
}

impl<C: Content> Pieces<C> {
    fn layered(content: C, range: Range<u64>) -> Pieces<C> {
        let source = Source::Layered { content, at: range.start, end: range.end, block_by_block_until: 0 };
        Pieces { source }
    }

    /// The next piece; `None` at the end. After an error, the next piece follows the unreadable range.
    pub async fn next(&mut self) -> Option<Piece> {
        match &mut self.source {
            Source::Plain(chunks) => {
                let chunk = chunks.next().await?;
                let range = chunk.offset_bytes..chunk.offset_bytes.saturating_add(chunk.len_bytes);
                Some(Piece { range, data: chunk.data.map_err(FsError::from) })
            }
            Source::Layered { content, at, end, block_by_block_until } => {
                if *at >= *end {
                    return None;
                }
                let piece = layered_piece(content, *at..*end, block_by_block_until).await;
                *at = piece.range.end;
                Some(piece)
            }
        }
    }
}

/// The first piece of `range`.
async fn layered_piece(content: &impl Content, range: Range<u64>, by_block_until: &mut u64) -> Piece {
    let at = range.start;
    let block = content.block_bytes().max(512);
    let block_end = (at / block + 1).saturating_mul(block).min(range.end);
    match content.next_data(at).await {
        Ok(Some(data)) if data > at => return Piece { range: at..data.min(range.end), data: Ok(None) },
        Ok(None) => return Piece { range, data: Ok(None) },
        Ok(Some(_)) => {}
        Err(error) => return Piece { range: at..block_end, data: Err(error) },
    }
    let end = match content.next_hole(at).await {
        Ok(hole) if at >= *by_block_until => hole.min(at + OVERLAY_BYTES).clamp(at + 1, range.end),
        _ => block_end,
    };
    let mut data = content.read(at, end - at).await;
    let mut end = end;
    if data.is_err() && end > block_end {
        // Find out which of its blocks is damaged.
        *by_block_until = end;
        end = block_end;
        data = content.read(at, end - at).await;
    }
    Piece { range: at..end, data: data.map(Some) }
}

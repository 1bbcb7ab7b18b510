//! A disk's content in copy-on-write pages: a copy costs one reference per page, so a run can start thousands
//! of power cuts.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

/// Balances copying per write against pages per disk.
const PAGE_BYTES: usize = 16 << 10;

type Page = Arc<[u8; PAGE_BYTES]>;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Bytes of a disk. Unwritten pages take no memory.
#[derive(Clone)]
pub struct Image {
    pages: Vec<Option<Page>>,
}

impl Image {
    /// Creates a disk of zeros.
    pub fn new(size_bytes: u64) -> Image {
        Image { pages: vec![None; (size_bytes as usize).div_ceil(PAGE_BYTES)] }
    }

    /// Reads bytes.
    pub fn read(&self, offset: u64, len: usize) -> Bytes {
        let mut bytes = vec![0; len];
        for (page, in_page, in_bytes) in pieces(offset, len) {
            if let Some(page) = &self.pages[page] {
                bytes[in_bytes].copy_from_slice(&page[in_page]);
            }
        }
        bytes.into()
    }

    /// Writes bytes. Pages of zeros take no memory either: discards write many.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, in_page, in_data) in pieces(offset, data.len()) {
            let (page, data) = (&mut self.pages[page], &data[in_data]);
            let is_covered = page.is_none() || data.len() == PAGE_BYTES;
            if is_covered && *data == ZEROS[..data.len()] {
                *page = None;
                continue;
            }
            let page = page.get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[in_page].copy_from_slice(data);
        }
    }

    fn save(&self, file: &File) {
        file.set_len((self.pages.len() * PAGE_BYTES) as u64).unwrap();
        for (index, page) in self.pages.iter().enumerate() {
            if let Some(page) = page {
                file.write_all_at(&page[..], (index * PAGE_BYTES) as u64).unwrap();
            }
        }
    }
}

/// Writes images to sparse files in a new folder.
pub fn save(images: &[Image], folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for (index, image) in images.iter().enumerate() {
        image.save(&File::create(folder.join(format!("disk{index}.img"))).unwrap());
    }
}

type Piece = (usize, std::ops::Range<usize>, std::ops::Range<usize>);

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset as usize + done;
        let take = (PAGE_BYTES - at % PAGE_BYTES).min(len - done);
        let piece = (at / PAGE_BYTES, at % PAGE_BYTES..at % PAGE_BYTES + take, done..done + take);
        done += take;
        (take > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_take_no_memory_and_erase_what_was_there() {
        let (page_bytes, mut image) = (PAGE_BYTES as u64, Image::new(3 * PAGE_BYTES as u64));
        image.write(10, &[0; 100]);
        image.write(page_bytes, &[7; PAGE_BYTES]);
        image.write(2 * page_bytes, &[8; PAGE_BYTES]);
        assert_eq!(image.pages.iter().flatten().count(), 2);
        image.write(page_bytes, &[0; PAGE_BYTES + 10]);
        assert_eq!(image.pages.iter().flatten().count(), 1);
        let read = image.read(page_bytes, 2 * PAGE_BYTES);
        assert_eq!(read, [vec![0; PAGE_BYTES + 10], vec![8; PAGE_BYTES - 10]].concat());
    }
}

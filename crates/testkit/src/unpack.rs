//! Unpacks images: sparse, verified, visible only when complete.
//!
//! Locking: a file lock admits one unpacking thread or process per folder. Existing images are never
//! replaced, as another test may have them open.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

const CHUNK_BYTES: usize = 1 << 20;

/// Unpacks `packed` (zstd, windows up to 128 MiB) sparsely to `image`.
///
/// # Panics
/// On a wrong SHA-256 or an I/O error.
pub fn unpack_image(packed: &Path, image: &Path, sha256: &str) {
    let mut hash = Sha256::new();
    let input = File::open(packed).unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
    write_image(image, |out| {
        stream(input, |chunk| {
            hash.update(chunk);
            write_sparse(out, chunk);
        });
        let found: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(found, sha256, "{} does not unpack to what pool.json says", packed.display());
    });
}

/// Unpacks `packed` (bzip2) sparsely to `image`.
///
/// # Panics
/// On an I/O error.
pub fn unpack_bzip2(packed: &Path, image: &Path) {
    let input = File::open(packed).unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
    let mut input = bzip2::read::BzDecoder::new(input);
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    write_image(image, |out| {
        loop {
            chunk.clear();
            (&mut input).take(CHUNK_BYTES as u64).read_to_end(&mut chunk).expect("bzip2 data");
            if chunk.is_empty() {
                return;
            }
            write_sparse(out, &chunk);
        }
    });
}

/// Creates a read-only file with `fill` unless it exists. It appears only when complete.
fn write_image(image: &Path, fill: impl FnOnce(&mut File)) {
    // Lock and unfinished image are in a sibling folder, where commands that scan `folder` for disks miss
    // them.
    let folder = image.parent().expect("an image lies in a folder");
    let unpacking = folder.with_extension("unpacking");
    for needed in [folder, &unpacking] {
        fs::create_dir_all(needed).expect("make the folder for images");
    }
    let lock = File::create(unpacking.join("lock")).expect("create the lock");
    lock.lock().expect("lock the folder for images");
    if image.exists() {
        return;
    }
    let partial = unpacking.join("partial");
    let mut out = File::create(&partial).expect("create the image");
    fill(&mut out);
    let end = out.stream_position().expect("position");
    out.set_len(end).expect("set the length");
    let mut permissions = out.metadata().expect("metadata").permissions();
    permissions.set_readonly(true);
    out.set_permissions(permissions).expect("make the image read-only");
    fs::rename(&partial, image).expect("rename the image");
}

/// Copies an image sparsely for changes.
///
/// # Panics
/// If `cp` fails.
pub fn copy_image(image: &Path, to: &Path) {
    // The copy must be writable.
    let mut cp = Command::new("cp");
    let done =
        cp.args(["--sparse=always", "--no-preserve=mode"]).arg(image).arg(to).status().expect("cp runs");
    assert!(done.success(), "copy {} to {}", image.display(), to.display());
}

fn write_sparse(out: &mut File, chunk: &[u8]) {
    for page in chunk.chunks(4096) {
        if page.iter().all(|&b| b == 0) {
            out.seek(SeekFrom::Current(page.len() as i64)).expect("seek");
        } else {
            out.write_all(page).expect("write the image");
        }
    }
}

/// Decompresses zstd data in memory.
pub fn decompress(packed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    stream(packed, |chunk| out.extend_from_slice(chunk));
    out
}

fn stream(mut input: impl Read, mut sink: impl FnMut(&[u8])) {
    let mut context = DCtx::create();
    context.set_parameter(DParameter::WindowLogMax(27)).expect("zstd takes a window of 128 MiB");
    let mut source = vec![0; CHUNK_BYTES];
    let mut target = vec![0; CHUNK_BYTES];
    loop {
        let len = input.read(&mut source).expect("read the packed file");
        if len == 0 {
            return;
        }
        let mut from = InBuffer::around(&source[..len]);
        loop {
            let mut to = OutBuffer::around(&mut target[..]);
            context.decompress_stream(&mut to, &mut from).expect("zstd data");
            let produced = to.pos();
            sink(&target[..produced]);
            if from.pos() == len && produced < CHUNK_BYTES {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_golden_pool_unpacks_to_its_hash() {
        let pool = crate::golden("unclean-zil");
        let scratch = std::env::temp_dir().join(format!("cenote-testkit-{}", std::process::id()));
        let disk = &pool.facts().disks[0];
        unpack_image(&pool.folder().join(&disk.file), &scratch.join("disk0.img"), &disk.sha256);
        assert_eq!(fs::metadata(scratch.join("disk0.img")).unwrap().len(), disk.size);
        fs::remove_dir_all(scratch.with_extension("unpacking")).unwrap();
        fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn every_pool_json_is_understood() {
        for pool in crate::golden_pools() {
            assert!(!pool.facts().datasets.is_empty(), "{}", pool.name());
            assert!(!pool.properties().is_empty(), "{}", pool.name());
        }
    }
}

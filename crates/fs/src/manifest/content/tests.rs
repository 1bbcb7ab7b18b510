use super::*;
use cenote_runtime::{Runtime, SimConfig};

/// Blocks of 1000 bytes; some are bad, some are holes.
struct Fake {
    size: u64,
    bad: Vec<u64>,
    data: Vec<u64>,
}

impl Content for Fake {
    fn size_bytes(&self) -> u64 {
        self.size
    }
    fn block_bytes(&self) -> u64 {
        1000
    }
    async fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        let blocks = offset / 1000..=(offset + len - 1) / 1000;
        if blocks.clone().any(|b| self.bad.contains(&b)) {
            return Err(FsError::NotFound { path: "bad block".into() });
        }
        Ok((offset..offset + len)
            .map(|o| if self.data.contains(&(o / 1000)) { o as u8 | 1 } else { 0 })
            .collect())
    }
    async fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self
            .data
            .iter()
            .map(|b| b * 1000)
            .find(|&start| start + 1000 > offset)
            .map(|start| start.max(offset)))
    }
    async fn next_hole(&self, offset: u64) -> Result<u64> {
        let mut at = offset / 1000;
        while self.data.contains(&at) {
            at += 1;
        }
        Ok(at * 1000)
    }
}

fn hash(fake: &Fake) -> ContentHash {
    Runtime::simulate(SimConfig::default(), |_| async { hash_content(fake).await }).0.unwrap()
}

fn text(hash: &ContentHash) -> String {
    let mut out = String::new();
    hash.append_to(&mut out);
    out
}

#[test]
fn an_empty_file_has_the_hash_of_nothing() {
    let empty = hash(&Fake { size: 0, bad: vec![], data: vec![] });
    assert_eq!(text(&empty), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert!(empty.is_complete());
}

#[test]
fn neighbouring_bad_blocks_are_one_range_cut_at_the_end() {
    let data: Vec<u64> = (0..5).collect();
    let damaged = hash(&Fake { size: 4500, bad: vec![1, 3, 4], data: data.clone() });
    assert!(text(&damaged).starts_with("EIO:1000+1000;3000+1500|"), "{}", text(&damaged));
    let zeroed = hash(&Fake { size: 4500, bad: vec![], data: vec![0, 2] });
    assert_eq!(text(&damaged).split('|').next_back(), Some(text(&zeroed).as_str()));
}

#[test]
fn a_large_file_is_hashed_by_extent() {
    let last = WHOLE_HASH_LIMIT_BYTES / 1000 + 1;
    let sparse = hash(&Fake { size: last * 1000 + 700, bad: vec![7], data: vec![6, 7, last] });
    let text = text(&sparse);
    assert!(text.starts_with("extents:6000+2000:EIO:7000+1000|"), "{text}");
    assert!(text.contains(&format!(";{}+700:", last * 1000)) && !sparse.is_complete(), "{text}");
}

//! oracleGeneral: time in seconds (u32), object (u64), size (u32), position of its next use (i64); little
//! endian, without padding. Source: documentation of libCacheSim.

use super::Requests;

const RECORD_BYTES: usize = 24;
const NS_PER_SECOND: u64 = 1_000_000_000;

pub(super) fn read(content: &[u8], requests: &mut Requests) -> Result<(), String> {
    let (records, rest) = content.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() {
        return Err(format!("not a whole number of records of {RECORD_BYTES} bytes"));
    }
    for record in records {
        let word =
            |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let id = u64::from(word(4)) | u64::from(word(8)) << 32;
        requests.push(id, word(12), Some(u64::from(word(0)) * NS_PER_SECOND))?;
    }
    Ok(())
}

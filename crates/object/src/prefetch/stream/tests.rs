//! Tests of streams with numbers alone.

use cenote_cache::PrefetchSettings;

use super::*;

const BLOCK_BYTES: u64 = 128 << 10;
/// 16 GiB.
const LAST_BLOCK: u64 = (16 << 30) / BLOCK_BYTES - 1;

/// The streams of an object, and its reader.
struct Reader {
    streams: Streams,
    values: PrefetchValues,
    now_ns: u64,
    looked: Looked,
    /// All blocks read ahead.
    ahead: Vec<Range<u64>>,
}

impl Reader {
    fn new() -> Reader {
        let values = PrefetchSettings::default().values();
        let looked = Looked { missed: true, late: false };
        Reader { streams: Streams::default(), values, now_ns: 0, looked, ahead: Vec::new() }
    }

    fn read(&mut self, blocks: Range<u64>) -> (Seen, Ahead) {
        self.now_ns += 1_000_000;
        let access = Access {
            blocks,
            last_block: LAST_BLOCK,
            block_bytes: BLOCK_BYTES,
            now_ns: self.now_ns,
            looked: self.looked,
            with_data: true,
            most_bytes: 1 << 30,
            is_full: false,
        };
        let (seen, ahead) = self.streams.access(&access, &self.values);
        if !ahead.data.is_empty() {
            self.ahead.push(ahead.data.clone());
        }
        (seen, ahead)
    }

    /// Distance read ahead of this block.
    fn bytes_ahead_of(&self, block: u64) -> u64 {
        self.ahead.last().map_or(0, |ahead| ahead.end.saturating_sub(block) * BLOCK_BYTES)
    }
}

#[test]
fn a_stream_is_read_ahead_once_and_in_order_and_the_distance_grows_to_its_bound() {
    let mut reader = Reader::new();
    assert_eq!(reader.read(0..1).0, Seen::Miss);
    let mut last = 0;
    for block in 1..400 {
        assert_eq!(reader.read(block..block + 1).0, Seen::Hit);
        let ahead = reader.bytes_ahead_of(block + 1);
        assert!(ahead <= 4 << 20, "{ahead}");
        last = last.max(ahead);
    }
    assert_eq!(last, 4 << 20);
    assert_eq!(reader.ahead[0].start, 2);
    assert!(reader.ahead.windows(2).all(|two| two[0].end == two[1].start), "{:?}", reader.ahead);
    // Eventually each request to a device is a mebibyte.
    assert!(reader.ahead.iter().rev().take(20).all(|ahead| ahead.end - ahead.start == 8));
    // A reader that catches up is read farther ahead, up to a limit.
    reader.looked.late = true;
    for block in 400..4000 {
        reader.read(block..block + 1);
        assert!(reader.bytes_ahead_of(block + 1) <= 64 << 20);
    }
    assert!(reader.bytes_ahead_of(4000) > 60 << 20);
}

#[test]
fn what_is_cached_is_not_read_ahead() {
    let mut reader = Reader::new();
    reader.looked.missed = false;
    (0..100).for_each(|block| _ = reader.read(block..block + 1));
    assert_eq!(reader.ahead, []);
    reader.looked.missed = true;
    reader.read(100..101);
    reader.looked.missed = false;
    (101..200).for_each(|block| _ = reader.read(block..block + 1));
    assert!(reader.ahead[0].start > 100 && reader.bytes_ahead_of(200) > 2 << 20, "{:?}", reader.ahead);
}

#[test]
fn accesses_out_of_order_and_in_the_middle_of_blocks_belong_to_one_stream() {
    let mut reader = Reader::new();
    reader.read(0..2);
    // Four readers whose requests overtake each other.
    let mut misses = 0;
    for round in 0..50 {
        for step in [1, 0, 3, 2] {
            let block = 2 + round * 4 + step;
            misses += u64::from(reader.read(block..block + 1).0 == Seen::Miss);
        }
    }
    assert_eq!((misses, reader.streams.0.len()), (0, 1));
    assert!(reader.bytes_ahead_of(202) > 2 << 20);
    // Reads of one and a half blocks.
    let mut reader = Reader::new();
    reader.read(0..2);
    for pair in 1..50 {
        assert_eq!(reader.read(pair * 3 / 2..(pair + 1) * 3 / 2 + 1).0, Seen::Hit);
    }
}

#[test]
fn random_accesses_read_nothing_ahead_and_leave_few_streams() {
    let mut reader = Reader::new();
    let mut block = 1;
    for _ in 0..1000 {
        block = block * 48_271 % 2_147_483_647;
        let at = block % LAST_BLOCK;
        reader.read(at..at + 1);
        assert!(reader.streams.0.len() <= reader.values.max_streams);
    }
    // Two that happen to be neighbours may begin one.
    let bytes: u64 = reader.ahead.iter().map(|ahead| (ahead.end - ahead.start) * BLOCK_BYTES).sum();
    assert!(bytes <= 1 << 20, "{bytes}");
}

#[test]
fn eight_readers_of_one_file_have_a_stream_each_and_a_ninth_waits_for_one() {
    let mut reader = Reader::new();
    let place = |stream: u64, step: u64| stream * (LAST_BLOCK / 16) + step;
    for step in 0..20 {
        for stream in 0..8 {
            let seen = reader.read(place(stream, step)..place(stream, step) + 1).0;
            assert_eq!(seen, if step == 0 { Seen::Miss } else { Seen::Hit });
        }
    }
    assert_eq!(reader.read(place(9, 0)..place(9, 0) + 1).0, Seen::MaxStreams);
    reader.now_ns += 3_000_000_000;
    assert_eq!(reader.read(place(9, 0)..place(9, 0) + 1).0, Seen::Miss);
    assert_eq!(reader.streams.0.len(), 1, "the others have gone");
}

#[test]
fn a_stream_ends_with_the_object_and_reads_nothing_behind_it() {
    let mut reader = Reader::new();
    for block in LAST_BLOCK - 100..=LAST_BLOCK {
        let (_, ahead) = reader.read(block..block + 1);
        assert!(ahead.data.end <= LAST_BLOCK + 1 && ahead.indirect.end <= LAST_BLOCK + 1);
    }
    assert_eq!(reader.ahead.last().map(|last| last.end), Some(LAST_BLOCK + 1));
    assert!(reader.streams.0.is_empty());
}

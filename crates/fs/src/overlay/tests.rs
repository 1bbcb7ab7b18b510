use super::*;

/// Renders the pieces of `0..len` over a base of 'b's: zeros as '.', bytes literally.
fn paint(overlay: &ContentOverlay, len: u64) -> String {
    let mut out = String::new();
    let mut at = 0;
    for (range, source) in overlay.pieces(0..len) {
        assert_eq!(range.start, at, "pieces follow each other");
        assert!(range.end > range.start);
        let count = (range.end - range.start) as usize;
        match source {
            None => out.extend(std::iter::repeat_n('b', count)),
            Some(Source::Zeros) => out.extend(std::iter::repeat_n('.', count)),
            Some(Source::Bytes(bytes)) => out.push_str(std::str::from_utf8(&bytes[..count]).unwrap()),
            Some(Source::Block(_, from)) => {
                out.extend((from..from + count as u64).map(|i| char::from(b'0' + i as u8)))
            }
        }
        at = range.end;
    }
    out
}

fn bytes(text: &'static str) -> Source {
    Source::Bytes(Bytes::from_static(text.as_bytes()))
}

#[test]
fn later_writes_cover_earlier_ones() {
    let mut overlay = ContentOverlay::default();
    overlay.put(2..8, bytes("ABCDEF"));
    overlay.put(4..6, bytes("xy"));
    overlay.put(7..10, Source::Block(Box::default(), 3));
    assert_eq!(paint(&overlay, 12), "bbABxyE345bb");
    overlay.put(1..9, Source::Zeros);
    assert_eq!(paint(&overlay, 12), "b........5bb");
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let mut overlay = ContentOverlay::default();
    overlay.put(3..6, bytes("ABC"));
    overlay.truncate(4);
    assert_eq!(paint(&overlay, 8), "bbbA....");
    overlay.put(6..7, bytes("Z"));
    overlay.truncate(9);
    assert_eq!(paint(&overlay, 10), "bbbA..Z...");
}

#[test]
fn random_edits_equal_a_plain_array() {
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7u64);
    println!("CENOTE_SEED={seed}");
    let mut rng =
        cenote_runtime::Runtime::simulated(cenote_runtime::SimConfig { seed, ..Default::default() }).rng();
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for _ in 0..200 {
        let mut overlay = ContentOverlay::default();
        let mut plain = vec![b'b'; 40];
        for _ in 0..12 {
            let start = (rng.next_u64() % 40) as usize;
            let end = (start + (rng.next_u64() % 12) as usize).min(40);
            match rng.next_u64() % 4 {
                0 => {
                    overlay.truncate(start as u64);
                    plain[start..].fill(b'.');
                }
                1 => {
                    overlay.put(start as u64..end as u64, Source::Zeros);
                    plain[start..end].fill(b'.');
                }
                pick => {
                    let from = pick as usize * 5;
                    overlay.put(start as u64..end as u64, bytes(&LETTERS[from..]));
                    plain[start..end].copy_from_slice(&LETTERS.as_bytes()[from..from + end - start]);
                }
            }
            assert_eq!(paint(&overlay, 40).as_bytes(), plain);
        }
    }
}

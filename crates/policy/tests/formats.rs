//! Traces of every format are read, and wrong ones are refused with the line.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use cenote_policy::trace::Trace;

/// File name, content, and the expected blocks and sizes.
type Case = (&'static str, &'static [u8], Vec<(u64, u32)>);

fn read(name: &str, content: &[u8]) -> Result<Vec<(u64, u32)>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    let trace = Trace::read(&path).map_err(|error| error.to_string())?;
    Ok(trace.requests.iter().map(|request| (request.id, request.bytes)).collect())
}

#[test]
fn each_format_is_recognised() {
    let block = 4096;
    let cases: [Case; 7] = [
        ("a.lis", b"10 3 0 0\n7 1 0 1\n", vec![(10, block), (11, block), (12, block), (7, block)]),
        ("a.trc", b"5\n6\n*\n5\n", vec![(5, block), (6, block), (5, block)]),
        (
            "msr.csv",
            b"128166372003061629,hm,1,Read,8192,4096,100\n128166372003061700,hm,1,Write,12000,4096,1\n",
            vec![(2, block), (2, block), (3, block)],
        ),
        ("ids.csv", b"time,id,size\n1.5,77,100\n2,78,200\n", vec![(77, 100), (78, 200)]),
        ("disk.csv", b"timestamp,op,offset,length\n1,R,4096,8192\n", vec![(1, block), (2, block)]),
        (
            "job.log",
            b"fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x read 4096 4096\n/dev/x close\n",
            vec![(1, block)],
        ),
        (
            "blk.txt",
            b"  8,0 3 1 0.000000000 697 Q R 16 + 8 [cat]\n  8,0 3 2 0.1 697 C R 16 + 8 [cat]\n",
            vec![(2, block)],
        ),
    ];
    for (name, content, expected) in cases {
        assert_eq!(read(name, content).unwrap(), expected, "{name}");
    }
    let mut record = 9_u32.to_le_bytes().to_vec();
    record.extend(5_u64.to_le_bytes());
    record.extend(300_u32.to_le_bytes());
    record.extend((-1_i64).to_le_bytes());
    assert_eq!(read("x.oracleGeneral.bin", &record).unwrap(), [(5, 300)]);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let cases: [(&str, &[u8], &str); 5] = [
        ("a", b"hello world\n", "no known trace format"),
        ("a.lis", b"1 1 0 0\nx 1 0 0\n", "line 2: first block \"x\" is no number"),
        ("a.lis", b"1 99999999999 0 0\n", "line 1: a request for 99999999999 blocks"),
        ("x.oracleGeneral", b"abc", "not a whole number of records"),
        ("a.zst", &[0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3], "a.zst: "),
    ];
    for (name, content, expected) in cases {
        let error = read(name, content).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

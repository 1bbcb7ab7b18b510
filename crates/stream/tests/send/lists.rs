//! Lists in the module's streams: decoding and encoding yields the same bytes.

use cenote_format::nvlist::Nvlist;
use cenote_format::stream::{HeaderType, Record};
use cenote_runtime::Runtime;
use cenote_stream::StreamReader;
use cenote_testkit::{decompress, needs, shared_path};

#[needs("streams/streams.json")]
#[test]
fn lists_are_packed_as_the_module_packs_them() {
    let rt = Runtime::real(Some(1));
    let (mut packages, mut streams) = (0, 0);
    for name in
        ["rep-R", "props-p", "holds-h", "backup-b", "enc-Rw", "enc-w", "enc-w-i", "raw1-w", "resume-rest"]
    {
        let bytes = decompress(&std::fs::read(shared_path(&format!("streams/{name}.zs.zst"))).unwrap());
        rt.block_on(async {
            let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(bytes)));
            while let Some(item) = reader.next().await.unwrap() {
                let Record::Begin(begin) = &item.record else { continue };
                if item.payload.is_empty() {
                    continue;
                }
                let list = Nvlist::decode(&item.payload).unwrap();
                match begin.header {
                    HeaderType::Compound => {
                        assert_eq!(list.encode(), item.payload, "{name}");
                        packages += 1;
                    }
                    HeaderType::Substream => {
                        assert_eq!(list.encode_native(), item.payload, "{name}");
                        streams += 1;
                    }
                }
            }
        });
    }
    assert!(packages >= 5 && streams >= 5, "{packages} packages, {streams} streams");
}

//! Compares streams with the module's, made by `proof/streams/run` in `CENOTE_STREAMS`: for each pool a
//! folder with its images beside, and `cases` (see `proof/streams/guest`).

use std::path::Path;

use cenote_runtime::Runtime;
use cenote_stream::send::Plan;
use cenote_testkit::golden;

use crate::words::request;
use crate::{estimate_of, open, stream_of};

/// A stream of the module.
struct Case {
    number: String,
    succeeded: bool,
    words: String,
}

fn cases(folder: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(folder.join("cases")).unwrap();
    let case = |line: &str| {
        let fields: Vec<&str> = line.splitn(3, '\t').collect();
        let [number, status, words] = fields[..] else { panic!("{line}") };
        Case { number: number.into(), succeeded: status == "0", words: words.into() }
    };
    text.lines().map(case).collect()
}

/// Run by `proof/streams/run`. Streams that differ are kept beside the module's, as `NUMBER.ours`.
#[test]
fn streams_are_those_of_the_module() {
    let Some(folder) = std::env::var_os("CENOTE_STREAMS") else {
        return eprintln!("skipped: CENOTE_STREAMS names no folder with the module's streams");
    };
    let rt = Runtime::real(Some(2));
    let (mut same, mut wrong) = (0, Vec::new());
    let mut pools: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pools.sort();
    for pool in pools {
        let name = pool.file_name().unwrap().to_str().unwrap();
        rt.block_on(async {
            let mos = open(&rt, &golden(name)).await;
            for case in cases(&pool) {
                let what = format!("{name} {}: zfs send {}", case.number, case.words.replace('\t', " "));
                let made = plan(&mos, &case.words);
                match made.await {
                    Err(error) if !case.succeeded => drop(error),
                    Err(error) => wrong.push(format!("{what}: {error}")),
                    Ok(_) if !case.succeeded => wrong.push(format!("{what}: the module refuses")),
                    Ok((stream, foretold)) => {
                        let theirs = std::fs::read(pool.join(format!("{}.zs", case.number))).unwrap();
                        if stream.len() as u64 != foretold {
                            wrong.push(format!("{what}: {} bytes, foretold {foretold}", stream.len()));
                        }
                        if stream == theirs {
                            same += 1;
                        } else {
                            std::fs::write(pool.join(format!("{}.ours", case.number)), &stream).unwrap();
                            wrong.push(format!("{what}: {} bytes, module {}", stream.len(), theirs.len()));
                        }
                    }
                }
            }
        });
    }
    println!("{same} streams are the module's");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(same > 0, "nothing was compared");
}

async fn plan(mos: &cenote_dataset::Mos, words: &str) -> Result<(Vec<u8>, u64), String> {
    let request = request(mos, words).await.map_err(|error| error.to_string())?;
    let plan = Plan::of(request).await.map_err(|error| error.to_string())?;
    let stream = stream_of(&plan).await.map_err(|error| error.to_string())?;
    let foretold = estimate_of(&plan).await.map_err(|error| error.to_string())?;
    Ok((stream, foretold))
}

//! `replay TRACE POLICY,... BLOCKS,...`: miss ratios of a trace, for comparison with other simulators.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool of the developers")]

use cenote_policy::{
    policy::PolicyName,
    replay,
    trace::{BLOCK_BYTES, Trace},
};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let trace = Trace::read(words[0].as_ref()).unwrap();
    println!("{:?}", trace.summary());
    for size in words[2].split(',').map(|size| size.parse::<u64>().unwrap()) {
        for policy in words[1].split(',').map(|name| name.parse::<PolicyName>().unwrap()) {
            let begin = std::time::Instant::now();
            let outcome = replay::replay(&trace, policy, size * u64::from(BLOCK_BYTES));
            println!("{policy} {size} {:.4} ({:.1?})", outcome.miss_ratio(), begin.elapsed());
        }
    }
}

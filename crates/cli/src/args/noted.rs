//! The command line as recorded in the pool's history: without keys.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::render::quoted;

/// The longest command line that a pool's history holds, `HIS_MAX_RECORD_LEN`.
const MAX_NOTED_BYTES: usize = 128 << 10;

/// The command line as recorded in the pool's history: without keys.
pub fn as_noted(argv: &[OsString]) -> String {
    let mut words = Vec::new();
    let mut is_key = false;
    for word in argv {
        let word = word.to_str().map_or_else(|| quoted(word.as_bytes()), str::to_owned);
        let hide = |key: &str| format!("{}=...", key.split('=').next().unwrap_or_default());
        words.push(match word.strip_prefix("--key=") {
            Some(key) => format!("--key={}", hide(key)),
            None if is_key => hide(&word),
            None => word.to_string(),
        });
        is_key = word == "--key";
    }
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    let mut line = words.join(" ");
    let end = (0..=MAX_NOTED_BYTES.min(line.len())).rev().find(|&end| line.is_char_boundary(end));
    line.truncate(end.unwrap_or(0));
    line
}

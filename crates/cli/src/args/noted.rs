//! The command line as recorded in the pool's history: without keys.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cenote_control::text::quoted;

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
    cenote_control::for_history(words.join(" "))
}

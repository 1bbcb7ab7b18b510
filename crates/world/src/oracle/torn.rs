//! Files that have a part of a write.
//!
//! ```text
//!   write 1    |----------|             its record waits, until another name of the file is logged
//!   write 2          |----------|       its record waits for a commit of the file
//!   the log    |11111|2222|             read from the file when another file is committed
//! ```
//!
//! Idea: the log reads written data when it is written itself, as OpenZFS does (`engine/zil/content`,
//! `zfs_get_data`). A record may therefore bring bytes of later writes, which nobody committed. POSIX allows
//! that. So each byte of a file is as at some moment, not before its last commit began; so are its size and
//! its attributes.

use std::sync::Arc;

use super::crash::Node;
use crate::model::{Body, Data, File};

/// The last point from which on the states of a file give all that was found. `files`: latest first.
pub fn since<'a>(found: &Node, files: impl Iterator<Item = (usize, &'a Arc<File>)>) -> Option<usize> {
    let bytes = found.bytes.as_ref().filter(|_| !found.is_symlink)?;
    // After the first state, these are few.
    let mut missing: Vec<usize> = (0..bytes.len()).collect();
    let (mut has_size, mut has_attributes) = (false, false);
    let mut seen: Option<&Data> = None;
    for (at, file) in files {
        has_attributes |= file.mode == found.mode && file.xattrs == found.xattrs;
        let Body::Regular(content) = &file.body else { return None };
        // States share their parts.
        if !seen.is_some_and(|seen| seen.is_shared(content)) {
            has_size |= content.len() == bytes.len();
            missing.retain(|at| content.get(*at) != Some(&bytes[*at]));
        }
        seen = Some(content);
        if has_size && has_attributes && missing.is_empty() {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn bytes_of_several_moments_are_found_from_the_earliest_on() {
        let file = |content: &'static str| Arc::new(File::new(Body::Regular(content.into())));
        let states = [file("....."), file("11111"), file("11122"), file("33322")];
        let found = |content: &'static str| Node {
            bytes: Some(content.into()),
            is_symlink: false,
            mode: 0o644,
            xattrs: BTreeMap::new(),
        };
        let since = |content| since(&found(content), states.iter().enumerate().rev());
        assert_eq!(["33322", "11122", "33311", "3.122"].map(since), [Some(3), Some(2), Some(1), Some(0)]);
        assert_eq!(["44444", "3332", ""].map(since), [None; 3]);
    }
}

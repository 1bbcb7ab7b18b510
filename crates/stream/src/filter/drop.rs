//! `zstream drop_record`: named WRITE and WRITE_EMBEDDED records are left out.

use std::collections::HashSet;
use std::sync::Arc;

use cenote_format::stream::Record;

use super::{Change, Changed, Place};

/// Leaves out these records.
pub fn drop_records(places: HashSet<Place>) -> Change {
    Arc::new(move |record, payload| {
        let (kind, object, offset) = match &record {
            Record::Write(write) => ("WRITE", write.object, write.offset),
            Record::WriteEmbedded(write) => ("WRITE_EMBEDDED", write.object, write.offset),
            _ => return Ok(Changed::to(record, payload)),
        };
        Ok(match places.contains(&(object, offset)) {
            true => Changed::default()
                .noting(format!("dropping {kind} record for object {object} offset {offset}")),
            false => Changed::to(record, payload),
        })
    })
}

//! Properties of a bookmark.

use cenote_boxed::boxed;
use cenote_format::dsl::bookmark::{RedactionListHead, ZBM_FLAG_HAS_FBN};
use cenote_object::Result;

use crate::bookmark::Bookmark;
use crate::mos::Mos;
use crate::properties::{Property, Source, Value};

impl Bookmark {
    /// Properties in the order of `zfs get all`; sizes need feature `bookmark_written`.
    ///
    /// # Errors
    /// The redaction list is damaged.
    #[boxed]
    pub async fn properties(&self, mos: &Mos) -> Result<Vec<Property>> {
        let phys = &self.phys;
        let number = |name: &str, number: u64| (name.to_owned(), Value::Number(number));
        let has_sizes = phys.flags & ZBM_FLAG_HAS_FBN != 0;
        let mut facts = vec![
            ("type".to_owned(), Value::Text("bookmark".into())),
            number("creation", phys.creation_time_s),
        ];
        facts.extend(has_sizes.then(|| number("referenced", phys.referenced_bytes)));
        facts.push(number("createtxg", phys.creation_txg.0));
        facts.push(number("guid", phys.guid.0));
        facts.extend(has_sizes.then(|| number("logicalreferenced", phys.uncompressed_bytes)));
        if phys.redaction_list.0 != 0 {
            let object = mos.objset().object(phys.redaction_list).await?;
            let head = RedactionListHead::decode(object.dnode().bonus(), object.dnode().endian());
            let guids = head.map_err(|e| object.format(e))?.snapshots;
            let guids: Vec<String> = guids.iter().map(|guid| guid.0.to_string()).collect();
            facts.push(("redact_snaps".into(), Value::Text(guids.join(","))));
        }
        let fact = |(name, value)| Property { name, value, source: Source::None, received: None };
        Ok(facts.into_iter().map(fact).collect())
    }
}

//! Bookmarks of a file system or volume.

use cenote_boxed::boxed;
use cenote_format::Phys;
use cenote_format::dsl::bookmark::Bookmark as BookmarkPhys;
use cenote_format::dsl::names::dataset_field;
use cenote_format::units::ObjectId;
use cenote_object::{Result, Zap};

use crate::dataset::Dataset;

/// Named bookmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bookmark {
    /// Full name, `pool/a#mark`.
    pub name: String,
    /// Facts about the snapshot.
    pub phys: BookmarkPhys,
}

impl Dataset {
    /// Bookmarks by name.
    ///
    /// # Errors
    /// The table is damaged.
    #[boxed]
    pub async fn bookmarks(&self) -> Result<Vec<Bookmark>> {
        let id = self.field(dataset_field::BOOKMARK_NAMES).await?.and_then(|words| words.first().copied());
        let Some(id) = id.filter(|&id| id != 0).map(ObjectId) else { return Ok(Vec::new()) };
        let mut bookmarks = Vec::new();
        for entry in Zap::open_id(self.mos().objset(), id).await?.to_vec().await? {
            let words: Vec<u64> = entry.value.words().collect();
            let phys = BookmarkPhys::from_words(&words).map_err(|e| self.mos().objset().format(id, e))?;
            bookmarks.push(Bookmark { name: format!("{}#{}", self.dir().name(), entry.name_text()), phys });
        }
        bookmarks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(bookmarks)
    }
}

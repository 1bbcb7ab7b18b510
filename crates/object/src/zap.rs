//! ZAP: an object that maps names (or numbers) to arrays of integers, such as directories and properties.
//!
//! Idea: a small ZAP is one block of fixed slots (micro), a large one an extendible hash table (fat): the
//! upper bits of a name's hash index a pointer table, in the first block or in its own blocks, which gives
//! the entry's leaf block. A lookup takes one or two cached blocks; a listing goes leaf by leaf in constant
//! memory.
//!
//! ```text
//!   micro   [header | slot | slot | ...]
//!   fat     block 0: header [pointer table] --> leaf: [header | hash chains | chunks of name and value]
//! ```
//!
//! Names: with normalization or case folding, the hash is that of the folded name. [`Zap::lookup`] finds a
//! name as stored; [`Zap::lookup_normalized`] finds any spelling that folds to the same.
//!
//! Invariants: a leaf's prefix is checked against its place in the table; no more leaves are visited than the
//! object has blocks.
//!
//! Source: OpenZFS `zap.c`, `zap_leaf.c`, `zap_micro.c`, `u8_textprep.c`.

pub(crate) mod copy;
mod create;
mod cursor;
mod edit;
mod entries;
mod fat;
pub mod fold;
mod grow;
mod key;
mod micro;
pub(crate) mod micro_index;
mod outcome;
mod value;

use std::sync::Arc;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::zap::{
    FatHeader, Leaf, LeafEntry, LeafPointer, ZAP_FLAG_UINT64_KEY, ZapBlock0, read_pointer,
};

use crate::error::Result;
use crate::object::Object;
use crate::objset::Objset;
use crate::zap::fold::fold;

pub use create::NewZap;
pub use cursor::Cursor;
pub use edit::ZapEdit;
pub use entries::Entries;
pub use key::ZapKey;
pub use value::{ZapEntry, ZapValue};

/// An open ZAP. A clone is cheap.
#[derive(Debug, Clone)]
pub struct Zap {
    object: Object,
    block0: Arc<ZapBlock0>,
}

impl Zap {
    /// Opens an object that must be a ZAP.
    ///
    /// # Errors
    /// Damage; no ZAP.
    #[boxed]
    pub async fn open(object: Object) -> Result<Zap> {
        let (block, endian) = object.read_block(BlockId(0)).await?;
        let block0 = ZapBlock0::decode(block, endian).map_err(|e| object.format(e))?;
        Ok(Zap { object, block0: Arc::new(block0) })
    }

    /// Opens the ZAP of that number.
    ///
    /// # Errors
    /// No such object; no ZAP.
    #[boxed]
    pub async fn open_id(objset: &Objset, id: ObjectId) -> Result<Zap> {
        Zap::open(objset.object(id).await?).await
    }

    /// Its object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Entries according to its header.
    pub fn count(&self) -> u64 {
        match &*self.block0 {
            ZapBlock0::Micro(micro) => micro.entries().count() as u64,
            ZapBlock0::Fat(fat) => fat.entry_count,
        }
    }

    /// Folding before hashing (`fold::U8_*`); 0: none.
    pub fn normflags(&self) -> u64 {
        self.block0.normflags()
    }

    /// Whether keys are numbers, not names.
    pub fn has_word_keys(&self) -> bool {
        self.block0.hasher().flags & ZAP_FLAG_UINT64_KEY != 0
    }

    /// The value of a name, spelled exactly so.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn lookup(&self, name: &[u8]) -> Result<Option<ZapValue>> {
        let found = match &*self.block0 {
            ZapBlock0::Micro(micro) => return Ok(micro.lookup(name).map(ZapValue::from_u64)),
            ZapBlock0::Fat(fat) => {
                let leaf = self.leaf(fat, self.hash(name)).await?;
                let found = leaf.lookup(self.hash(name), name).map_err(|e| self.object.format(e))?;
                found.map(|entry| self.value(&entry)).transpose()?
            }
        };
        match found {
            None if self.may_hash_elsewhere(name) => {
                Ok(self.scan(|other| other.name == name).await?.map(|entry| entry.value))
            }
            found => Ok(found),
        }
    }

    /// The entry whose name folds to the same by `flags` (`fold::U8_*`); an exact match wins.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn lookup_normalized(&self, name: &[u8], flags: u64) -> Result<Option<ZapEntry>> {
        if let Some(value) = self.lookup(name).await? {
            return Ok(Some(ZapEntry { name: Bytes::copy_from_slice(name), value }));
        }
        let wanted = fold(name, flags);
        // A table that folds less may have it under any hash.
        let same_hash = flags & !self.normflags() == 0;
        if let (ZapBlock0::Fat(fat), true) = (&*self.block0, same_hash) {
            let leaf = self.leaf(fat, self.hash(name)).await?;
            let matches = |entry: &LeafEntry<'_>| Ok(fold(&entry.name()?, flags) == wanted);
            let found = leaf.find(self.hash(name), matches).map_err(|e| self.object.format(e))?;
            if let Some(entry) = found {
                return self.entry(&entry).map(Some);
            }
            if !self.may_hash_elsewhere(name) {
                return Ok(None);
            }
        }
        self.scan(|other| fold(&other.name, flags) == wanted).await
    }

    /// The value under a numeric key.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn lookup_words(&self, key: &[u64]) -> Result<Option<ZapValue>> {
        let ZapBlock0::Fat(fat) = &*self.block0 else { return Ok(None) };
        let hash = fat.hasher().words(key);
        let leaf = self.leaf(fat, hash).await?;
        let found = leaf.lookup_words(hash, key).map_err(|e| self.object.format(e))?;
        found.map(|entry| self.value(&entry)).transpose()
    }

    /// The value of a name, if one number.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn get_u64(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.lookup(name.as_bytes()).await?.and_then(|value| value.as_u64()))
    }

    /// All entries, in disk order.
    pub fn entries(&self) -> Entries {
        Entries::new(self.clone())
    }

    /// All entries at once, for small tables.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn to_vec(&self) -> Result<Vec<ZapEntry>> {
        let mut all = Vec::new();
        let mut entries = self.entries();
        while let Some(batch) = entries.next_batch().await {
            all.extend(batch?);
        }
        Ok(all)
    }

    /// The first name with this number (`zap_value_search`).
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn name_of(&self, number: u64) -> Result<Option<String>> {
        let found = self.scan(|entry| entry.value.as_u64() == Some(number)).await?;
        Ok(found.map(|entry| entry.name_text()))
    }

    async fn scan(&self, wanted: impl Fn(&ZapEntry) -> bool) -> Result<Option<ZapEntry>> {
        let mut entries = self.entries();
        while let Some(batch) = entries.next_batch().await {
            if let Some(entry) = batch?.into_iter().find(&wanted) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The hash of a name as stored.
    pub fn hash(&self, name: &[u8]) -> u64 {
        match self.normflags() {
            0 => self.block0.hasher().text(name),
            flags => self.block0.hasher().text(&fold(name, flags)),
        }
    }

    /// Our folding may differ from the writer's: see [`fold`].
    fn may_hash_elsewhere(&self, name: &[u8]) -> bool {
        self.normflags() != 0 && !name.is_ascii() && matches!(&*self.block0, ZapBlock0::Fat(_))
    }

    /// The stored hash, if it differs from ours.
    pub(crate) async fn odd_hash(&self, name: &[u8]) -> Result<Option<u64>> {
        let ZapBlock0::Fat(fat) = &*self.block0 else { return Ok(None) };
        let hash = self.hash(name);
        let is_where_expected = async || {
            let leaf = self.leaf(fat, hash).await?;
            leaf.lookup(hash, name).map(|found| found.is_some()).map_err(|e| self.object.format(e))
        };
        if !self.may_hash_elsewhere(name) || is_where_expected().await? {
            return Ok(None);
        }
        let end = fat.free_block.0.min(self.object.dnode().max_block_id.0.saturating_add(1));
        let mut next = 1;
        while let Some(BlockId(id)) =
            self.object.next_data_block(BlockId(next)).await?.filter(|id| id.0 < end)
        {
            next = id + 1;
            let (block, endian) = self.object.read_block(BlockId(id)).await?;
            // Blocks of the table, and remains of a smaller one.
            let Ok(leaf) = Leaf::decode(block, endian) else { continue };
            for entry in leaf.entries() {
                let entry = entry.map_err(|e| self.object.format(e))?;
                if entry.name().map_err(|e| self.object.format(e))? == name {
                    return Ok(Some(entry.hash));
                }
            }
        }
        Ok(None)
    }

    async fn leaf(&self, fat: &FatHeader, hash: u64) -> Result<Leaf> {
        let block = match fat.locate(fat.table_index(hash)) {
            LeafPointer::Leaf(block) => block,
            LeafPointer::InTable { block, offset_bytes } => {
                let (table, endian) = self.object.read_block(block).await?;
                read_pointer(&table, offset_bytes, endian).map_err(|e| self.object.format(e))?
            }
        };
        let (bytes, endian) = self.object.read_block(block).await?;
        let leaf = Leaf::decode(bytes, endian).map_err(|e| self.object.format(e))?;
        let prefix = hash.checked_shr(64 - leaf.prefix_len).unwrap_or(0);
        if prefix != leaf.prefix {
            return Err(self.object.damaged("a pointer of the table leads to another leaf"));
        }
        Ok(leaf)
    }

    fn value(&self, entry: &LeafEntry<'_>) -> Result<ZapValue> {
        let raw = entry.value_bytes().map_err(|e| self.object.format(e))?;
        Ok(ZapValue::new(entry.int_bytes, raw.into()))
    }

    fn entry(&self, entry: &LeafEntry<'_>) -> Result<ZapEntry> {
        let name = if self.has_word_keys() {
            entry.name_words().map(|words| words.into_iter().flat_map(u64::to_be_bytes).collect())
        } else {
            entry.name()
        };
        let name = name.map_err(|e| self.object.format(e))?.into();
        Ok(ZapEntry { name, value: self.value(entry)? })
    }
}

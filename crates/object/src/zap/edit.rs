//! Changing a ZAP in the open txg.
//!
//! Idea: a change finds its bytes like a lookup and writes them in place ([`crate::live`]), at a cost that
//! does not grow with the ZAP. A micro ZAP becomes fat when it is full, or gets an entry that only a fat one
//! can hold.
//!
//! ```text
//!   ZapEdit::add --> micro: index in memory --> slot
//!                      | outgrown: all entries into a fat one
//!                      v
//!                    fat: header --> pointer --> leaf --> chunks   leaf full: split, or a larger table
//! ```
//!
//! A concurrent reader may meet a leaf just split: callers must exclude readers.
//!
//! Source: OpenZFS `zap_micro.c` (`zap_add`, `zap_update`, `zap_remove`, `zap_increment`).

use cenote_format::dnode::ObjectType;
use cenote_format::units::ObjectId;
use cenote_format::zap::{LeafKey, LeafValue, swap_block};

use crate::error::{DatasetError, Result};
use crate::live::Edit;
use crate::live::in_place::{Blocks, Step};
use crate::zap::fat::Fat;
use crate::zap::key::{StoredKey, ZapKey};
use crate::zap::outcome::{Outcome, Put};
use crate::zap::value::ZapValue;
use crate::zap::{Zap, micro};

/// `ZAP_MAXVALUELEN`.
const MAX_VALUE_BYTES: usize = 8192;
const OTHER_KEYS: &str = "is a key of another kind than the table has";

/// Editor of a ZAP.
#[derive(Debug, Clone, Copy)]
pub struct ZapEdit<'a> {
    edit: &'a Edit,
    object: ObjectId,
}

impl<'a> ZapEdit<'a> {
    /// The ZAP of that number.
    pub fn new(edit: &'a Edit, object: ObjectId) -> ZapEdit<'a> {
        ZapEdit { edit, object }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`DatasetError::EntryExists`] for the exact spelling; damage; an invalid entry.
    pub async fn add<'k>(&self, key: impl Into<ZapKey<'k>>, value: impl Into<ZapValue>) -> Result<()> {
        self.put(self.key(key.into())?, value.into(), Put::Add).await
    }

    /// Sets the value of a name, new or not.
    ///
    /// # Errors
    /// Damage; an invalid entry.
    pub async fn update<'k>(&self, key: impl Into<ZapKey<'k>>, value: impl Into<ZapValue>) -> Result<()> {
        self.put(self.find_key(key.into()).await?, value.into(), Put::Update).await
    }

    /// Removes a name, spelled exactly so.
    ///
    /// # Errors
    /// [`DatasetError::NoEntry`]; damage.
    pub async fn remove<'k>(&self, key: impl Into<ZapKey<'k>>) -> Result<()> {
        let key = self.find_key(key.into()).await?;
        let outcome = self.change(|blocks| remove_in(blocks, &key)).await?;
        if let Outcome::Emptied(hash) = outcome {
            while self.change(|blocks| Fat::open(blocks)?.merge(blocks, hash)).await? {}
        }
        self.answer(&key, outcome)
    }

    /// Adds to a name's number, 0 if absent, and returns the sum. A sum of 0 is removed.
    ///
    /// # Errors
    /// No number; damage; an invalid entry.
    pub async fn increment<'k>(&self, key: impl Into<ZapKey<'k>>, delta: i64) -> Result<u64> {
        let key = key.into();
        let number = match self.get(key).await? {
            Some(value) => {
                value.as_u64().ok_or_else(|| self.edit.damaged(self.object, "counts by no number"))
            }
            None => Ok(0),
        }?;
        let sum = number.wrapping_add_signed(delta);
        match (number, sum) {
            (old, new) if old == new => {}
            (_, 0) => self.remove(key).await?,
            _ => self.update(key, sum).await?,
        }
        Ok(sum)
    }

    /// The value of a name, spelled exactly so; faster than [`Zap::lookup`] within changes.
    ///
    /// # Errors
    /// Damage.
    pub async fn get<'k>(&self, key: impl Into<ZapKey<'k>>) -> Result<Option<ZapValue>> {
        let key = self.find_key(key.into()).await?;
        self.change(|blocks| get_in(blocks, &key)).await
    }

    async fn change<T>(&self, change: impl FnMut(&mut Blocks<'_>) -> Step<T>) -> Result<T> {
        self.edit.in_place(self.object, swap_block, change).await
    }

    async fn put(&self, key: StoredKey<'_>, value: ZapValue, put: Put) -> Result<()> {
        let is_held = value.raw().len() <= MAX_VALUE_BYTES && matches!(value.integer_bytes(), 1 | 2 | 4 | 8);
        let outcome = match is_held {
            true => self.change(|blocks| put_in(blocks, &key, &value, put)).await?,
            false => Outcome::Refused("has a value that no ZAP holds"),
        };
        self.answer(&key, outcome)
    }

    fn key<'k>(&self, key: ZapKey<'k>) -> Result<StoredKey<'k>> {
        StoredKey::new(key).map_err(|why| self.refused(&key, why))
    }

    /// A key with its stored hash, if it exists; see [`crate::zap::fold`].
    async fn find_key<'k>(&self, key: ZapKey<'k>) -> Result<StoredKey<'k>> {
        let stored = self.key(key)?;
        if let ZapKey::Name(name) = key
            && !name.is_ascii()
            && let Some(hash) = Zap::open_id(&self.edit.view(), self.object).await?.odd_hash(name).await?
        {
            return Ok(stored.hashed(hash));
        }
        Ok(stored)
    }

    fn answer(&self, key: &StoredKey<'_>, outcome: Outcome) -> Result<()> {
        let dataset = self.edit.view().dataset_id();
        let (object, name) = (self.object, || key.key.to_string().into());
        match outcome {
            Outcome::Done | Outcome::Emptied(_) => Ok(()),
            Outcome::Exists => Err(DatasetError::EntryExists { dataset, object, name: name() }),
            Outcome::Absent => Err(DatasetError::NoEntry { dataset, object, name: name() }),
            Outcome::Refused(why) => Err(self.refused(&key.key, why)),
        }
    }

    fn refused(&self, key: &ZapKey<'_>, why: &str) -> DatasetError {
        let (dataset, object) = (self.edit.view().dataset_id(), self.object);
        DatasetError::EntryRefused { dataset, object, name: key.to_string().into(), why: why.into() }
    }
}

fn put_in(blocks: &mut Blocks<'_>, key: &StoredKey<'_>, value: &ZapValue, put: Put) -> Step<Outcome> {
    let in_directory = blocks.head().is_some_and(|h| h.object_type == ObjectType::DIRECTORY_CONTENTS);
    if !key.is_allowed(in_directory) {
        return Ok(Outcome::Refused("has a name that is too long"));
    }
    if micro::is_micro(blocks)? {
        if matches!(key.key, ZapKey::Words(_)) {
            return Ok(Outcome::Refused(OTHER_KEYS));
        }
        if let Some(outcome) = micro::put(blocks, key, value, put)? {
            return Ok(outcome);
        }
        micro::upgrade(blocks)?;
    }
    let mut fat = Fat::open(blocks)?;
    let Some(key) = fat_key(&fat, key) else { return Ok(Outcome::Refused(OTHER_KEYS)) };
    let value = LeafValue { int_bytes: value.integer_bytes(), raw: value.raw() };
    fat.put(blocks, key, None, value, put)
}

fn remove_in(blocks: &mut Blocks<'_>, key: &StoredKey<'_>) -> Step<Outcome> {
    if micro::is_micro(blocks)? {
        return micro::remove(blocks, key);
    }
    let mut fat = Fat::open(blocks)?;
    match fat_key(&fat, key) {
        Some(key) => fat.remove(blocks, key),
        None => Ok(Outcome::Absent),
    }
}

fn get_in(blocks: &mut Blocks<'_>, key: &StoredKey<'_>) -> Step<Option<ZapValue>> {
    if micro::is_micro(blocks)? {
        return micro::get(blocks, key);
    }
    let fat = Fat::open(blocks)?;
    match fat_key(&fat, key) {
        Some(_) => fat.get(blocks, key),
        None => Ok(None),
    }
}

fn fat_key<'k>(fat: &Fat, key: &'k StoredKey<'_>) -> Option<LeafKey<'k>> {
    key.for_leaf(fat.head.hasher(), fat.head.normflags)
}

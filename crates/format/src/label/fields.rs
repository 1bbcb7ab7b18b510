//! Takes known pairs out of a list; unknown pairs remain.

use crate::error::{FormatError, Result, at_most};
use crate::nvlist::{NvValue, Nvlist};
use crate::units::{Guid, ObjectId};

/// List being read. A pair of the wrong type is an error; a missing one is `None`.
pub(super) struct Fields {
    rest: Vec<(String, NvValue)>,
}

impl Fields {
    pub fn new(list: &Nvlist) -> Self {
        Fields { rest: list.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect() }
    }

    /// Pairs not taken.
    pub fn into_rest(self) -> Nvlist {
        self.rest.into_iter().collect()
    }

    fn take<T>(&mut self, name: &'static str, read: impl Fn(NvValue) -> Option<T>) -> Result<Option<T>> {
        let Some(at) = self.rest.iter().position(|(n, _)| n == name) else { return Ok(None) };
        let (_, value) = self.rest.remove(at);
        read(value)
            .map(Some)
            .ok_or(FormatError::Corrupt { what: name, why: "has another type than OpenZFS gives it" })
    }

    pub fn u64(&mut self, name: &'static str) -> Result<Option<u64>> {
        self.take(name, |v| if let NvValue::Uint64(n) = v { Some(n) } else { None })
    }

    /// Number of at most `bound`.
    pub fn small<T: TryFrom<u64>>(&mut self, name: &'static str, bound: u64) -> Result<Option<T>> {
        let Some(value) = self.u64(name)? else { return Ok(None) };
        T::try_from(at_most(name, value, bound)?).map(Some).map_err(|_| FormatError::OutOfRange {
            what: name,
            value,
            bound,
        })
    }

    /// Number; 0 if missing.
    pub fn number(&mut self, name: &'static str) -> Result<u64> {
        Ok(self.u64(name)?.unwrap_or(0))
    }

    /// Object; 0 if none.
    pub fn object(&mut self, name: &'static str) -> Result<ObjectId> {
        self.number(name).map(ObjectId)
    }

    pub fn guid(&mut self, name: &'static str) -> Result<Option<Guid>> {
        Ok(self.u64(name)?.map(Guid))
    }

    /// A flag: a number, a boolean or mere presence. Missing means false.
    pub fn flag(&mut self, name: &'static str) -> Result<bool> {
        let found = self.take(name, |v| match v {
            NvValue::Uint64(n) => Some(n != 0),
            NvValue::BooleanValue(b) => Some(b),
            NvValue::Boolean => Some(true),
            _ => None,
        })?;
        Ok(found.unwrap_or(false))
    }

    /// Text for display only: invalid UTF-8 is replaced.
    pub fn string(&mut self, name: &'static str) -> Result<Option<String>> {
        let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        self.take(name, |v| if let NvValue::String(s) = v { Some(lossy(s)) } else { None })
    }

    pub fn u64s(&mut self, name: &'static str) -> Result<Vec<u64>> {
        let found = self.take(name, |v| if let NvValue::Uint64Array(a) = v { Some(a) } else { None })?;
        Ok(found.unwrap_or_default())
    }

    pub fn nvlist(&mut self, name: &'static str) -> Result<Option<Nvlist>> {
        self.take(name, |v| if let NvValue::Nvlist(list) = v { Some(list) } else { None })
    }

    pub fn nvlists(&mut self, name: &'static str) -> Result<Vec<Nvlist>> {
        let found = self.take(name, |v| if let NvValue::NvlistArray(a) = v { Some(a) } else { None })?;
        Ok(found.unwrap_or_default())
    }
}

pub(super) fn required<T>(name: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or(FormatError::Corrupt { what: name, why: "is missing from the configuration" })
}

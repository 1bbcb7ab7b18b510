//! Structures made of 64-bit words only.
//!
//! Idea: most structures of the DSL, scans and vdevs are lists of words, either bytes in a bonus or object,
//! in the block's order, or integers in a ZAP entry. [`word_struct!`] describes each once and converts both
//! forms. Missing words after the required minimum read as zero, since old pools lack them; words after the
//! last known one are ignored.
//!
//! Source: OpenZFS requires `uint64_t` members in these structures, for byte-swapping.

use crate::blkptr::{Blkptr, Dva};
use crate::bytes::{Endian, Writer};
use crate::error::{FormatError, Result};
use crate::units::{BlockId, DatasetId, Guid, ObjectId, PhysicalBirth, Txg, VdevId};

/// Value of fixed length in words.
pub trait Words: Sized {
    /// Number of words.
    const COUNT: usize;

    /// Takes exactly `COUNT` words; the source must be endless.
    fn take(source: &mut dyn Iterator<Item = u64>) -> Self;

    /// Appends exactly `COUNT` words.
    fn put(&self, sink: &mut Vec<u64>);
}

/// On-disk structure of words.
pub trait Phys: Words {
    /// Name in errors.
    const WHAT: &'static str;
    /// Words of the oldest form.
    const REQUIRED: usize;
    /// Fields in on-disk order with their words, padding included: for display and compile-time layout
    /// assertions.
    const FIELDS: &'static [(&'static str, usize)] = &[];

    /// Decodes a ZAP entry. Missing words after `REQUIRED` read as zero.
    fn from_words(words: &[u64]) -> Result<Self> {
        if words.len() < Self::REQUIRED {
            return Err(FormatError::Truncated {
                what: Self::WHAT,
                need: Self::REQUIRED * 8,
                have: words.len() * 8,
            });
        }
        Ok(Self::take(&mut words.iter().copied().chain(std::iter::repeat(0))))
    }

    /// All fields zero.
    fn zeroed() -> Self {
        Self::take(&mut std::iter::repeat(0))
    }

    /// All words, with zero padding.
    fn to_words(&self) -> Vec<u64> {
        let mut words = Vec::with_capacity(Self::COUNT);
        self.put(&mut words);
        assert_eq!(words.len(), Self::COUNT, "{} has another size on disk", Self::WHAT);
        words
    }

    /// Decodes the start of `data`.
    fn decode(data: &[u8], endian: Endian) -> Result<Self> {
        let words = data.as_chunks::<8>().0;
        if words.len() < Self::REQUIRED {
            return Err(FormatError::Truncated {
                what: Self::WHAT,
                need: Self::REQUIRED * 8,
                have: data.len(),
            });
        }
        Ok(Self::take(&mut words.iter().map(|w| endian.u64(*w)).chain(std::iter::repeat(0))))
    }

    /// Encodes all words.
    fn encode(&self, endian: Endian) -> Vec<u8> {
        let mut w = Writer::new(endian);
        w.words(&self.to_words());
        w.finish()
    }
}

impl Words for u64 {
    const COUNT: usize = 1;

    fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
        source.next().unwrap_or_default()
    }

    fn put(&self, sink: &mut Vec<u64>) {
        sink.push(*self);
    }
}

impl Words for i64 {
    const COUNT: usize = 1;

    fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
        u64::take(source).cast_signed()
    }

    fn put(&self, sink: &mut Vec<u64>) {
        sink.push(self.cast_unsigned());
    }
}

macro_rules! unit_words {
    ($($unit:ident),*) => {
        $(impl Words for $unit {
            const COUNT: usize = 1;

            fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
                $unit(u64::take(source))
            }

            fn put(&self, sink: &mut Vec<u64>) {
                sink.push(self.0);
            }
        })*
    };
}

unit_words!(Txg, PhysicalBirth, ObjectId, DatasetId, VdevId, Guid, BlockId);

impl<T: Words, const N: usize> Words for [T; N] {
    const COUNT: usize = N * T::COUNT;

    fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
        std::array::from_fn(|_| T::take(source))
    }

    fn put(&self, sink: &mut Vec<u64>) {
        for item in self {
            item.put(sink);
        }
    }
}

impl Words for Blkptr {
    const COUNT: usize = 16;

    fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
        Blkptr::from_words(Words::take(source))
    }

    fn put(&self, sink: &mut Vec<u64>) {
        sink.extend_from_slice(self.words());
    }
}

impl Words for Dva {
    const COUNT: usize = 2;

    fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
        Dva::from_words(Words::take(source))
    }

    fn put(&self, sink: &mut Vec<u64>) {
        sink.extend(self.to_words());
    }
}

/// Byte offset of a field, for compile-time layout assertions.
///
/// # Panics
/// At compile time, if the field does not exist.
pub(crate) const fn offset_of<T: Phys>(field: &str) -> usize {
    let (mut index, mut words) = (0, 0);
    while index < T::FIELDS.len() {
        if is_same(T::FIELDS[index].0.as_bytes(), field.as_bytes()) {
            return words * 8;
        }
        words += T::FIELDS[index].1;
        index += 1;
    }
    panic!("the structure has no such field")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

/// `N` words of padding: dropped on read, zero on write.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Pad<const N: usize>;

impl<const N: usize> Words for Pad<N> {
    const COUNT: usize = N;

    fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
        for _ in 0..N {
            source.next();
        }
        Pad
    }

    fn put(&self, sink: &mut Vec<u64>) {
        sink.extend([0; N]);
    }
}

/// Defines a struct with fields in on-disk order, and its conversions.
///
/// `bytes` is the size on disk, checked by the compiler. `required` is the number of words of the oldest
/// form, or `all`.
macro_rules! word_struct {
    ($(#[$doc:meta])* pub struct $name:ident($what:literal, bytes: $bytes:literal, required: $required:tt) {
        $($(#[$field_doc:meta])* pub $field:ident: $ty:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $crate::words::Words for $name {
            const COUNT: usize = 0 $(+ <$ty as $crate::words::Words>::COUNT)*;

            fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
                $name { $($field: <$ty as $crate::words::Words>::take(source)),* }
            }

            fn put(&self, sink: &mut Vec<u64>) {
                $($crate::words::Words::put(&self.$field, sink);)*
            }
        }

        impl $crate::words::Phys for $name {
            const WHAT: &'static str = $what;
            const REQUIRED: usize = $crate::words::word_struct!(@required $name $required);
            const FIELDS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), <$ty as $crate::words::Words>::COUNT)),*];
        }

        const _: () = {
            let words = <$name as $crate::words::Words>::COUNT;
            assert!(words * 8 == $bytes, "the fields don't add up to the size on disk");
            assert!(<$name as $crate::words::Phys>::REQUIRED <= words, "more words required than there are");
        };
    };
    (@required $name:ident all) => { <$name as $crate::words::Words>::COUNT };
    (@required $name:ident $count:literal) => { $count };
}
pub(crate) use word_struct;

/// Tests a word structure on random words.
#[cfg(test)]
pub(crate) fn check_phys<T: Phys + PartialEq + std::fmt::Debug>() {
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    assert!(T::FIELDS.is_empty() || T::FIELDS.iter().map(|(_, words)| words).sum::<usize>() == T::COUNT);
    let mut runner = TestRunner::default();
    let words = proptest::collection::vec(any::<u64>(), 0..T::COUNT + 2);
    runner
        .run(&words, |words| {
            let Ok(value) = T::from_words(&words) else {
                prop_assert!(words.len() < T::REQUIRED);
                return Ok(());
            };
            prop_assert!(words.len() >= T::REQUIRED);
            prop_assert_eq!(&T::from_words(&value.to_words()).unwrap(), &value);
            for endian in [Endian::Little, Endian::Big] {
                prop_assert_eq!(&T::decode(&value.encode(endian), endian).unwrap(), &value);
                prop_assert_eq!(value.encode(endian).len(), T::COUNT * 8);
            }
            Ok(())
        })
        .unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    word_struct! {
        /// Structure that grew by one word.
        pub struct Grown("grown", bytes: 32, required: 2) {
            /// First.
            pub a: u64,
            /// Hole.
            pub pad: Pad<1>,
            /// Signed.
            pub b: [i64; 2],
        }
    }

    #[test]
    fn an_old_short_form_reads_as_zeros() {
        check_phys::<Grown>();
        let old = Grown::from_words(&[5, 9]).unwrap();
        assert_eq!(old.to_words(), [5, 0, 0, 0]);
        assert_eq!(Grown::from_words(&[1, 2, u64::MAX]).unwrap().b, [-1, 0]);
    }
}

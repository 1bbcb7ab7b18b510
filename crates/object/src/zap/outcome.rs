//! What a change of a ZAP asks for, and what became of it.

/// What a name may be that is given a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// New.
    Add,
    /// Any.
    Update,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Done, and the leaf of this hash has become empty.
    Emptied(u64),
    Exists,
    Absent,
    /// No ZAP takes it, and why.
    Refused(&'static str),
}

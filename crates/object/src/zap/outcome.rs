//! Requests and outcomes of ZAP changes.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// The name must be new.
    Add,
    Update,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Done; the leaf of this hash is empty now.
    Emptied(u64),
    Exists,
    Absent,
    /// No ZAP holds it; the reason.
    Refused(&'static str),
}

//! The names of received snapshots.
//!
//! ```text
//!   sent tank/a/b@s      receive pool/x        pool/x@s       of a package of tank/a: pool/x/b@s
//!                        receive pool/x@t      pool/x@t
//!                        receive -d pool/x     pool/x/a/b@s
//!                        receive -e pool/x     pool/x/b@s
//! ```
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`zfs_receive_one`, `chopprefix`).

use cenote_dataset::name::{check, split_at};

use crate::error::StreamError;
use crate::receive::Order;
use crate::receive::error::{RECEIVE, ReceiveError, Result};

/// The rule that forms a name from the destination and the stream's name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Placing {
    /// The destination replaces the sent name.
    #[default]
    Exact,
    /// The sent name without its pool follows the destination (`-d`).
    WithoutPool,
    /// The last part of the sent name, and datasets below it, follow the destination (`-e`).
    LastPart,
}

/// A snapshot's name at the sender.
pub(super) struct Sent {
    pub(super) dataset: String,
    pub(super) snapshot: String,
}

/// A snapshot's name here.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) dataset: String,
    pub(super) snapshot: String,
}

impl Place {
    pub(super) fn full(&self) -> String {
        format!("{}@{}", self.dataset, self.snapshot)
    }
}

pub(super) fn split(to_name: &[u8]) -> Result<Sent> {
    let bad = || ReceiveError::of_stream(StreamError::Name);
    let name = std::str::from_utf8(to_name).map_err(|_| bad())?;
    let (dataset, snapshot) = name.split_once('@').ok_or_else(bad)?;
    if dataset.is_empty() || snapshot.contains('@') {
        return Err(bad());
    }
    Ok(Sent { dataset: dataset.into(), snapshot: snapshot.into() })
}

/// The name for a snapshot; `top` is the topmost dataset sent.
pub(super) fn place(order: &Order, sent: &Sent, top: &str) -> Result<Place> {
    let destination = &order.destination;
    let (to, named) = match destination.split_once('@') {
        Some((to, snapshot)) => (to, Some(snapshot)),
        None => (destination.as_str(), None),
    };
    let below = match order.placing {
        Placing::Exact => sent.dataset.strip_prefix(top).ok_or(StreamError::Name),
        Placing::WithoutPool => Ok(sent.dataset.find('/').map_or("", |at| &sent.dataset[at..])),
        Placing::LastPart => {
            let kept = top.rfind('/').map_or(0, |at| at + 1);
            sent.dataset.get(kept..).ok_or(StreamError::Name)
        }
    };
    let below = below.map_err(ReceiveError::of_stream)?;
    if named.is_some() && order.placing != Placing::Exact {
        let letter = if order.placing == Placing::LastPart { 'e' } else { 'd' };
        let why = format!("invalid argument - snapshot not allowed with -{letter}");
        return Err(ReceiveError::refused(RECEIVE, why));
    }
    let dataset = match (named, below.strip_prefix('/').unwrap_or(below)) {
        (Some(_), _) | (None, "") => to.to_owned(),
        (None, below) => format!("{to}/{below}"),
    };
    let place = Place { dataset, snapshot: named.unwrap_or(&sent.snapshot).to_owned() };
    check(&place.dataset, None).and_then(|()| split_at(&place.full(), '@').map(|_| ()))?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(destination: &str, placing: Placing, sent: &str, top: &str) -> Option<String> {
        let order = Order { destination: destination.into(), placing, ..Order::default() };
        let sent = split(sent.as_bytes()).ok()?;
        place(&order, &sent, top).ok().map(|place| place.full())
    }

    #[test]
    fn names_follow_from_the_destination_and_the_stream() {
        let cases = [
            ("p/x", Placing::Exact, "t/a/b@s", "t/a/b", Some("p/x@s")),
            ("p/x", Placing::Exact, "t/a/b@s", "t/a", Some("p/x/b@s")),
            ("p/x@n", Placing::Exact, "t/a/b@s", "t/a/b", Some("p/x@n")),
            ("p/x", Placing::WithoutPool, "t/a/b@s", "t/a", Some("p/x/a/b@s")),
            ("p/x", Placing::WithoutPool, "t@s", "t", Some("p/x@s")),
            ("p/x", Placing::LastPart, "t/a/b@s", "t/a", Some("p/x/a/b@s")),
            ("p/x", Placing::LastPart, "t@s", "t", Some("p/x/t@s")),
            ("p/x@n", Placing::LastPart, "t@s", "t", None),
            ("p/x", Placing::Exact, "u/a@s", "t/a", None),
            ("p/x", Placing::Exact, "t/a@%s", "t/a", None),
            ("p/x", Placing::Exact, "t/a", "t/a", None),
        ];
        for (destination, placing, sent, top, wanted) in cases {
            let found = placed(destination, placing, sent, top);
            assert_eq!(found.as_deref(), wanted, "{destination} {placing:?} {sent}");
        }
    }
}

//! Calls of a program's thread to the task that answers them.
//!
//! Locking: one call at a time. The thread sleeps until the reply; it gets none if the task has ended.

use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A call of a function of `zfs`.
#[derive(Debug)]
pub(crate) enum Call {
    /// `zfs.debug`.
    Debug(String),
    /// `zfs.exists`.
    Exists(String),
    /// `zfs.get_prop`.
    Property { dataset: String, property: String },
    /// `zfs.list.*`.
    List(Listing, String),
    /// `zfs.sync.*`, or `zfs.check.*` if not made.
    Change { change: Change, is_made: bool },
}

/// Kinds of lists of `zfs.list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    Children,
    Snapshots,
    Clones,
    Bookmarks,
    Holds,
    UserProperties,
    SystemProperties,
}

/// A change, as the program orders it.
#[derive(Debug)]
pub(crate) enum Change {
    Snapshot(String),
    Destroy { name: String, defer: Option<bool> },
    Promote(String),
    Rollback(String),
    Clone(String, String),
    RenameSnapshot { dataset: String, old: String, new: String },
    Bookmark(String, String),
    SetProp { dataset: String, property: String, value: String },
    Inherit { dataset: String, property: String },
}

/// A value given to the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Given {
    Nil,
    Boolean(bool),
    Number(i64),
    Text(String),
    /// An array.
    Names(Vec<String>),
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Return values.
    Values(Vec<Given>),
    /// Rows of an iterator.
    Rows(Vec<Vec<Given>>),
}

/// An error that the call raises in Lua.
#[derive(Debug)]
pub(crate) enum Raised {
    /// The first argument is wrong.
    Argument(String),
    /// Any other.
    Error(String),
}

impl Reply {
    /// An error number.
    pub(crate) fn errno(number: i32) -> Reply {
        Reply::Values(vec![Given::Number(number.into())])
    }
}

type Replied = Result<Reply, Raised>;

/// A call that waits for its reply.
pub(crate) struct Waiting {
    what: Call,
    reply: SyncSender<Replied>,
}

impl Waiting {
    pub(crate) fn what(&self) -> &Call {
        &self.what
    }

    /// Lets the program go on.
    pub(crate) fn reply(self, reply: Replied) {
        // A program stopped by its limits no longer waits.
        drop(self.reply.send(reply));
    }
}

/// The program's end of the channel.
pub(crate) struct Port(UnboundedSender<Waiting>);

/// The task's end.
pub(crate) struct Calls(UnboundedReceiver<Waiting>);

pub(crate) fn channel() -> (Port, Calls) {
    let (sender, receiver) = unbounded_channel();
    (Port(sender), Calls(receiver))
}

impl Port {
    /// Asks the task and waits.
    pub(crate) fn ask(&self, what: Call) -> Replied {
        let gone = || Raised::Error("the program's txg has ended".into());
        let (reply, answered) = sync_channel(1);
        self.0.send(Waiting { what, reply }).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

impl Calls {
    /// The next call; `None`: the program has ended.
    pub(crate) async fn next(&mut self) -> Option<Waiting> {
        self.0.recv().await
    }
}

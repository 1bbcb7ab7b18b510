//! Runs verbs requested through the socket, or by a part of the daemon, on the daemon's pools.
//!
//! Idea: this module knows no verb; the table does (`cenote_control::table`). The daemon opens no path named
//! by a client: the client reads keys and opens files with its own rights.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use cenote_control::parts::Taker;
use cenote_control::remote::{Asking, Failure};
use cenote_control::session::GivenKeys;
use cenote_control::{Caller, ControlError, Options, Rights, Session, table};
use cenote_host::own::is_trusted;
use cenote_host::pools::Pools;
use cenote_runtime::Runtime;

use crate::socket::console::ClientConsole;
use crate::socket::{Asked, Replies, Serving};

/// Runs verbs on a daemon's pools.
pub struct Verbs {
    /// Time, tasks and randomness of the pools.
    pub runtime: Runtime,
    /// The pools.
    pub pools: Arc<Pools>,
}

impl Serving for Verbs {
    fn carry_out(&self, asking: Asking, asked: Asked, replies: Replies) -> u8 {
        let replies = Arc::new(replies);
        let Asked { here, peer, streams, files, cancel } = asked;
        let rights = if is_trusted(peer.who.uid) { Rights::All } else { Rights::Delegated };
        let console = Arc::new(ClientConsole::new(&replies, streams, here.has_screen));
        let cwd = Path::new(OsStr::from_bytes(&here.cwd)).to_owned();
        let caller = Caller::client(peer.who, rights, console.clone(), cwd, here.env, cancel);
        let gives = {
            let replies = replies.clone();
            Taker::of_json(move |json| replies.part(&json).map_err(ControlError::io("the answer")))
        };
        let caller = caller.taking(gives).bringing(files);
        let Asking { verb, request, keys, command } = asking;
        let unknown =
            || ControlError::Usage(format!("this daemon has no verb '{verb}'; it is of another version"));
        let done = table::row(&verb).ok_or_else(unknown).and_then(|verb| {
            let options = Options::in_daemon(keys, command, verb.sees_all);
            let session = Session::in_daemon(&self.runtime, caller, options, &self.pools);
            self.runtime.block_on(verb.run(&session, request.get().as_bytes()))
        });
        console.end();
        match done {
            Ok((answer, outcome)) => {
                replies.answer(&answer);
                outcome.status()
            }
            Err(error) => {
                replies.fail(&Failure::from(&error));
                error.outcome().status()
            }
        }
    }

    fn session(&self, caller: Caller, command: String, sees_all: bool) -> Session {
        let options = Options::in_daemon(GivenKeys::default(), command, sees_all);
        Session::in_daemon(&self.runtime, caller, options, &self.pools)
    }
}

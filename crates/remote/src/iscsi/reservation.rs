//! The persistent reservation that keeps other machines from writing.
//!
//! ```text
//!   no other key is registered                           register, reserve
//!   keys of processes of this machine that have ended    preempted
//!   other keys                                           refused; preempted if wanted, commands aborted
//! ```
//!
//! Idea: the target lets only registrants write ("write exclusive, registrants only"). Preempting a key takes
//! its registration away; from then on the target refuses what its machine sends, and what it had sent is
//! aborted before the answer. So one command fences.
//!
//! All other keys must go, also ones without the reservation: registrants could write.
//!
//! A target that forgets registrations when it restarts (no PTPL) can't fence: the old machine could register
//! again. Its disks have no lock; multihost protection watches them.
//!
//! Source: SPC-4, section 5.13.

use std::time::Duration;

use super::answers::{self, Outcome, Verdict};
use super::commands::Command;
use super::nexus::Nexus;
use super::owner::Owner;
use crate::error::ServerError;

/// Another machine may be faster several times.
const TRIES: usize = 8;
const PAUSE: Duration = Duration::from_millis(50);
/// The only type that this program reserves with.
const REGISTRANTS_WRITE: u8 = 5;
/// Types that all registrants hold together: preempted by the key 0.
const OF_ALL: [u8; 2] = [7, 8];

type Result<T> = std::result::Result<T, ServerError>;

/// The keys of a disk.
struct Keys {
    registered: Vec<u64>,
    /// The holder's key, and the type.
    held: Option<(u64, u8)>,
}

impl Keys {
    /// `None`: the target has no persistent reservations.
    async fn read(nexus: &Nexus) -> Result<Option<Keys>> {
        let registered = nexus.settled(Command::read_keys()).await?;
        let held = nexus.settled(Command::read_reservation()).await?;
        Ok(match (registered.verdict(), held.verdict()) {
            (Verdict::Done, Verdict::Done) => {
                let (registered, held) = (answers::keys(&registered.data), answers::reservation(&held.data));
                Some(Keys { registered, held })
            }
            (Verdict::Illegal(_), _) | (_, Verdict::Illegal(_)) => None,
            _ => return Err(reserved_as_of_old()),
        })
    }
}

/// SPC-2's RESERVE excludes even looks.
fn reserved_as_of_old() -> ServerError {
    ServerError::Locked { holder: "another initiator, with a reservation that can't be preempted".into() }
}

/// Whether the target can fence.
pub(super) async fn is_offered(nexus: &Nexus) -> Result<bool> {
    let outcome = nexus.settled(Command::report_capabilities()).await?;
    Ok(matches!(outcome.verdict(), Verdict::Done) && answers::can_hold(&outcome.data))
}

/// Takes the disk. Returns `false` if the target can't fence.
///
/// # Errors
/// [`ServerError::Locked`]: another machine has it.
pub(super) async fn take(nexus: &Nexus, owner: Owner, takes_over: bool) -> Result<bool> {
    let key = owner.key();
    if !is_offered(nexus).await? {
        return Ok(false);
    }
    let Some(keys) = Keys::read(nexus).await? else { return Ok(false) };
    // A look first: a registrant could write.
    check_free(&keys, owner, takes_over)?;
    match nexus.settled(Command::register(key)).await?.verdict() {
        Verdict::Done => {}
        Verdict::Illegal(_) => return Ok(false),
        Verdict::Conflict => return Err(reserved_as_of_old()),
        other => return Err(refused(other)),
    }
    let taken = reserve(nexus, owner, takes_over).await;
    if taken.is_err() {
        nexus.settled(Command::unregister(key)).await.ok();
    }
    taken.map(|()| true)
}

fn check_free(keys: &Keys, owner: Owner, takes_over: bool) -> Result<()> {
    let is_in_the_way = |key: &&u64| **key != owner.key() && !takes_over && !owner.knows_as_ended(**key);
    match keys.registered.iter().find(is_in_the_way) {
        Some(key) => Err(ServerError::Locked { holder: owner.describe(*key) }),
        None => Ok(()),
    }
}

async fn reserve(nexus: &Nexus, owner: Owner, takes_over: bool) -> Result<()> {
    let key = owner.key();
    for _ in 0..TRIES {
        let Some(keys) = Keys::read(nexus).await? else { return Err(lost()) };
        if !keys.registered.contains(&key) {
            return Err(lost());
        }
        check_free(&keys, owner, takes_over)?;
        let mut others: Vec<u64> = keys.registered.iter().copied().filter(|other| *other != key).collect();
        others.sort_unstable();
        others.dedup();
        let is_of_all = keys.held.is_some_and(|(_, kind)| OF_ALL.contains(&kind));
        if is_of_all {
            others = vec![0];
        }
        let outcomes = match keys.held {
            Some((holder, REGISTRANTS_WRITE)) if others.is_empty() && holder == key => return Ok(()),
            // Another type under our key, from another program.
            Some((holder, _)) if others.is_empty() && holder == key => {
                vec![nexus.settled(Command::preempt(key, key)).await?]
            }
            _ if others.is_empty() => vec![nexus.settled(Command::reserve(key)).await?],
            _ => {
                let mut outcomes = Vec::new();
                for other in others {
                    outcomes.push(nexus.settled(Command::preempt(key, other)).await?);
                }
                outcomes
            }
        };
        for outcome in outcomes {
            match outcome.verdict() {
                // A conflict: another machine was faster, or the key is gone already.
                Verdict::Done | Verdict::Conflict => {}
                other => return Err(refused(other)),
            }
        }
        nexus.pause(PAUSE).await;
    }
    Err(ServerError::Locked { holder: "machines that take it at the same time".into() })
}

fn lost() -> ServerError {
    ServerError::Locked { holder: "another machine, which has just taken it".into() }
}

fn refused(verdict: Verdict) -> ServerError {
    let why = match verdict {
        Verdict::Illegal(error) | Verdict::Failed(error) => error.to_string(),
        _ => "it is not ready".into(),
    };
    ServerError::Reservation { why }
}

/// Whether the disk is still ours. The target tells other registrants' commands apart, so it is enough that
/// ours is registered, and that the reservation exists.
pub(super) async fn is_ours(nexus: &Nexus, owner: Owner) -> Result<bool> {
    let keys = Keys::read(nexus).await?;
    Ok(keys.is_some_and(|keys| {
        keys.registered.contains(&owner.key()) && keys.held.is_some_and(|(_, kind)| kind == REGISTRANTS_WRITE)
    }))
}

/// Gives the disk back.
pub(super) async fn release(nexus: &Nexus, owner: Owner) -> Result<Outcome> {
    nexus.settled(Command::unregister(owner.key())).await
}

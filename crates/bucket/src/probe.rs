//! Checks that a store's conditional requests can be relied on, before anything depends on them.
//!
//! Idea: the fence rests on one promise: of several creates of one name, one succeeds. Some stores ignore the
//! condition, and some check it and write later, so that two simultaneous ones succeed. So requests *race*:
//! of each round's, one must win. Conditional replacement is raced, too, although unused: a store that fails
//! there checks and writes separately, and luck alone decides about creates.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_runtime::Runtime;
use futures::future::join_all;

use crate::patient::{Patience, Patient};
use crate::store::{Created, Store, StoreError};

/// Requests of a round.
const RACERS: usize = 8;
/// Rounds for a new disk, and at each takeover.
pub(crate) const ROUNDS: usize = 160;
pub(crate) const ROUNDS_AGAIN: usize = 2;
/// Rounds at once.
const AT_ONCE: usize = 4;
/// Times that a round without an answer is repeated.
const TRIES: usize = 20;
/// Before the second try of a round; longer before later ones.
const PAUSE: Duration = Duration::from_millis(50);

/// Checks a store for registers, which other machines replace.
///
/// # Errors
/// As `probe`, or the store does not answer.
pub async fn probe_store(store: Arc<dyn Store>, runtime: &Runtime) -> Result<(), StoreError> {
    probe(&Arc::new(Patient::new(store, Patience::USUAL, Arc::default(), runtime)), ROUNDS).await
}

/// # Errors
/// The store carries out conditional requests whose condition does not hold.
pub(crate) async fn probe(store: &Arc<Patient>, rounds: usize) -> Result<(), StoreError> {
    let shared = store.clone();
    let step = move |_| patient_round(shared.clone());
    store.runtime.for_each_bounded(AT_ONCE, 0..rounds, step).await
}

async fn patient_round(store: Arc<Patient>) -> Result<(), StoreError> {
    let mut tries = 0;
    while let Err(error) = round(&store).await {
        tries += 1;
        if !error.is_passing() || tries == TRIES {
            return Err(error);
        }
        store.runtime.sleep(PAUSE * tries as u32).await;
    }
    Ok(())
}

async fn round(store: &Arc<Patient>) -> Result<(), StoreError> {
    let key = format!("probe/{:016x}", store.runtime.random_u64());
    let judged = judge(store, &key).await;
    // One that remains does no harm.
    drop(store.delete(&key).await);
    judged
}

async fn judge(store: &Arc<Patient>, key: &str) -> Result<(), StoreError> {
    // Large enough for a store that checks first to be caught while it receives.
    let body = |racer: usize| vec![Bytes::from(vec![racer as u8; 4096])];
    let created = join_all((0..RACERS).map(|racer| store.once(store.store().create(key, body(racer))))).await;
    let tag = the_winner(created, "create")?;
    let replaced =
        (0..RACERS).map(|racer| store.once(store.store().replace(key, &tag, body(RACERS + racer))));
    the_winner(join_all(replaced).await, "replacement")?;
    // The tag is an old one now.
    match store.once(store.store().replace(key, &tag, body(0))).await {
        Ok(Created::New { .. }) => Err(lies("replacement")),
        Err(error) if !error.is_passing() => Err(error),
        Ok(Created::Refused) | Err(_) => Ok(()),
    }
}

/// The tag of the only success.
fn the_winner(answers: Vec<Result<Created, StoreError>>, kind: &str) -> Result<String, StoreError> {
    let mut winners = Vec::new();
    let mut failed = None;
    for answer in answers {
        match answer {
            Ok(Created::New { tag }) => winners.push(tag),
            Ok(Created::Refused) => {}
            Err(error) => failed = Some(error),
        }
    }
    match (winners.len(), failed) {
        (2.., _) => Err(lies(kind)),
        // A second winner whose answer was lost shows in another round.
        (1, _) => Ok(winners.swap_remove(0)),
        (_, Some(error)) => Err(error),
        (_, None) => Err(StoreError::Busy("each refused in favour of another".into())),
    }
}

fn lies(kind: &str) -> StoreError {
    let why = format!(
        "it carries out a conditional {kind} whose condition does not hold, so two machines could damage the \
         disk: use a store with atomic If-None-Match and If-Match"
    );
    StoreError::Refused(why.into())
}

//! Handles of spawned tasks, the same in both back ends.

use crate::Runtime;
use crate::sim::SimTask;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Why a task returned no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// It was aborted, or the runtime shut down.
    #[error("task was cancelled")]
    Cancelled,
    /// It panicked, with this message.
    #[error("task panicked: {0}")]
    Panicked(String),
}

/// A future of a task's value; dropping it detaches the task.
#[must_use = "dropping the handle detaches the task; say `drop(handle)` or `.detach()` if that is meant"]
pub struct JoinHandle<T> {
    inner: Handle<T>,
}

enum Handle<T> {
    Real(tokio::task::JoinHandle<T>),
    Simulated(Runtime, SimTask<T>),
}

impl<T> JoinHandle<T> {
    pub(crate) fn real(handle: tokio::task::JoinHandle<T>) -> JoinHandle<T> {
        JoinHandle { inner: Handle::Real(handle) }
    }

    pub(crate) fn simulated(runtime: Runtime, task: SimTask<T>) -> JoinHandle<T> {
        JoinHandle { inner: Handle::Simulated(runtime, task) }
    }

    /// Stops the task at its next await. The handle then gives [`JoinError::Cancelled`].
    pub fn abort(&self) {
        match &self.inner {
            Handle::Real(handle) => handle.abort(),
            Handle::Simulated(runtime, task) => runtime.abort_simulated(task.id),
        }
    }

    /// Lets the task run on without a handle.
    pub fn detach(self) {}

    /// Makes dropping the handle abort the task.
    pub fn abort_on_drop(self) -> AbortOnDrop<T> {
        AbortOnDrop { handle: self }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.inner {
            Handle::Real(handle) => Pin::new(handle).poll(context).map(|joined| joined.map_err(from_tokio)),
            Handle::Simulated(_, task) => Pin::new(&mut task.outcome)
                .poll(context)
                .map(|sent| sent.unwrap_or(Err(JoinError::Cancelled))),
        }
    }
}

fn from_tokio(error: tokio::task::JoinError) -> JoinError {
    match error.try_into_panic() {
        Ok(panic) => JoinError::Panicked(panic_message(&*panic)),
        Err(_) => JoinError::Cancelled,
    }
}

pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no message)".to_owned())
}

/// A [`JoinHandle`] that aborts its task when dropped.
pub struct AbortOnDrop<T> {
    handle: JoinHandle<T>,
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

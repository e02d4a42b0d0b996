//! Retries of requests that the database does not answer, with backoff.

use std::future::Future;
use std::time::Duration;

use mainspring_shared::id::SendId;
use mainspring_shared::store::Error as StoreError;
use tokio_util::sync::CancellationToken;

use crate::Parts;
use crate::writes::SharedError;

/// The database's answer to a request.
pub(crate) type StoreResult<T> = Result<T, StoreError>;

/// Why something was not written, as far as is known.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// The database was asked once, and refused it.
    Refused(SharedError),
    /// The lease is lost, or the outcome of an earlier attempt is unknown.
    Lost,
}

/// Retries for a send's run, for as long as the lease lasts.
#[derive(Debug, Clone)]
pub(crate) struct DbRetry<'a> {
    parts: &'a Parts,
    lost: CancellationToken,
    send: SendId,
}

impl<'a> DbRetry<'a> {
    /// Retries until the lease is lost.
    pub(crate) fn new(parts: &'a Parts, lost: CancellationToken, send: SendId) -> Self {
        Self { parts, lost, send }
    }

    /// Reads until the database answers. `None` if the error is no outage, or the lease is lost.
    pub(crate) async fn ask<T, F>(self, mut ask: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let mut outage = Outage::default();
        loop {
            match ask().await {
                Ok(answer) => return Some(answer),
                Err(error) => {
                    if !self.outlast(&error.into(), &mut outage).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Writes until the database answers with something other than that the session is locked.
    pub(crate) async fn write<T, F>(
        self,
        mut write: impl FnMut() -> F,
        is_locked: impl Fn(&T) -> bool,
    ) -> Result<T, Unwritten>
    where
        F: Future<Output = Result<T, SharedError>>,
    {
        let mut outage = Outage::default();
        loop {
            match write().await {
                Ok(outcome) if !is_locked(&outcome) => return Ok(outcome),
                Ok(_) => {
                    if !self.pause(&mut outage).await {
                        return Err(Unwritten::Lost);
                    }
                }
                Err(error) => {
                    if !self.outlast(&error, &mut outage).await {
                        return Err(if outage.began {
                            Unwritten::Lost
                        } else {
                            Unwritten::Refused(error)
                        });
                    }
                }
            }
        }
    }

    /// Waits out an outage of the database, for as long as the lease is held. False if the error is
    /// of another kind or the lease is lost.
    async fn outlast(&self, error: &SharedError, outage: &mut Outage) -> bool {
        if !matches!(error.as_ref(), StoreError::Unavailable { .. }) {
            tracing::error!(
                send.id = %self.send,
                %error,
                "a database request failed and is not retried"
            );
            return false;
        }
        self.pause(outage).await
    }

    /// Waits before the next attempt; false if the lease is lost.
    pub(crate) async fn pause(&self, outage: &mut Outage) -> bool {
        outage.pause(self.parts, self.lost.cancelled()).await
    }
}

/// The backoff during an outage: each pause is up to twice as long as the one before. Up to half of
/// it is random, so that clients which wait for the same database do not all retry at once.
#[derive(Debug)]
pub(crate) struct Outage {
    began: bool,
    next: Duration,
    longest: Duration,
}

impl Default for Outage {
    fn default() -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(1))
    }
}

impl Outage {
    /// A backoff that begins with `first` and never exceeds `longest`.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            began: false,
            next: first,
            longest,
        }
    }

    /// Waits; false if `over` comes first, and nothing is to be retried.
    pub(crate) async fn pause(&mut self, parts: &Parts, over: impl Future<Output = ()>) -> bool {
        self.began = true;
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        let jitter = pause.mul_f64(parts.entropy.fraction());
        tokio::select! {
            biased;
            () = over => false,
            () = parts.clock.sleep(pause / 2 + jitter / 2) => true,
        }
    }
}

//! This process's one lease.
//!
//! All sessions that the worker owns depend on one row, which is renewed [`RENEWALS`] times per
//! lease. The process computes the lease's end on its own monotonic clock, counted from before the
//! renewal was sent and with a margin. If that time passes without a renewal, it drops every run
//! and continues under a new boot id.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::model::PublishedModels;
use mainspring_shared::store::{NewBoot, Renewal, Role};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::Published;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Parts;
use crate::db_retry::Outage;

/// The first and the longest pause before the database is asked again for a new boot. Short,
/// because until the old boot is ended, other workers may take its sessions over and count a crash.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_millis(400);

/// How often a lease is renewed in its time. With a lease of four seconds, of which [`usable`]
/// leaves 3.2, a renewal that starts after 0.67 may take 2.5: a database that stalls for two
/// seconds costs no work.
const RENEWALS: u32 = 6;

/// The current boot of this process.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    /// Its id in the database.
    pub(crate) id: BootId,
    /// Cancelled when its lease is lost or in doubt.
    pub(crate) lost: CancellationToken,
    /// When its first lease is in doubt, by this process's monotonic clock. As for every renewal,
    /// the time is counted from before the database was asked.
    fence_at: Duration,
}

/// The keeper of the lease.
#[derive(Debug)]
pub(crate) struct Boot {
    state: Mutex<State>,
    /// Notified of each new boot.
    begun: Notify,
}

#[derive(Debug)]
struct State {
    life: Option<Life>,
    /// The database's clock minus this machine's, in milliseconds.
    clock_offset_ms: i64,
    /// The time from which sessions may be taken over from expired boots; `None` while the database
    /// is down.
    orphans_from: Option<Duration>,
}

impl Boot {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                life: None,
                clock_offset_ms: 0,
                orphans_from: Some(Duration::ZERO),
            }),
            begun: Notify::new(),
        }
    }

    /// The boot under which sessions can be claimed; `None` between two boots.
    pub(crate) fn current(&self) -> Option<Life> {
        self.lock().life.clone()
    }

    /// The current boot, or else the next one.
    pub(crate) async fn life(&self) -> Life {
        loop {
            // Created before the check, so that it is notified of a boot that begins after it.
            let begun = self.begun.notified();
            if let Some(life) = self.current() {
                return life;
            }
            begun.await;
        }
    }

    /// The database's time, as of the last renewal's comparison.
    pub(crate) fn database_time(&self, parts: &Parts) -> Timestamp {
        Timestamp(parts.clock.now().0 + self.lock().clock_offset_ms)
    }

    fn lives(&self, life: Life) {
        self.lock().life = Some(life);
        self.begun.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between two statements under this lock can panic, so it is never half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the first boot. Fails if the database does.
    pub(crate) async fn begin(&self, parts: &Parts) -> mainspring_shared::store::Result<()> {
        let life = loop {
            if let Some(life) = register(parts).await? {
                break life;
            }
        };
        if let Ok(now) = parts.store.now().await {
            self.lock().clock_offset_ms = now.0 - parts.clock.now().0;
        }
        self.lives(life);
        Ok(())
    }

    /// Keeps the lease until `done` resolves, then ends it. `signalled` receives raised signals;
    /// `in_flight` returns how many sends are running.
    pub(crate) async fn keep(
        &self,
        parts: &Parts,
        done: CancellationToken,
        signalled: impl Fn(Vec<(SessionKey, i32)>),
        in_flight: impl Fn() -> u32,
    ) {
        let ttl = parts.config.lease_ttl;
        let Some(Life { mut fence_at, .. }) = self.current() else {
            return;
        };
        let mut failing = false;
        loop {
            let pause = if failing {
                ttl / 20
            } else {
                // Counted from when the last lease was requested, however late its answer came.
                let due = fence_at.saturating_sub(usable(ttl)) + ttl / RENEWALS;
                due.saturating_sub(parts.clock.monotonic())
            };
            let in_time = tokio::select! {
                biased;
                () = done.cancelled() => break,
                () = passed(parts, fence_at) => false,
                () = parts.clock.sleep(pause) => true,
            };
            let Some(life) = self.current() else { break };
            let sent_at = parts.clock.monotonic();
            let renewal = async {
                if !in_time {
                    return None;
                }
                let renewal = parts.store.renew_boot(life.id, ttl, in_flight());
                tokio::select! {
                    biased;
                    () = passed(parts, fence_at) => None,
                    answer = renewal => Some(answer),
                }
            };
            match renewal.await {
                Some(Ok(Renewal::Renewed { at, signals })) => {
                    self.lock().clock_offset_ms = at.0 - parts.clock.now().0;
                    if std::mem::take(&mut failing) {
                        tracing::info!(boot.id = %life.id, "lease renewed again");
                        self.settles(parts);
                    }
                    fence_at = sent_at + usable(ttl);
                    signalled(signals);
                    continue;
                }
                Some(Ok(Renewal::Dead)) => {
                    tracing::warn!(boot.id = %life.id, "declared dead; dropping every run");
                }
                Some(Err(error)) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(
                            boot.id = %life.id,
                            %error,
                            "could not renew the lease; will retry"
                        );
                    }
                    self.lock().orphans_from = None;
                    if parts.clock.monotonic() < fence_at {
                        continue;
                    }
                    tracing::warn!(
                        boot.id = %life.id,
                        "lease not renewed in time; dropping every run"
                    );
                }
                None => {
                    tracing::warn!(
                        boot.id = %life.id,
                        "lease not renewed in time; dropping every run"
                    );
                }
            }
            let Some(next) = self.replace(parts, &life, &done).await else {
                break;
            };
            failing = false;
            fence_at = next;
        }
        self.end(parts).await;
    }

    /// Whether sessions may be taken over from expired boots. Not while the database is down or has
    /// just come back: the owners may be alive and about to release what they dropped, which counts
    /// no crash.
    pub(crate) fn takes_orphans(&self, parts: &Parts) -> bool {
        let from = self.lock().orphans_from;
        from.is_some_and(|from| from <= parts.clock.monotonic())
    }

    /// The database is back. Boots that lost their lease meanwhile go first.
    fn settles(&self, parts: &Parts) {
        let from = parts.clock.monotonic() + parts.config.lease_ttl / 10;
        self.lock().orphans_from = Some(from);
    }

    /// Drops a boot and begins another, however long the database is down. Returns when the new
    /// lease is in doubt, or `None` if `done` came first.
    async fn replace(
        &self,
        parts: &Parts,
        old: &Life,
        done: &CancellationToken,
    ) -> Option<Duration> {
        {
            let mut state = self.lock();
            state.life = None;
            state.orphans_from = None;
        }
        old.lost.cancel();
        let mut outage = Outage::new(RETRY_MIN, RETRY_MAX);
        let life = loop {
            // What the old boot owned is free as soon as the database learns of its end, and that
            // does not count as a crash.
            let ended = parts.store.stop_boot(old.id).await;
            if ended.is_ok()
                && let Ok(Some(life)) = register(parts).await
            {
                break life;
            }
            if !outage.pause(parts, done.cancelled()).await {
                return None;
            }
        };
        self.settles(parts);
        tracing::info!(boot.id = %life.id, boot.before = %old.id, "continuing under a new boot id");
        let fence_at = life.fence_at;
        self.lives(life);
        Some(fence_at)
    }

    /// Ends the current boot; the sessions that it still owned can be claimed at once.
    async fn end(&self, parts: &Parts) {
        let life = self.lock().life.take();
        if let Some(life) = life {
            life.lost.cancel();
            if let Err(error) = parts.store.stop_boot(life.id).await {
                tracing::warn!(
                    boot.id = %life.id,
                    %error,
                    "could not end this boot; its lease will expire"
                );
            }
        }
    }
}

/// Resolves once the process's time is past `time`. Polls repeatedly, because timers stop while the
/// machine is suspended, but the lease does not.
async fn passed(parts: &Parts, time: Duration) {
    loop {
        let left = time.saturating_sub(parts.clock.monotonic());
        if left.is_zero() {
            return;
        }
        parts
            .clock
            .sleep(left.min(parts.config.lease_ttl / 20))
            .await;
    }
}

/// The part of a lease that the process relies on: it stops by itself a fifth before the end, or
/// two seconds before the end if the lease is longer than ten.
fn usable(ttl: Duration) -> Duration {
    ttl.saturating_sub((ttl / 5).min(Duration::from_secs(2)))
}

/// Registers a boot under a new id: repeating a request under the same id would leave the lease
/// where the first request, whose answer was lost, has put it. `None` if the answer took longer
/// than the lease: others may consider that boot dead, so nothing is claimed under it.
async fn register(parts: &Parts) -> mainspring_shared::store::Result<Option<Life>> {
    let config = &parts.config;
    let id = BootId(parts.entropy.random_id());
    let fence_at = parts.clock.monotonic() + usable(config.lease_ttl);
    let models = PublishedModels {
        vectors: parts.sources.memories.embedder().map(|own| own.name()),
        ..parts.providers.published()
    };
    let boot = NewBoot {
        id,
        role: Role::Worker,
        name: config.name.clone(),
        pool: config.pool.clone(),
        concurrency: config.concurrency,
        ttl: config.lease_ttl,
        protocol: mainspring_shared::store::PROTOCOL,
        tools: Published {
            models: Some(models),
            ..parts.tools.published()
        },
    };
    parts.store.register_boot(boot).await?;
    if parts.clock.monotonic() >= fence_at {
        tracing::warn!(
            boot.id = %id,
            "registration took longer than the lease lasts; registering again"
        );
        return Ok(None);
    }
    Ok(Some(Life {
        id,
        lost: CancellationToken::new(),
        fence_at,
    }))
}

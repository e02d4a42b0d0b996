//! Counts the schedulers that take requests: a tenant's request limits apply to the whole
//! installation, and its schedulers divide them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_scheduler::App;
use mainspring_shared::id::BootId;
use mainspring_shared::store::{BootRecord, Role, alive};

/// How long a count is used. In the second half of that time, one request counts again.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// The schedulers, as last counted.
#[derive(Debug, Default)]
pub(super) struct Fleet(Mutex<Counted>);

#[derive(Debug, Clone, Copy)]
struct Counted {
    schedulers: u32,
    /// When they were counted, on the monotonic clock; none before the first count.
    at: Option<Duration>,
    /// When a count was last started.
    asked: Duration,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            schedulers: 1,
            at: None,
            asked: Duration::ZERO,
        }
    }
}

impl Counted {
    /// Whether the caller has to count again at this time.
    fn is_due(&mut self, now: Duration) -> bool {
        let half = CACHE_TTL / 2;
        let due = self.at.is_none_or(|at| {
            now.saturating_sub(at) >= half && now.saturating_sub(self.asked) >= half
        });
        if due {
            self.asked = now;
        }
        due
    }
}

impl Fleet {
    /// The number of schedulers, including this one. It is only called for tenants with a limit, so
    /// others cause no read. While the database is unavailable, the last count stays valid.
    pub(super) async fn schedulers(&self, app: &App) -> u32 {
        let now = app.clock.monotonic();
        if !self.counted(|counted| counted.is_due(now)) {
            return self.counted(|counted| counted.schedulers);
        }
        match app.store.list_boots().await {
            Ok(boots) => self.counted(|counted| {
                counted.schedulers = count(&boots, app.process.registration.id());
                counted.at = Some(now);
                counted.schedulers
            }),
            Err(error) => {
                tracing::debug!(%error, "could not count the schedulers; using the last count");
                self.counted(|counted| counted.schedulers)
            }
        }
    }

    fn counted<T>(&self, what: impl FnOnce(&mut Counted) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The number of live schedulers among these boots, plus this one if it is not among them.
fn count(boots: &[BootRecord], own: Option<BootId>) -> u32 {
    let alive = alive(boots).filter(|boot| boot.role == Role::Scheduler);
    let is_there = alive.clone().any(|boot| Some(boot.id) == own);
    let others = u32::try_from(alive.count()).unwrap_or(u32::MAX);
    others.saturating_add(u32::from(!is_there))
}

#[cfg(test)]
mod tests {
    use mainspring_shared::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn boot(id: u128, role: Role, dead_at: Option<Timestamp>) -> BootRecord {
        BootRecord {
            id: BootId(Uuid::from_u128(id)),
            role,
            name: String::new(),
            pool: String::new(),
            concurrency: 0,
            in_flight: 0,
            started_at: Timestamp(0),
            lease_until: Timestamp(0),
            ttl: Duration::ZERO,
            protocol: 0,
            dead_at,
        }
    }

    #[test]
    fn schedulers_that_are_alive_count_and_this_one_always_does() {
        let boots = [
            boot(1, Role::Scheduler, None),
            boot(2, Role::Scheduler, None),
            boot(3, Role::Scheduler, Some(Timestamp(1))),
            boot(4, Role::Worker, None),
        ];
        assert_eq!(count(&boots, Some(boots[0].id)), 2);
        assert_eq!(count(&boots, Some(boots[2].id)), 3, "declared dead");
        assert_eq!(count(&boots, None), 3, "not registered yet");
        assert_eq!(count(&[], None), 1);
    }

    #[test]
    fn a_count_is_renewed_by_one_request_in_the_second_half_of_its_time() {
        let ms = Duration::from_millis;
        let mut counted = Counted::default();
        assert!(counted.is_due(ms(0)));
        assert!(counted.is_due(ms(1)), "nobody has counted yet");
        counted.at = Some(ms(1));
        assert!(!counted.is_due(ms(2_000)));
        assert!(counted.is_due(ms(2_600)));
        assert!(!counted.is_due(ms(2_700)), "somebody counts");
        assert!(counted.is_due(ms(5_200)), "that one has failed");
    }
}

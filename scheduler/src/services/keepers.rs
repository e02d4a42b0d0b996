//! Which worker keeps which session's window, as far as this process has heard. These are hints for
//! accepts.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use mainspring_shared::bus::StepNotice;
use mainspring_shared::dispatch::is_direct;
use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::store::{AcceptSend, Target};

/// How long a hint is used. Workers keep windows for longer if they have room.
const USED_FOR: Duration = Duration::from_mins(5);

/// Maximum number of hints, which take some ten megabytes.
const HINTS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();

/// The worker that keeps each session, according to the latest news of it.
#[derive(Debug)]
pub struct Keepers(Mutex<LruCache<SessionKey, Hint>>);

#[derive(Debug, Clone, Copy)]
struct Hint {
    keeper: BootId,
    until: Duration,
}

impl Default for Keepers {
    fn default() -> Self {
        // Unbounded, because a bounded cache allocates its capacity up front.
        Self(Mutex::new(LruCache::unbounded()))
    }
}

impl Keepers {
    /// Records the keeper that a step names, at this monotonic time.
    pub fn hear(&self, step: &StepNotice, now: Duration) {
        let Some(keeper) = step.keeper else {
            return;
        };
        let until = now + USED_FOR;
        let mut hints = self.lock();
        hints.put(step.key, Hint { keeper, until });
        if hints.len() > HINTS_MAX.get() {
            hints.pop_lru();
        }
    }

    /// Sets the keeper of each send that may be granted to one. Each hint is used once: the
    /// session's next end brings the next hint.
    pub fn name(&self, mut items: Vec<AcceptSend>, now: Duration) -> Vec<AcceptSend> {
        let mut hints = self.lock();
        if hints.is_empty() {
            return items;
        }
        for item in &mut items {
            if let Target::Existing(key) = item.target
                && let Some(hint) = hints.pop(&key)
                && hint.until > now
                && is_direct(item)
            {
                item.keeper = Some(hint.keeper);
            }
        }
        items
    }

    /// Forgets a worker that does not listen.
    pub fn forget(&self, keeper: BootId) {
        let mut hints = self.lock();
        let of = hints.iter().filter(|(_, hint)| hint.keeper == keeper);
        let of: Vec<SessionKey> = of.map(|(key, _)| *key).collect();
        for key in of {
            hints.pop(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<SessionKey, Hint>> {
        // No statement under this lock can panic between two changes, so the value is always
        // consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::agent::SendOptions;
    use mainspring_shared::id::{SendId, SessionId, TenantId};
    use mainspring_shared::message::ContentPart;
    use uuid::Uuid;

    use super::*;

    fn key(n: u128) -> SessionKey {
        SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(n)),
        }
    }

    fn boot(n: u128) -> BootId {
        BootId(Uuid::from_u128(n))
    }

    fn ended(session: u128, keeper: Option<u128>) -> StepNotice {
        StepNotice {
            keeper: keeper.map(boot),
            ..StepNotice::new(key(session), SendId(Uuid::nil()), 1, true)
        }
    }

    fn send(session: u128, input: &str) -> AcceptSend {
        AcceptSend {
            id: SendId(Uuid::nil()),
            target: Target::Existing(key(session)),
            input: vec![ContentPart::text(input)],
            options: SendOptions::default(),
            reports_to: None,
            run: None,
            idempotency: None,
            queued_max: 10,
            keeper: None,
        }
    }

    /// The keepers that these sends name at `second`.
    fn named(keepers: &Keepers, items: Vec<AcceptSend>, second: u64) -> Vec<Option<BootId>> {
        let items = keepers.name(items, Duration::from_secs(second));
        items.iter().map(|item| item.keeper).collect()
    }

    #[test]
    fn a_hint_is_the_latest_one_and_is_used_once() {
        let keepers = Keepers::default();
        let at = Duration::from_secs(10);
        keepers.hear(&ended(1, Some(7)), at);
        keepers.hear(&ended(1, Some(8)), at);
        keepers.hear(&ended(1, None), at);
        let items = vec![send(1, "a"), send(1, "b"), send(2, "c")];
        assert_eq!(named(&keepers, items, 11), [Some(boot(8)), None, None]);
        assert_eq!(named(&keepers, vec![send(1, "d")], 12), [None]);
    }

    #[test]
    fn old_hints_and_those_of_workers_that_are_gone_are_not_used() {
        let keepers = Keepers::default();
        keepers.hear(&ended(1, Some(7)), Duration::ZERO);
        let late = USED_FOR.as_secs() + 1;
        assert_eq!(named(&keepers, vec![send(1, "a")], late), [None]);
        for (session, keeper) in [(2, 7), (3, 8)] {
            keepers.hear(&ended(session, Some(keeper)), Duration::ZERO);
        }
        keepers.forget(boot(7));
        let items = vec![send(2, "a"), send(3, "a")];
        assert_eq!(named(&keepers, items, 1), [None, Some(boot(8))]);
    }

    #[test]
    fn what_needs_a_claim_names_nobody() {
        let keepers = Keepers::default();
        keepers.hear(&ended(1, Some(7)), Duration::ZERO);
        let large = "x".repeat(mainspring_shared::dispatch::BYTES_MAX + 1);
        assert_eq!(named(&keepers, vec![send(1, &large)], 1), [None]);
    }

    #[test]
    fn no_more_hints_are_kept_than_there_is_room_for() {
        let keepers = Keepers::default();
        let count = HINTS_MAX.get() as u128 + 10;
        for session in 0..count {
            keepers.hear(&ended(session, Some(7)), Duration::ZERO);
        }
        assert_eq!(keepers.lock().len(), HINTS_MAX.get());
        let items = vec![send(0, "a"), send(count - 1, "a")];
        assert_eq!(named(&keepers, items, 1), [None, Some(boot(7))]);
    }
}

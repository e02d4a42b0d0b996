//! The cache of session windows between sends.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use mainspring_runtime::buggify;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::SessionKey;
use mainspring_shared::session::window::Window;

/// A least-recently-used cache, bounded by bytes. Its content is never trusted: a claim compares it
/// with the session's counters, and only a contiguous continuation is added to it.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    inner: Mutex<Inner>,
}

/// A window, and the session's `context_version` when it was read.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) window: Window,
    pub(crate) version: i64,
    /// How often connections to the database had been lost before it was read, or before the claim
    /// of those who wrote it.
    pub(crate) losses: u64,
    /// The session's agent, from the last send that had no agent of its own.
    pub(crate) agent: Option<(i32, Box<AgentSpec>)>,
}

impl Cached {
    fn weight(&self) -> usize {
        let agent = self.agent.as_ref();
        let agent = agent.map_or(0, |(_, agent)| size_of::<AgentSpec>() + json_bytes(agent));
        self.window.weight() + agent
    }
}

/// The approximate size of an agent's texts.
fn json_bytes(agent: &AgentSpec) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // What cannot be written as JSON was never read from it.
    let _ = serde_json::to_writer(&mut count, agent);
    count.0
}

#[derive(Debug)]
struct Inner {
    windows: LruCache<SessionKey, (Cached, usize)>,
    bytes: usize,
    /// How often connections to the database were lost when the windows were known to be right.
    losses: u64,
    /// Where the windows ended that were dropped because of a loss.
    doubted: HashMap<SessionKey, i64>,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let inner = Inner {
            windows: LruCache::unbounded(),
            bytes: 0,
            losses: 0,
            doubted: HashMap::new(),
        };
        Self {
            bytes_max,
            inner: Mutex::new(inner),
        }
    }

    /// Drops all windows if connections to the database were lost since they were put here: the
    /// server may be another one, which lacks the last commits of the old one. Numbers alone do not
    /// tell, as other messages may have them by now.
    pub(crate) fn trust(&self, losses: u64) {
        let mut inner = self.lock();
        if std::mem::replace(&mut inner.losses, losses) == losses {
            return;
        }
        inner.bytes = 0;
        let windows = std::mem::replace(&mut inner.windows, LruCache::unbounded());
        let ends = windows
            .iter()
            .map(|(key, (cached, _))| (*key, cached.window.next_seq()));
        inner.doubted = ends.collect();
    }

    /// Where the window of a session ended that was dropped because of a loss.
    pub(crate) fn doubted(&self, key: SessionKey) -> Option<i64> {
        self.lock().doubted.remove(&key)
    }

    /// Takes a session's window out: it belongs to the run of the session.
    pub(crate) fn take(&self, key: SessionKey) -> Option<Cached> {
        let mut inner = self.lock();
        if buggify("cache.full") {
            inner.windows.clear();
            inner.bytes = 0;
        }
        let (cached, weight) = inner.windows.pop(&key)?;
        inner.bytes -= weight;
        Some(cached)
    }

    /// Caches a window, and evicts the oldest ones that do not fit. One that is older than a loss
    /// which is known here by now is not cached.
    pub(crate) fn put(&self, key: SessionKey, cached: Cached) {
        let weight = cached.weight();
        let mut inner = self.lock();
        if cached.losses != inner.losses {
            inner.doubted.insert(key, cached.window.next_seq());
            return;
        }
        if let Some((_, (_, old))) = inner.windows.push(key, (cached, weight)) {
            inner.bytes -= old;
        }
        inner.bytes += weight;
        while inner.bytes > self.bytes_max {
            let Some((_, (_, gone))) = inner.windows.pop_lru() else {
                break;
            };
            inner.bytes -= gone;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under this lock can panic midway, so the value is never half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{SendId, SessionId, TenantId};
    use mainspring_shared::message::{ContentPart, NewMessage};
    use mainspring_shared::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn key(n: u128) -> SessionKey {
        SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(n)),
        }
    }

    fn window(bytes: usize) -> Cached {
        let content = vec![ContentPart::text("x".repeat(bytes))];
        let message = NewMessage::user(content, 0).at(1, SendId(Uuid::nil()), Timestamp(0), 1);
        Cached {
            window: Window::new(vec![message], 2).expect("contiguous"),
            version: 0,
            losses: 0,
            agent: None,
        }
    }

    #[test]
    fn a_window_from_before_a_loss_is_not_kept() {
        let cache = Cache::new(10_000);
        cache.put(key(1), window(1_000));
        // The run of session 2 began before the loss and ends after it.
        cache.trust(1);
        cache.put(key(2), window(1_000));
        for n in [1, 2] {
            assert!(cache.take(key(n)).is_none());
            assert_eq!(cache.doubted(key(n)), Some(2));
        }
        let later = Cached {
            losses: 1,
            ..window(1_000)
        };
        cache.put(key(1), later);
        assert!(cache.take(key(1)).is_some());
        assert_eq!(cache.lock().bytes, 0);
    }

    #[test]
    fn the_oldest_windows_make_room() {
        let cache = Cache::new(3_000);
        for n in 1..=3 {
            cache.put(key(n), window(1_000));
        }
        assert!(cache.take(key(1)).is_none());
        assert!(cache.take(key(2)).is_some());
        assert!(cache.take(key(3)).is_some());
        assert_eq!(cache.lock().bytes, 0);
    }

    #[test]
    fn a_window_put_twice_counts_once() {
        let cache = Cache::new(10_000);
        cache.put(key(1), window(1_000));
        cache.put(key(1), window(2_000));
        assert_eq!(
            cache.take(key(1)).map(|cached| cached.window.weight()),
            Some(window(2_000).window.weight())
        );
        assert_eq!(cache.lock().bytes, 0);
    }

    #[test]
    fn an_agent_that_is_kept_counts() {
        let cache = Cache::new(10_000);
        let large = AgentSpec {
            name: Some("x".repeat(20_000)),
            ..AgentSpec::default()
        };
        let cached = Cached {
            agent: Some((1, Box::new(large))),
            ..window(10)
        };
        cache.put(key(1), cached);
        assert!(cache.take(key(1)).is_none());
        assert_eq!(cache.lock().bytes, 0);
    }
}

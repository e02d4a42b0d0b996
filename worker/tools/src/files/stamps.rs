//! What each session has read, so that it never overwrites content that it has not seen.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use mainspring_shared::id::SessionKey;
use sha2::{Digest as _, Sha256};

/// The hash of a content. A file's modification time is not enough: two writes may share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Its first 8 bytes in hexadecimal digits.
    pub(crate) fn short(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for byte in &self.0[..8] {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// What a session knows of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It has seen exactly this content.
    Current,
    /// It has seen a different content.
    Outdated,
    /// It has not seen any, at least not on this worker: stamps are not shared between workers.
    Unread,
}

/// The contents that sessions saw last. The oldest are evicted when there are too many.
#[derive(Debug)]
pub(crate) struct Stamps {
    seen: Mutex<LruCache<(SessionKey, PathBuf), Digest>>,
}

impl Stamps {
    pub(crate) fn new(max: usize) -> Self {
        let max = NonZeroUsize::new(max).unwrap_or(NonZeroUsize::MIN);
        Self {
            seen: Mutex::new(LruCache::new(max)),
        }
    }

    /// Records that the session has seen this content at `path`.
    pub(crate) fn note(&self, session: SessionKey, path: &Path, content: Digest) {
        self.seen().put((session, path.to_owned()), content);
    }

    /// What the session knows of `path`, whose current content is given.
    pub(crate) fn known(&self, session: SessionKey, path: &Path, content: Digest) -> Known {
        match self.seen().get(&(session, path.to_owned())) {
            Some(seen) if *seen == content => Known::Current,
            Some(_) => Known::Outdated,
            None => Known::Unread,
        }
    }

    fn seen(&self) -> MutexGuard<'_, LruCache<(SessionKey, PathBuf), Digest>> {
        // An entry is stored whole or not at all, so a poisoned lock is harmless.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{SessionId, TenantId};
    use uuid::Uuid;

    use super::*;

    fn session(n: u128) -> SessionKey {
        SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(n)),
        }
    }

    #[test]
    fn a_stamp_is_one_sessions_and_of_one_content() {
        let stamps = Stamps::new(8);
        let (path, old, new) = (Path::new("a"), Digest::of(b"old"), Digest::of(b"new"));
        stamps.note(session(1), path, old);
        assert_eq!(stamps.known(session(1), path, old), Known::Current);
        assert_eq!(stamps.known(session(1), path, new), Known::Outdated);
        assert_eq!(stamps.known(session(2), path, old), Known::Unread);
    }

    #[test]
    fn the_oldest_stamps_go_first() {
        let stamps = Stamps::new(2);
        let content = Digest::of(b"x");
        for name in ["a", "b", "c"] {
            stamps.note(session(1), Path::new(name), content);
        }
        let known = |name| stamps.known(session(1), Path::new(name), content);
        assert_eq!(
            [known("a"), known("b"), known("c")],
            [Known::Unread, Known::Current, Known::Current]
        );
    }
}

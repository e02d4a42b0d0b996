//! What a tool may ask a person while its call is made.

use std::sync::Arc;

use mainspring_shared::tool::{Asked, INQUIRIES_MAX, Replies};

/// The questions of a call so far. A call without one, made outside of a send, has nobody to ask.
#[derive(Debug, Clone, Default)]
pub struct Inquiring {
    asked: Option<Arc<[Asked]>>,
}

impl Inquiring {
    /// A call whose tool may ask, and has asked this in earlier attempts.
    pub fn new(asked: &[Asked]) -> Self {
        Self {
            asked: Some(asked.into()),
        }
    }

    /// What the tool has asked, if it may ask.
    pub fn asked(&self) -> Option<&[Asked]> {
        self.asked.as_deref()
    }

    /// Whether the tool may ask something more.
    pub fn may_ask(&self) -> bool {
        let asked = self.asked.as_ref();
        asked.is_some_and(|asked| asked.len() < INQUIRIES_MAX)
    }

    /// How much the tool has asked.
    pub fn count(&self) -> usize {
        self.asked.as_ref().map_or(0, |asked| asked.len())
    }

    /// The answers, for one attempt.
    pub fn replies(&self) -> Replies {
        Replies::of(self.asked.as_deref().unwrap_or_default())
    }
}

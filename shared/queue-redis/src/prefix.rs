//! The prefix of an installation's keys and channels.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use mainspring_shared::bus::Topic;

/// The default prefix.
const DEFAULT: &str = "mainspring";
/// Maximum length in characters.
const LENGTH_MAX: usize = 64;

/// The prefix of all keys and channels of an installation; a `:` follows it. All processes of one
/// installation need the same prefix, and installations that share a server need different ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(Arc<str>);

/// A text that cannot be a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("redis_prefix takes 1 to 64 letters, digits, `_`, `.` and `-`")]
pub struct PrefixError;

impl Default for Prefix {
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Refuses a `:`, so that no installation's names begin with another's, and braces, so that the
    /// pool alone determines the slot of a key.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if text.is_empty() || text.len() > LENGTH_MAX || !text.chars().all(plain) {
            return Err(PrefixError);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Prefix {
    /// The channel of every hub on which a publisher reports that it dropped more notifications
    /// than it can name.
    pub(crate) fn gap_channel(&self) -> String {
        format!("{self}:gap")
    }

    /// The key, and the channel, that tell whether the server does what it is asked to.
    pub(crate) fn probe(&self) -> String {
        format!("{self}:probe")
    }

    /// The channel of a topic.
    pub(crate) fn channel(&self, topic: &Topic) -> String {
        match topic {
            Topic::Steps => format!("{self}:steps"),
            Topic::Signals => format!("{self}:signals"),
            Topic::Runs => format!("{self}:runs"),
            Topic::Timers => format!("{self}:timers"),
            Topic::Pauses => format!("{self}:pauses"),
            Topic::Live(key) => {
                format!("{self}:live:{}:{}", key.tenant.0, key.session.0.as_simple())
            }
            Topic::Asks => format!("{self}:asks"),
            Topic::Answers(id) => format!("{self}:answers:{}", id.as_simple()),
            Topic::Dispatches(boot) => format!("{self}:dispatches:{}", boot.0.as_simple()),
        }
    }

    /// The prefix of the keys of a pool's line.
    pub(crate) fn queue(&self, pool: &str, line: &str) -> String {
        format!("{self}:{{{pool}}}:{line}")
    }

    /// Whether the part before a line's name is a pool of this installation.
    pub(crate) fn has_pool(&self, lane: &str) -> bool {
        let behind = lane.strip_prefix(&*self.0);
        behind.is_some_and(|pool| pool.starts_with(':') && pool.ends_with('}'))
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{BootId, SessionId, SessionKey, TenantId};

    use super::*;

    #[test]
    fn a_prefix_has_no_character_that_divides_a_name() {
        for good in ["mainspring", "team-2", "a.b_C", "x".repeat(64).as_str()] {
            let prefix: Prefix = good.parse().unwrap();
            assert_eq!(prefix.to_string(), good);
        }
        for bad in ["", "a:b", "{a}", "a b", "a*", "é", "x".repeat(65).as_str()] {
            assert_eq!(bad.parse::<Prefix>(), Err(PrefixError), "{bad}");
        }
    }

    #[test]
    fn every_channel_begins_with_the_prefix_and_by_default_has_the_name_of_earlier_releases() {
        let key = SessionKey {
            tenant: TenantId(7),
            session: SessionId(uuid::Uuid::from_u128(1)),
        };
        let usual = Prefix::default();
        let other: Prefix = "team-2".parse().unwrap();
        assert_eq!(usual.gap_channel(), "mainspring:gap");
        assert_eq!(other.gap_channel(), "team-2:gap");
        let answers = Topic::Answers(uuid::Uuid::from_u128(2));
        let dispatches = Topic::Dispatches(BootId(uuid::Uuid::from_u128(3)));
        for (topic, name) in [
            (Topic::Steps, "steps"),
            (Topic::Signals, "signals"),
            (Topic::Runs, "runs"),
            (Topic::Timers, "timers"),
            (Topic::Pauses, "pauses"),
            (Topic::Live(key), "live:7:00000000000000000000000000000001"),
            (Topic::Asks, "asks"),
            (answers, "answers:00000000000000000000000000000002"),
            (dispatches, "dispatches:00000000000000000000000000000003"),
        ] {
            assert_eq!(usual.channel(&topic), format!("mainspring:{name}"));
            assert_eq!(other.channel(&topic), format!("team-2:{name}"));
        }
    }
}

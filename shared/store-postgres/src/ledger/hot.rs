//! Hot rows.

use mainspring_shared::agent::Priority;
use mainspring_shared::id::{BootId, LeaseToken, SessionKey};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{ReadySession, Result};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::rows::{Fields, priority_of};

/// What the send at the head of a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Active {
    /// None has begun.
    None,
    /// It runs.
    Runs,
    /// It waits.
    Waits,
}

impl Active {
    fn from_i16(number: i16) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Runs),
            2 => Some(Self::Waits),
            _ => None,
        }
    }
}

/// A hot row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hot {
    pub(crate) key: SessionKey,
    pub(crate) owner: Option<BootId>,
    pub(crate) token: Option<LeaseToken>,
    pub(crate) epoch: i64,
    pub(crate) next_seq: i64,
    pub(crate) next_position: i64,
    pub(crate) next_step: i64,
    pub(crate) pending: i64,
    pub(crate) active: Active,
    pub(crate) signals: i32,
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) pool: String,
    pub(crate) priority: Priority,
    /// Writes under the grant.
    pub(crate) writes: i64,
}

impl Hot {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let key = fields.key()?;
        let owner: Option<Uuid> = fields.take("owner_boot")?;
        let token: Option<Uuid> = fields.take("token")?;
        Ok(Self {
            key,
            owner: owner.map(BootId),
            token: token.map(LeaseToken),
            epoch: fields.take("epoch")?,
            next_seq: fields.take("next_seq")?,
            next_position: fields.take("next_position")?,
            next_step: fields.take("next_step")?,
            pending: fields.take("pending")?,
            active: {
                let number = fields.take("active")?;
                Active::from_i16(number)
                    .ok_or_else(|| fields.corrupt("active", format!("{number} is unknown")))?
            },
            signals: fields.take("signals")?,
            ready_since: fields.maybe_time("ready_since")?,
            lifecycle: {
                let number = fields.take("lifecycle")?;
                Lifecycle::from_i16(number)
                    .ok_or_else(|| fields.corrupt("lifecycle", format!("{number} is unknown")))?
            },
            pool: fields.take("pool")?,
            priority: priority_of(fields.take("priority")?),
            writes: fields.take("writes")?,
        })
    }

    /// What it is enqueued with; none unless it is ready.
    pub(crate) fn ready_session(&self) -> Option<ReadySession> {
        self.ready_since.map(|ready_since| ReadySession {
            key: self.key,
            pool: self.pool.clone(),
            priority: self.priority,
            ready_since,
        })
    }

    /// Draws the next place, for a send or for an inbox item.
    pub(crate) fn take_place(&mut self) -> i64 {
        let place = self.next_position;
        self.next_position += 1;
        place
    }

    /// Gives work its place. It has to be enqueued when the session was not ready before; behind a
    /// send that waits nothing can go on yet.
    pub(crate) fn gain_work(
        &mut self,
        priority: Priority,
        now: Timestamp,
    ) -> (i64, Option<ReadySession>) {
        let position = self.take_place();
        self.pending += 1;
        if self.active == Active::Waits || self.ready_since.is_some() {
            return (position, None);
        }
        self.priority = priority;
        self.ready_since = Some(now);
        (position, self.ready_session())
    }

    pub(super) fn take_step(&mut self) -> i64 {
        let n = self.next_step;
        self.next_step += 1;
        n
    }

    pub(super) fn take_seq(&mut self) -> i64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }
}

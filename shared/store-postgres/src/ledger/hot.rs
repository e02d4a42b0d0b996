//! Hot rows.

use mainspring_shared::id::{BootId, LeaseToken};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::session::hot::HotRow;
use mainspring_shared::store::Result;
use uuid::Uuid;

use crate::rows::{Fields, priority_of};

/// A hot row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hot {
    /// The row as the session machine sees it, except the session's spending and its context
    /// version, which the ledger neither reads nor writes.
    pub(crate) row: HotRow,
    /// The status of the running or waiting send; `None` if no send has started.
    pub(crate) active: Option<SendStatus>,
}

impl Hot {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let key = fields.key()?;
        let owner: Option<Uuid> = fields.take("owner_boot")?;
        let token: Option<Uuid> = fields.take("token")?;
        let mut row = HotRow {
            key,
            owner: owner.map(BootId),
            token: token.map(LeaseToken),
            epoch: fields.take("epoch")?,
            next_seq: fields.take("next_seq")?,
            next_position: fields.take("next_position")?,
            next_step: fields.take("next_step")?,
            pending: fields.take("pending")?,
            ..HotRow::new(key, "")
        };
        let active = match fields.take("active")? {
            0_i16 => None,
            1 => Some(SendStatus::Running),
            2 => Some(SendStatus::Waiting),
            number => return Err(fields.corrupt("active", format!("{number} is unknown"))),
        };
        row.signals = fields.take("signals")?;
        row.ready_since = fields.maybe_time("ready_since")?;
        row.lifecycle = {
            let number = fields.take("lifecycle")?;
            Lifecycle::from_i16(number)
                .ok_or_else(|| fields.corrupt("lifecycle", format!("{number} is unknown")))?
        };
        row.pool = fields.take("pool")?;
        row.priority = priority_of(fields.take("priority")?);
        row.writes = fields.take("writes")?;
        Ok(Self { row, active })
    }

    /// The status of the first open send with a position.
    pub(crate) fn head(&self) -> Option<SendStatus> {
        let queued = (self.row.pending > 0).then_some(SendStatus::Queued);
        self.active.or(queued)
    }

    /// The encoding of `active` in the database.
    pub(super) fn active_number(&self) -> i16 {
        match self.active {
            Some(SendStatus::Running) => 1,
            Some(SendStatus::Waiting) => 2,
            _ => 0,
        }
    }
}

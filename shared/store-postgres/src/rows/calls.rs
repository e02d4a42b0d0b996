//! Rows of calls, inbox items and parents of sessions.

use mainspring_shared::id::{SendId, SessionId};
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{Parent, Result};
use mainspring_shared::tool::{Approval, CallRecord, Claim, Repeat};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Fields, mode_of};

impl Fields<'_> {
    /// Reads `session_id, {call}`.
    pub(crate) fn call(&mut self) -> Result<CallRecord> {
        let call_id: String = self.take("call_id")?;
        self.key.clone_from(&call_id);
        Ok(CallRecord {
            call_id,
            session: SessionId(self.take("session_id")?),
            send_id: SendId(self.take("send_id")?),
            round: self.take("round")?,
            place: self.take("place")?,
            name: self.take("name")?,
            arguments: self.json("arguments")?,
            repeat: self.name("repeat", Repeat::parse)?,
            waits_on: self.maybe_name("waits_on", WaitingOn::parse)?,
            approval: self.name("approval", Approval::parse)?,
            started_epoch: self.take("started_epoch")?,
            attempt: self.take("attempt")?,
            deadline_at: self.maybe_time("deadline_at")?,
            asked: self.maybe_json("asked")?.unwrap_or_default(),
            result: self.maybe_json("result")?,
            requested_at: self.time("requested_at")?,
            settled_at: self.maybe_time("settled_at")?,
            claim: {
                let token: Option<Uuid> = self.take("claim")?;
                let until = self.maybe_time("claimed_until")?;
                let n: Option<i32> = self.take("claim_n")?;
                let claim = token.zip(until).zip(n);
                claim.map(|((token, until), n)| Claim { token, until, n })
            },
        })
    }

    /// Reads `{item}`.
    pub(crate) fn item(&mut self) -> Result<InboxItem> {
        let id: String = self.take("item_id")?;
        self.key.clone_from(&id);
        Ok(InboxItem {
            id,
            n: self.take("n")?,
            kind: self.name("kind", ItemKind::parse)?,
            mode: self.name("mode", mode_of)?,
            send_id: {
                let send: Option<Uuid> = self.take("send_id")?;
                send.map(SendId)
            },
            content: self.json("content")?,
            fate: self.name("fate", Fate::parse)?,
            seq: self.take("seq")?,
            created_at: self.time("created_at")?,
            settled_at: self.maybe_time("settled_at")?,
        })
    }

    /// The parent of a session, if it has one.
    pub(crate) fn maybe_parent(&mut self) -> Result<Option<Parent>> {
        let session: Option<Uuid> = self.take("parent_session")?;
        let call_id: Option<String> = self.take("parent_call")?;
        let root: Option<Uuid> = self.take("root_session")?;
        let depth: Option<i32> = self.take("depth")?;
        let Some(session) = session else {
            return Ok(None);
        };
        let Some(((call_id, root), depth)) = call_id.zip(root).zip(depth) else {
            return Err(self.corrupt("parent_call", "a parent is known in part".to_owned()));
        };
        Ok(Some(Parent {
            session: SessionId(session),
            call_id,
            root: SessionId(root),
            depth,
        }))
    }
}

/// Puts the calls that a statement returned, each with its item's `ord`, into the order of the
/// items.
pub(crate) fn calls_in_order(rows: &[PgRow], items: usize) -> Result<Vec<Option<CallRecord>>> {
    let mut found = vec![None; items];
    for row in rows {
        let mut fields = Fields::new(row, "tool_calls");
        let ord = fields.ord()?;
        let call = fields.call()?;
        if let Some(place) = found.get_mut(ord) {
            *place = Some(call);
        }
    }
    Ok(found)
}

//! Writing the changes back.

use std::collections::BTreeMap;

use mainspring_shared::budget::Spent;
use mainspring_shared::id::SessionKey;
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::send::{StopReason, WaitingOn};
use mainspring_shared::tool::CallRecord;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Hot, Ledger, RoundKey};
use crate::columns::{TotalColumns, UsageColumns, json, maybe_text, ord, text};
use crate::fault::Fault;
use crate::retry::sql;
use crate::rows::{Fields, key_columns, mode_name, priority_number, send_columns};

type Written = Result<(), Fault>;

/// A call, by its round and its place in it.
pub(super) type CallKey = (RoundKey, i32);

pub(super) struct ItemRow {
    pub(super) key: SessionKey,
    pub(super) item: InboxItem,
}

impl Ledger {
    /// Writes all changes back.
    pub(crate) async fn write(self, connection: &mut PgConnection) -> Written {
        self.write_hot(connection).await?;
        self.write_sends(connection).await?;
        self.write_inputs(connection).await?;
        self.write_steps(connection).await?;
        self.write_messages(connection).await?;
        self.write_paid(connection).await?;
        self.write_calls(connection).await?;
        self.write_items(connection).await
    }

    async fn write_hot(&self, connection: &mut PgConnection) -> Written {
        let changed = |hot: &&Hot| self.locked.get(&hot.row.key) != Some(*hot);
        let changed: Vec<&Hot> = self.hot.values().filter(changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let rows = || changed.iter();
        let (tenants, sessions) = key_columns(rows().map(|hot| hot.row.key));
        let owners: Vec<Option<Uuid>> =
            rows().map(|hot| hot.row.owner.map(|boot| boot.0)).collect();
        let tokens: Vec<Option<Uuid>> = rows()
            .map(|hot| hot.row.token.map(|token| token.0))
            .collect();
        let readies: Vec<Option<i64>> =
            rows().map(|hot| hot.row.ready_since.map(|t| t.0)).collect();
        sql!("ledger/write_hot")
            .bind(tenants)
            .bind(sessions)
            .bind(owners)
            .bind(tokens)
            .bind(rows().map(|hot| hot.row.epoch).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.row.next_seq).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.row.next_position).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.row.next_step).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.row.pending).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.active_number()).collect::<Vec<_>>())
            .bind(rows().map(|hot| hot.row.signals).collect::<Vec<_>>())
            .bind(readies)
            .bind(
                rows()
                    .map(|hot| hot.row.lifecycle.as_i16())
                    .collect::<Vec<_>>(),
            )
            .bind(rows().map(|hot| hot.row.pool.clone()).collect::<Vec<_>>())
            .bind(
                rows()
                    .map(|hot| priority_number(hot.row.priority))
                    .collect::<Vec<_>>(),
            )
            .bind(rows().map(|hot| hot.row.writes).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn write_sends(&self, connection: &mut PgConnection) -> Written {
        if self.writes.changed.is_empty() {
            return Ok(());
        }
        let rows = || {
            self.writes
                .changed
                .iter()
                .filter_map(|id| self.sends.get(id))
        };
        let (tenants, ids) = send_columns(self.writes.changed.iter().copied());
        let positions: Vec<Option<i64>> = rows().map(|send| send.position).collect();
        let statuses: Vec<&'static str> = rows().map(|send| send.status.as_str()).collect();
        let waiting = rows().map(|send| send.waiting_on.map(WaitingOn::as_str));
        let reasons = rows().map(|send| send.stop_reason.map(StopReason::as_str));
        let errors = rows().map(|send| send.error.as_ref().map(json));
        let asked: Vec<bool> = rows().map(|send| send.cancel_requested).collect();
        let alarms = rows().map(|send| send.alarm_at.map(|at| at.0));
        let ends = rows().map(|send| send.finished_at.map(|at| at.0));
        sql!("ledger/write_sends")
            .bind(tenants)
            .bind(ids)
            .bind(positions)
            .bind(statuses)
            .bind(waiting.collect::<Vec<_>>())
            .bind(reasons.collect::<Vec<_>>())
            .bind(errors.collect::<Vec<_>>())
            .bind(asked)
            .bind(alarms.collect::<Vec<_>>())
            .bind(ends.collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn write_inputs(&self, connection: &mut PgConnection) -> Written {
        if self.writes.joined.is_empty() {
            return Ok(());
        }
        let rows = self
            .writes
            .joined
            .iter()
            .filter_map(|id| self.sends.get(id));
        let inputs: Vec<String> = rows.map(|send| json(&send.input)).collect();
        let (tenants, ids) = send_columns(self.writes.joined.iter().copied());
        sql!("ledger/write_inputs")
            .bind(tenants)
            .bind(ids)
            .bind(inputs)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn write_steps(&self, connection: &mut PgConnection) -> Written {
        if self.writes.steps.is_empty() {
            return Ok(());
        }
        let rows = || self.writes.steps.iter().map(|(_, step)| step);
        let (tenants, sessions) = key_columns(self.writes.steps.iter().map(|(key, _)| *key));
        sql!("ledger/write_steps")
            .bind(self.now.0)
            .bind(tenants)
            .bind(sessions)
            .bind(rows().map(|step| step.n).collect::<Vec<_>>())
            .bind(rows().map(|step| step.send_id.0).collect::<Vec<_>>())
            .bind(rows().map(|step| step.epoch).collect::<Vec<_>>())
            .bind(rows().map(|step| step.boot.0).collect::<Vec<_>>())
            .bind(rows().map(|step| json(&step.refs)).collect::<Vec<_>>())
            .bind(
                rows()
                    .map(|step| step.refs.status.clone())
                    .collect::<Vec<_>>(),
            )
            .execute(connection)
            .await?;
        Ok(())
    }

    /// Writes the messages, which are inputs and call results: none of them requests calls.
    async fn write_messages(&self, connection: &mut PgConnection) -> Written {
        if self.writes.messages.is_empty() {
            return Ok(());
        }
        let rows = || self.writes.messages.iter().map(|(_, message)| message);
        let (tenants, sessions) = key_columns(self.writes.messages.iter().map(|(key, _)| *key));
        let calls = rows().map(|message| maybe_text(message.tool_call_id.as_deref()));
        let names = rows().map(|message| maybe_text(message.name.as_deref()));
        sql!("ledger/write_messages")
            .bind(self.now.0)
            .bind(tenants)
            .bind(sessions)
            .bind(rows().map(|message| message.seq).collect::<Vec<_>>())
            .bind(rows().map(|message| message.send_id.0).collect::<Vec<_>>())
            .bind(
                rows()
                    .map(|message| message.role.as_str())
                    .collect::<Vec<_>>(),
            )
            .bind(
                rows()
                    .map(|message| json(&message.content))
                    .collect::<Vec<_>>(),
            )
            .bind(calls.collect::<Vec<_>>())
            .bind(names.collect::<Vec<_>>())
            .bind(rows().map(|message| message.failed).collect::<Vec<_>>())
            .bind(rows().map(|message| message.round).collect::<Vec<_>>())
            .bind(
                rows()
                    .map(|message| message.asked_at_seq)
                    .collect::<Vec<_>>(),
            )
            .bind(rows().map(|message| message.epoch).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }

    /// Writes the cost of dead workers' calls. Rare, so that the sessions' spending is read only
    /// here.
    async fn write_paid(&self, connection: &mut PgConnection) -> Written {
        let paid = self.writes.paid.iter().filter_map(|(key, id, row)| {
            let send = self.sends.get(&(key.tenant, *id))?;
            Some((*key, send, row))
        });
        let paid: Vec<_> = paid.collect();
        if paid.is_empty() {
            return Ok(());
        }
        let (tenants, sessions) = key_columns(paid.iter().map(|(key, ..)| *key));
        let rows = sql!("ledger/spent")
            .bind(tenants)
            .bind(sessions)
            .fetch_all(&mut *connection)
            .await?;
        let mut spent = BTreeMap::new();
        for row in &rows {
            let mut fields = Fields::new(row, "session_hot");
            spent.insert(fields.key()?, fields.maybe_json::<Spent>("spent")?);
        }
        let mut totals = TotalColumns::default();
        let mut usage = UsageColumns::default();
        for (index, (key, send, row)) in paid.iter().enumerate() {
            let before = spent.get(key).copied().flatten();
            let after = before.map(|spent| spent.plus(Spent::of(&row.usage, 0)));
            totals.push(&send.totals(after));
            usage.push(ord(index), std::slice::from_ref(*row));
        }
        let (tenants, ids) = send_columns(paid.iter().map(|(key, send, _)| (key.tenant, send.id)));
        let query = sql!("leases/sums").bind(self.now.0).bind(tenants).bind(ids);
        usage.bind(totals.bind(query)).execute(connection).await?;
        Ok(())
    }

    async fn write_calls(&self, connection: &mut PgConnection) -> Written {
        let changed = self.writes.settled.iter().filter_map(|(round, place)| {
            let mut calls = self.rounds.get(round)?.iter();
            let call = calls.find(|call| call.place == *place)?;
            Some((round.tenant, call))
        });
        let changed: Vec<(_, &CallRecord)> = changed.collect();
        if changed.is_empty() {
            return Ok(());
        }
        let rows = || changed.iter().map(|(_, call)| *call);
        let tenants: Vec<i32> = changed.iter().map(|(tenant, _)| tenant.0).collect();
        let ids: Vec<String> = rows().map(|call| call.call_id.clone()).collect();
        let waits = rows().map(|call| call.waits_on.map(WaitingOn::as_str));
        let approvals = rows().map(|call| call.approval.as_str());
        let deadlines = rows().map(|call| call.deadline_at.map(|at| at.0));
        let results = rows().map(|call| call.result.as_ref().map(json));
        let settled = rows().map(|call| call.settled_at.map(|at| at.0));
        let asked = rows().map(|call| (!call.asked.is_empty()).then(|| json(&call.asked)));
        let tokens = rows().map(|call| call.claim.map(|claim| claim.token));
        let until = rows().map(|call| call.claim.map(|claim| claim.until.0));
        let counts = rows().map(|call| call.claim.map(|claim| claim.n));
        sql!("calls/write")
            .bind(tenants)
            .bind(ids)
            .bind(waits.collect::<Vec<_>>())
            .bind(approvals.collect::<Vec<_>>())
            .bind(deadlines.collect::<Vec<_>>())
            .bind(results.collect::<Vec<_>>())
            .bind(settled.collect::<Vec<_>>())
            .bind(asked.collect::<Vec<_>>())
            .bind(tokens.collect::<Vec<_>>())
            .bind(until.collect::<Vec<_>>())
            .bind(counts.collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn write_items(&self, connection: &mut PgConnection) -> Written {
        if self.writes.items.is_empty() {
            return Ok(());
        }
        let rows = || self.writes.items.iter().map(|row| &row.item);
        let (tenants, sessions) = key_columns(self.writes.items.iter().map(|row| row.key));
        let sends: Vec<Option<Uuid>> = rows().map(|item| item.send_id.map(|id| id.0)).collect();
        sql!("inbox/insert")
            .bind(self.now.0)
            .bind(tenants)
            .bind(sessions)
            .bind(
                rows()
                    .map(|item| text(&item.id).into_owned())
                    .collect::<Vec<_>>(),
            )
            .bind(rows().map(|item| item.n).collect::<Vec<_>>())
            .bind(rows().map(|item| item.kind.as_str()).collect::<Vec<_>>())
            .bind(rows().map(|item| mode_name(item.mode)).collect::<Vec<_>>())
            .bind(sends)
            .bind(rows().map(|item| json(&item.content)).collect::<Vec<_>>())
            .bind(rows().map(|item| item.fate.as_str()).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }
}

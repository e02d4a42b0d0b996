//! Storing rounds, and what became of their calls, under their leases.

use std::collections::BTreeSet;

use mainspring_shared::id::SessionKey;
use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::step::{Step, StepKind};
use mainspring_shared::store::{AppendOutcome, AppendRound, CallStep, Counters, Result};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallRecord;
use sqlx::PgConnection;

use crate::columns::{
    CallColumns, ChangeColumns, DeliveryColumns, LeaseColumns, MessageColumns, TotalColumns,
    UsageColumns, maybe_text, ord, ref_members, text,
};
use crate::group::{Group, drive};
use crate::park::{Written, read_written};
use crate::retry::{Fault, PgQuery, Pool, sql};
use crate::rows::{Fields, calls_in_order};

pub(crate) async fn append(
    pool: &Pool,
    at: Option<Timestamp>,
    items: Vec<AppendRound>,
) -> Result<Vec<AppendOutcome>> {
    drive(pool, &Append { at }, &items).await
}

struct Append {
    at: Option<Timestamp>,
}

impl Group for Append {
    type Item = AppendRound;
    type Outcome = AppendOutcome;
    type Seen = BTreeSet<SessionKey>;

    fn clashes(&self, item: &AppendRound, seen: &mut BTreeSet<SessionKey>) -> bool {
        !seen.insert(item.key)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&AppendRound],
    ) -> std::result::Result<Vec<Option<AppendOutcome>>, Fault> {
        let query = sql!("leases/append").bind(self.at.map(|at| at.0));
        let rows = bind(query, items).fetch_all(connection).await?;
        let mut outcomes: Vec<_> = items
            .iter()
            .map(|_| Some(AppendOutcome::LeaseLost))
            .collect();
        for row in &rows {
            let mut fields = Fields::new(row, "session_hot");
            let ord = fields.ord()?;
            outcomes[ord] = Some(AppendOutcome::Appended {
                first_seq: fields.take("first_seq")?,
                step: fields.take("step")?,
                at: fields.time("now")?,
                counters: Counters {
                    next_seq: fields.take("next_seq")?,
                    pending: fields.take("pending")?,
                    signals: fields.take("signals")?,
                },
            });
        }
        Ok(outcomes)
    }

    /// The round is stored when the send's last step under this grant is this round. The lost
    /// answer may have told of signals that are lowered by now: those of the inbox are read from
    /// it, and who is told of a result that is none looks once too often.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&AppendRound],
    ) -> std::result::Result<Vec<Option<AppendOutcome>>, Fault> {
        let asked = items
            .iter()
            .map(|item| (item.key, item.lease, item.send_id));
        let written = read_written(connection, asked).await?;
        let mut outcomes = Vec::with_capacity(items.len());
        for (written, item) in written.into_iter().zip(items) {
            let Written {
                held,
                counters,
                for_items,
                step,
                ..
            } = written.unwrap_or_default();
            let stored = match step {
                Some(step) if is_of(connection, item, &step).await? => Some(step),
                Some(_) | None => None,
            };
            outcomes.push(match stored {
                Some(step) => Some(AppendOutcome::Appended {
                    first_seq: step.refs.first_seq.unwrap_or(counters.next_seq),
                    step: step.n,
                    at: step.at,
                    counters: Counters {
                        signals: counters.signals | for_items | SIGNAL_RESULT,
                        ..counters
                    },
                }),
                None => (!held).then_some(AppendOutcome::LeaseLost),
            });
        }
        Ok(outcomes)
    }

    fn unsettled(&self, _: &AppendRound) -> Result<AppendOutcome> {
        Ok(AppendOutcome::LeaseLost)
    }
}

fn bind(query: PgQuery, items: &[&AppendRound]) -> PgQuery {
    let mut leases = LeaseColumns::default();
    let mut counts: Vec<i64> = Vec::new();
    let mut kinds: Vec<&'static str> = Vec::new();
    let mut refs: Vec<String> = Vec::new();
    let mut totals = TotalColumns::default();
    let mut messages = MessageColumns::default();
    let mut usage = UsageColumns::default();
    let mut changes = ChangeColumns::default();
    let mut deliveries = DeliveryColumns::default();
    let mut calls = CallColumns::default();
    for (index, item) in items.iter().enumerate() {
        let ord = ord(index);
        leases.push(item.key, item.lease, item.send_id);
        counts.push(item.messages.len() as i64);
        kinds.push(kind(item).as_str());
        refs.push(ref_members(item.messages.len(), item.round.as_ref()));
        totals.push(&item.totals);
        messages.push(ord, &item.messages);
        usage.push(ord, &item.usage);
        calls.push(&mut changes, ord, &item.calls, &item.changes);
        deliveries.push(ord, &item.deliveries);
    }
    let query = leases.bind(query).bind(counts).bind(kinds).bind(refs);
    let query = usage.bind(messages.bind(totals.bind(query)));
    calls.bind(deliveries.bind(changes.bind(query)))
}

fn kind(item: &AppendRound) -> StepKind {
    if item.round.is_some() {
        StepKind::Round
    } else {
        StepKind::Calls
    }
}

/// Whether a step, the last one of the send under the grant, is what the item asked for. A round is
/// known by its index; a step of calls only by what it wrote.
async fn is_of(
    connection: &mut PgConnection,
    item: &AppendRound,
    step: &Step,
) -> std::result::Result<bool, Fault> {
    let refs = &step.refs;
    if step.kind != kind(item)
        || refs.round != item.round
        || refs.messages as usize != item.messages.len()
    {
        return Ok(false);
    }
    if item.round.is_some() {
        return Ok(true);
    }
    match refs.first_seq {
        Some(first_seq) => has_messages(connection, item, first_seq).await,
        None => has_changes(connection, item).await,
    }
}

/// Whether the transcript says what the item says from here on.
async fn has_messages(
    connection: &mut PgConnection,
    item: &AppendRound,
    first_seq: i64,
) -> std::result::Result<bool, Fault> {
    let rows = sql!("sessions/messages")
        .bind(item.key.tenant.0)
        .bind(item.key.session.0)
        .bind(first_seq - 1)
        .bind(item.messages.len() as i64)
        .fetch_all(connection)
        .await?;
    for (row, new) in rows.iter().zip(&item.messages) {
        let mut fields = Fields::new(row, "messages");
        let _: i64 = fields.take("ord")?;
        let stored = fields.message()?;
        if stored.role != new.role
            || stored.content != new.content
            || stored.tool_call_id != maybe_text(new.tool_call_id.as_deref())
        {
            return Ok(false);
        }
    }
    Ok(rows.len() == item.messages.len())
}

/// Whether every call stands where the item left it, or further on.
async fn has_changes(
    connection: &mut PgConnection,
    item: &AppendRound,
) -> std::result::Result<bool, Fault> {
    let tenants = vec![item.key.tenant.0; item.changes.len()];
    let ids = item.changes.iter().map(|c| text(&c.call_id).into_owned());
    let rows = sql!("calls/get")
        .bind(tenants)
        .bind(ids.collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    let calls = calls_in_order(&rows, item.changes.len())?;
    let stands = |call: &CallRecord, step: &CallStep| match step {
        _ if call.result.is_some() => true,
        CallStep::Started => call.started_epoch == Some(item.lease.epoch),
        CallStep::Waits { on, .. } => call.waits_on == Some(*on),
        CallStep::Settled(_) => false,
    };
    let mut pairs = calls.iter().zip(&item.changes);
    // One that is unknown changed nothing.
    Ok(pairs.all(|(call, change)| {
        call.as_ref()
            .is_none_or(|call| stands(call, &change.change))
    }))
}

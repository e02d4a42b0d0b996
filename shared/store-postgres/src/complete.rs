//! Ending sends and starting their sessions' next ones.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::SendStatus;
use mainspring_shared::step::{Step, StepKind, StepRefs};
use mainspring_shared::store::{
    AfterSend, CompleteOutcome, CompleteSend, Completed, Counters, Error, ReadySession, Result,
    StartedSend, Watched,
};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;

use crate::claim::{GrantsToRelease, started};
use crate::columns::{
    ChangeColumns, DeliveryColumns, LeaseColumns, MessageColumns, ProjectionColumns, TotalColumns,
    UsageColumns, json, maybe_text, ord, ref_members,
};
use crate::fault::Fault;
use crate::group::{FastPath, Group, drive};
use crate::park::{Written, read_written};
use crate::retry::{PgQuery, Pool, sql};
use crate::rows::Fields;
use crate::webhooks::watching;

pub(crate) async fn complete(
    pool: &Pool,
    grants_to_release: &GrantsToRelease,
    watched: &Watched,
    at: Option<Timestamp>,
    items: Vec<CompleteSend>,
) -> Result<Vec<CompleteOutcome>> {
    let complete = Complete {
        at,
        grants_to_release,
        watched,
        fast_path: FastPath::default(),
        unseen: AtomicU32::new(0),
    };
    drive(pool, &complete, &items).await
}

/// After so many, sends end without a next one and their leases are given back: whoever claims the sessions then finds it.
const UNSEEN_MAX: u32 = 3;

struct Complete<'a> {
    at: Option<Timestamp>,
    /// Leases that were kept for a next send that cannot be read.
    grants_to_release: &'a GrantsToRelease,
    /// Which tenants have webhooks.
    watched: &'a Watched,
    fast_path: FastPath,
    /// How many statements did not see some next send that was counted.
    unseen: AtomicU32,
}

impl Group for Complete<'_> {
    type Item = CompleteSend;
    type Outcome = CompleteOutcome;
    type Seen = BTreeSet<SessionKey>;

    fn conflicts_with(&self, item: &CompleteSend, seen: &mut BTreeSet<SessionKey>) -> bool {
        !seen.insert(item.key)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&CompleteSend],
    ) -> std::result::Result<Vec<Option<CompleteOutcome>>, Fault> {
        let watched = watching(connection, self.watched).await?;
        if self.fast_path.first() && items.iter().all(|item| is_plain(item, &watched)) {
            return self.run_plain(connection, items).await;
        }
        let releases = self.unseen.load(Ordering::Relaxed) >= UNSEEN_MAX;
        let rows = bind(self.at, items, &watched, releases);
        let rows = rows.fetch_all(&mut *connection).await?;
        let lost = |_| Some(CompleteOutcome::LeaseLost);
        let mut outcomes: Vec<Option<CompleteOutcome>> = items.iter().map(lost).collect();
        for row in &rows {
            let mut fields = Fields::new(row, "sends");
            let ord = fields.ord()?;
            let unseen: bool = fields.take("unseen")?;
            if unseen {
                outcomes[ord] = None;
                continue;
            }
            let Some(mut made) = read(&mut fields, items[ord].key)? else {
                outcomes[ord] = Some(CompleteOutcome::Undelivered);
                continue;
            };
            // The send has ended: an unreadable next send must not fail the call.
            match next(&mut fields) {
                Ok(next) => made.next = next,
                Err(error) => self.give_back(items[ord], &error),
            }
            outcomes[ord] = Some(CompleteOutcome::Completed(Box::new(made)));
        }
        if outcomes.iter().any(Option::is_none) {
            self.unseen.fetch_add(1, Ordering::Relaxed);
        }
        Ok(outcomes)
    }

    /// The send is final if its last step under this grant says so. If a lost response said
    /// `Undelivered` instead, it also cleared the signals that it reported; the inbox is reported
    /// again.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&CompleteSend],
    ) -> std::result::Result<Vec<Option<CompleteOutcome>>, Fault> {
        let asked = items
            .iter()
            .map(|item| (item.key, item.lease, item.send_id));
        let written = read_written(connection, asked).await?;
        let mut outcomes: Vec<Option<CompleteOutcome>> = Vec::with_capacity(items.len());
        for (written, item) in written.into_iter().zip(items) {
            let written = written.unwrap_or_default();
            let final_step = written
                .step
                .as_ref()
                .filter(|step| step.kind == StepKind::Finished);
            let Some(step) = final_step else {
                outcomes.push(unfinished(&written));
                continue;
            };
            let mut made = completed_as(step, item.result.status);
            if written.held {
                match running(connection, item, written).await {
                    Ok(next) => made.next = next,
                    Err(Fault::Row(error)) => self.give_back(item, &error),
                    Err(fault) => return Err(fault),
                }
            } else {
                made.enqueue = written.enqueue.filter(|_| item.then == AfterSend::Release);
            }
            outcomes.push(Some(CompleteOutcome::Completed(Box::new(made))));
        }
        Ok(outcomes)
    }

    fn unsettled(&self, _: &CompleteSend) -> Result<CompleteOutcome> {
        Ok(CompleteOutcome::Locked)
    }

    fn session(&self, item: &Self::Item) -> Option<SessionKey> {
        Some(item.key)
    }

    fn locked(&self, _: &Self::Item) -> Result<Self::Outcome> {
        Ok(CompleteOutcome::Locked)
    }
}

impl Complete<'_> {
    /// Ends sends in the common case. Other items get no outcome.
    async fn run_plain(
        &self,
        connection: &mut PgConnection,
        items: &[&CompleteSend],
    ) -> std::result::Result<Vec<Option<CompleteOutcome>>, Fault> {
        let rows = bind_plain(self.at, items).fetch_all(connection).await?;
        let mut outcomes: Vec<_> = items.iter().map(|_| None).collect();
        for row in &rows {
            let mut fields = Fields::new(row, "sends");
            let ord = fields.ord()?;
            let completed = Completed {
                status: SendStatus::Completed,
                first_seq: fields.take("first_seq")?,
                step: fields.take("step")?,
                at: fields.time("now")?,
                next: None,
                enqueue: fields.ready_session(items[ord].key)?,
            };
            outcomes[ord] = Some(CompleteOutcome::Completed(Box::new(completed)));
        }
        Ok(outcomes)
    }

    /// Schedules the release of a lease whose next send cannot be read; the sweep then finds the
    /// session.
    fn give_back(&self, item: &CompleteSend, error: &Error) {
        let session = item.key.session;
        tracing::error!(
            session.id = %session,
            %error,
            "could not read the next send of a session; its lease will be released"
        );
        self.grants_to_release
            .remember([(item.key, item.lease.token.0)]);
    }
}

/// Whether an item needs nothing that only the general statements handle.
fn is_plain(item: &CompleteSend, watched: &BTreeSet<TenantId>) -> bool {
    let says = |message: &NewMessage| {
        message.tool_calls.is_empty()
            && message.tool_call_id.is_none()
            && message.name.is_none()
            && !message.failed
            && message.asked_back.is_none()
    };
    item.result.status == SendStatus::Completed
        && item.result.output.is_none()
        && item.result.error.is_none()
        && item.totals.session.is_none()
        && item.changes.is_empty()
        && item.deliveries.is_empty()
        && item.projections.is_empty()
        && item.messages.iter().all(says)
        && !watched.contains(&item.key.tenant)
}

fn bind_plain(at: Option<Timestamp>, items: &[&CompleteSend]) -> PgQuery {
    let mut leases = LeaseColumns::default();
    let mut usage = UsageColumns::default();
    let mut ords = Vec::new();
    let mut places = Vec::new();
    for (index, item) in items.iter().enumerate() {
        leases.push(item.key, item.lease, item.send_id);
        usage.push(ord(index), &item.usage);
        for place in 0..item.messages.len() {
            ords.push(ord(index));
            places.push(place as i64);
        }
    }
    let each = || items.iter();
    let messages = || items.iter().flat_map(|item| &item.messages);
    let query = leases
        .bind(sql!("leases/complete_plain").bind(at.map(|at| at.0)))
        .bind(
            each()
                .map(|it| it.messages.len() as i64)
                .collect::<Vec<_>>(),
        )
        .bind(each().map(|it| refs_of(it)).collect::<Vec<_>>())
        .bind(
            each()
                .map(|it| json(&it.totals.spending()))
                .collect::<Vec<_>>(),
        )
        .bind(each().map(|it| it.totals.rounds).collect::<Vec<_>>())
        .bind(each().map(|it| it.totals.attempts).collect::<Vec<_>>())
        .bind(
            each()
                .map(|it| it.result.stop_reason.as_str())
                .collect::<Vec<_>>(),
        )
        .bind(
            each()
                .map(|it| maybe_text(it.result.output_text.as_deref()))
                .collect::<Vec<_>>(),
        )
        .bind(
            each()
                .map(|it| it.then == AfterSend::Release)
                .collect::<Vec<_>>(),
        )
        .bind(each().map(|it| it.unless).collect::<Vec<_>>())
        .bind(each().map(|it| it.lease.write).collect::<Vec<_>>())
        .bind(ords)
        .bind(places)
        .bind(messages().map(|it| it.role.as_str()).collect::<Vec<_>>())
        .bind(messages().map(|it| json(&it.content)).collect::<Vec<_>>())
        .bind(messages().map(|it| it.round).collect::<Vec<_>>());
    usage.bind(query)
}

/// The members of a final step's JSON that are known before the step is stored.
fn refs_of(item: &CompleteSend) -> String {
    let written = StepRefs {
        round: item.round.clone(),
        ..StepRefs::default()
    };
    let mut members = ref_members(item.messages.len(), &written);
    if !members.is_empty() {
        members.push(',');
    }
    members
}

/// The statement with its arguments: the shortest one that covers the items and the webhook events
/// of their tenants. With `releases` it starts no next sends.
fn bind(
    at: Option<Timestamp>,
    items: &[&CompleteSend],
    watched: &BTreeSet<TenantId>,
    releases: bool,
) -> PgQuery {
    let mut leases = LeaseColumns::default();
    let mut counts: Vec<i64> = Vec::new();
    let mut refs: Vec<String> = Vec::new();
    let mut totals = TotalColumns::default();
    let mut results = ResultColumns::default();
    let mut released: Vec<bool> = Vec::new();
    let mut messages = MessageColumns::default();
    let mut usage = UsageColumns::default();
    let mut unless: Vec<i32> = Vec::new();
    let mut writes: Vec<i64> = Vec::new();
    let mut changes = ChangeColumns::default();
    let mut deliveries = DeliveryColumns::default();
    let mut projections = ProjectionColumns::default();
    for (index, item) in items.iter().enumerate() {
        let ord = ord(index);
        leases.push(item.key, item.lease, item.send_id);
        counts.push(item.messages.len() as i64);
        refs.push(refs_of(item));
        totals.push(&item.totals);
        results.push(item);
        released.push(releases || item.then == AfterSend::Release);
        messages.push(ord, &item.messages);
        usage.push(ord, &item.usage);
        unless.push(item.unless);
        writes.push(item.lease.write);
        changes.push(ord, &item.changes);
        deliveries.push(ord, &item.deliveries);
        projections.push(ord, &item.projections);
    }
    let tenants = items.iter().map(|item| item.key.tenant);
    let told: BTreeSet<TenantId> = tenants.filter(|it| watched.contains(it)).collect();
    let projected = !projections.is_empty();
    let alone = changes.is_empty() && deliveries.is_empty() && told.is_empty() && !projected;
    let query = if projected {
        sql!("leases/complete_projections")
    } else if alone {
        sql!("leases/complete")
    } else {
        sql!("leases/complete_calls")
    };
    let query = leases.bind(query.bind(at.map(|at| at.0)));
    let query = results.bind(totals.bind(query.bind(counts).bind(refs)));
    let query = usage.bind(messages.bind(query.bind(released).bind(unless).bind(writes)));
    if alone {
        return query;
    }
    let told: Vec<i32> = told.into_iter().map(|tenant| tenant.0).collect();
    let query = deliveries.bind(changes.bind(query)).bind(told);
    if projected {
        projections.bind(query)
    } else {
        query
    }
}

/// Results of sends.
#[derive(Debug, Default)]
struct ResultColumns {
    statuses: Vec<&'static str>,
    reasons: Vec<&'static str>,
    texts: Vec<Option<String>>,
    outputs: Vec<Option<String>>,
    errors: Vec<Option<String>>,
}

impl ResultColumns {
    fn push(&mut self, item: &CompleteSend) {
        let result = &item.result;
        self.statuses.push(result.status.as_str());
        self.reasons.push(result.stop_reason.as_str());
        self.texts.push(maybe_text(result.output_text.as_deref()));
        self.outputs.push(result.output.as_ref().map(json));
        self.errors.push(result.error.as_ref().map(json));
    }

    fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.statuses)
            .bind(self.reasons)
            .bind(self.texts)
            .bind(self.outputs)
            .bind(self.errors)
    }
}

/// The outcome for a send that is not final after a lost response. `None` if the item has to run
/// again.
fn unfinished(written: &Written) -> Option<CompleteOutcome> {
    if written.is_last {
        Some(CompleteOutcome::Undelivered)
    } else if !written.held {
        Some(CompleteOutcome::LeaseLost)
    } else {
        None
    }
}

/// Reads a completed item without its next send. `None` if a signal prevented the end.
fn read(fields: &mut Fields<'_>, key: SessionKey) -> Result<Option<Completed>> {
    let undelivered: bool = fields.take("undelivered")?;
    if undelivered {
        return Ok(None);
    }
    let status = fields.name("stored_status", SendStatus::parse)?;
    let first_seq = fields.take("first_seq")?;
    let step = fields.take("step")?;
    let at = fields.time("now")?;
    let enqueue = fields.ready_session(key)?;
    Ok(Some(Completed {
        status,
        first_seq,
        step,
        at,
        next: None,
        enqueue,
    }))
}

/// Reads the session's next send, if it has one.
fn next(fields: &mut Fields<'_>) -> Result<Option<(StartedSend, Counters)>> {
    let record = fields.maybe_send()?;
    let agent = fields.maybe_agent()?;
    let next_seq: Option<i64> = fields.take("next_seq")?;
    let pending: Option<i64> = fields.take("pending")?;
    let signals: Option<i32> = fields.take("signals")?;
    let version: Option<i64> = fields.take("context_version")?;
    let Some(record) = record else {
        return Ok(None);
    };
    let counters = Counters {
        next_seq: next_seq.unwrap_or_default(),
        pending: pending.unwrap_or_default(),
        signals: signals.unwrap_or_default(),
        context_version: version.unwrap_or_default(),
    };
    Ok(Some((started(fields, record, agent, None)?, counters)))
}

/// A completed item, reconstructed from its final step.
fn completed_as(step: &Step, asked: SendStatus) -> Completed {
    let status = step.refs.status.as_deref().and_then(SendStatus::parse);
    Completed {
        status: status.unwrap_or(asked),
        first_seq: step.refs.first_seq.unwrap_or_default(),
        step: step.n,
        at: step.at,
        next: None,
        enqueue: None::<ReadySession>,
    }
}

/// The send that runs under an item's lease now.
async fn running(
    connection: &mut PgConnection,
    item: &CompleteSend,
    written: Written,
) -> std::result::Result<Option<(StartedSend, Counters)>, Fault> {
    let rows = sql!("leases/held")
        .bind(vec![item.key.tenant.0])
        .bind(vec![item.key.session.0])
        .bind(vec![item.lease.token.0])
        .fetch_all(connection)
        .await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let mut fields = Fields::new(row, "sends");
    let record = fields.send()?;
    let agent = fields.maybe_agent()?;
    let send = started(&fields, record, agent, None)?;
    Ok(Some((send, written.counters)))
}

#[cfg(test)]
mod tests {
    const ALONE: &str = include_str!("../sql/leases/complete.sql");
    const WITH_CALLS: &str = include_str!("../sql/leases/complete_calls.sql");
    const WITH_PROJECTIONS: &str = include_str!("../sql/leases/complete_projections.sql");

    /// The statement without its leading comment.
    fn body(text: &str) -> &str {
        let begin = text.find("WITH clock").expect("it begins so");
        &text[begin..]
    }

    #[test]
    fn the_longest_statement_differs_only_in_the_projections() {
        let longest = body(WITH_PROJECTIONS);
        let begin = longest.find(",\nnew_projection AS (");
        let end = longest.find("\nSELECT\n    coalesce(e.ord");
        let (begin, end) = begin.zip(end).expect("they stand between these");
        let rest = format!("{}{}", &longest[..begin], &longest[end..]);
        assert_eq!(rest, body(WITH_CALLS));
    }

    #[test]
    fn the_two_statements_differ_only_in_the_calls_and_items() {
        let with_calls = body(WITH_CALLS);
        let begin = with_calls.find(",\n-- `change` and `delivery` are materialized");
        let end = with_calls.find("\nSELECT\n    coalesce(e.ord");
        let (begin, end) = begin.zip(end).expect("the calls stand between these");
        let rest = format!("{}{}", &with_calls[..begin], &with_calls[end..]);
        assert_eq!(rest, body(ALONE));
    }
}

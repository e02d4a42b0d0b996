//! Releasing leases of sends that wait or continue on another worker, and reading back writes under
//! leases whose response was lost.

mod end;

use std::collections::BTreeSet;

use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::step::{Step, StepKind};
use mainspring_shared::store::{
    Counters, ParkOutcome, ParkSend, ParkUntil, ReadySession, ReleaseSession, Result,
};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::columns::{LeaseColumns, TotalColumns, UsageColumns, ord};
use crate::fault::Fault;
use crate::group::{Effect, Group, drive};
use crate::retry::{Attempts, Pool, Verdict, sql};
use crate::rows::{Fields, key_columns};

use end::end;

/// Parks sends, and ends those with a raised cancel.
pub(crate) async fn park(
    pool: &Pool,
    at: Option<Timestamp>,
    items: Vec<ParkSend>,
) -> Result<Vec<ParkOutcome>> {
    let answered = drive(pool, &Park { at }, &items).await?;
    let cancelled = answered.iter().zip(&items);
    let cancelled = cancelled.filter(|(answer, _)| matches!(answer, Answer::Cancelled));
    let cancelled: Vec<ParkSend> = cancelled.map(|(_, item)| item.clone()).collect();
    let mut ended = end(pool, at, cancelled).await?.into_iter();
    let outcomes = answered.into_iter().map(|answer| match answer {
        Answer::Done(outcome) => outcome,
        Answer::Cancelled => ended.next().unwrap_or(ParkOutcome::LeaseLost),
    });
    Ok(outcomes.collect())
}

struct Park {
    at: Option<Timestamp>,
}

/// The result of parking a send.
enum Answer {
    Done(ParkOutcome),
    /// A cancel was raised and nothing was written: the send must be ended.
    Cancelled,
}

impl Effect for Answer {
    fn took_effect(&self) -> bool {
        !matches!(
            self,
            Self::Done(ParkOutcome::LeaseLost | ParkOutcome::Locked)
        )
    }
}

impl Group for Park {
    type Item = ParkSend;
    type Outcome = Answer;
    type Seen = BTreeSet<SessionKey>;

    fn conflicts_with(&self, item: &ParkSend, seen: &mut BTreeSet<SessionKey>) -> bool {
        !seen.insert(item.key)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&ParkSend],
    ) -> std::result::Result<Vec<Option<Answer>>, Fault> {
        let mut leases = LeaseColumns::default();
        let mut reasons: Vec<&'static str> = Vec::new();
        let mut waits: Vec<Option<i64>> = Vec::new();
        let mut unless: Vec<i32> = Vec::new();
        let mut writes: Vec<i64> = Vec::new();
        let mut totals = TotalColumns::default();
        let mut usage = UsageColumns::default();
        for (index, item) in items.iter().enumerate() {
            leases.push(item.key, item.lease, item.send_id);
            reasons.push(item.on.as_str());
            waits.push(match item.until {
                ParkUntil::After(wait) => Some(wait.as_millis() as i64),
                ParkUntil::Asked => None,
            });
            unless.push(item.unless);
            writes.push(item.lease.write);
            totals.push(&item.totals);
            usage.push(ord(index), &item.usage);
        }
        let query = leases.bind(sql!("leases/park").bind(self.at.map(|at| at.0)));
        let query = query.bind(reasons).bind(waits).bind(unless);
        let rows = usage
            .bind(totals.bind(query).bind(writes))
            .fetch_all(connection)
            .await?;
        let lost = || Some(Answer::Done(ParkOutcome::LeaseLost));
        let mut answers: Vec<_> = items.iter().map(|_| lost()).collect();
        for row in &rows {
            let mut fields = Fields::new(row, "session_hot");
            let ord = fields.ord()?;
            let state: &str = fields.take("state")?;
            let step: Option<i64> = fields.take("step")?;
            let signals: i32 = fields.take("signals")?;
            answers[ord] = Some(match (state, step) {
                (_, Some(step)) => Answer::Done(ParkOutcome::Parked { step }),
                ("cancelled", None) => Answer::Cancelled,
                _ => Answer::Done(ParkOutcome::Woken { signals }),
            });
        }
        Ok(answers)
    }

    /// Parking releases the lease, so the grant's last step of the send tells whether it was
    /// parked. If a lost response said `Woken`, it also cleared the signals that it reported: those
    /// of the inbox are derived from the inbox, and a result is always reported, at the cost of a
    /// needless look.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&ParkSend],
    ) -> std::result::Result<Vec<Option<Answer>>, Fault> {
        let written = read_written(connection, items.iter().map(|item| asked(item))).await?;
        let answers = written.into_iter().map(|written| {
            let written = written.unwrap_or_default();
            let outcome = match &written.step {
                // A grant ends when it parks its send.
                Some(step) if step.kind == StepKind::Waiting => {
                    ParkOutcome::Parked { step: step.n }
                }
                _ if written.is_last => ParkOutcome::Woken {
                    signals: written.counters.signals | written.for_items | SIGNAL_RESULT,
                },
                _ if !written.held => ParkOutcome::LeaseLost,
                _ => return None,
            };
            Some(Answer::Done(outcome))
        });
        Ok(answers.collect())
    }

    fn unsettled(&self, _: &ParkSend) -> Result<Answer> {
        Ok(Answer::Done(ParkOutcome::LeaseLost))
    }

    fn session(&self, item: &Self::Item) -> Option<SessionKey> {
        Some(item.key)
    }

    fn locked(&self, _: &Self::Item) -> Result<Self::Outcome> {
        Ok(Answer::Done(ParkOutcome::Locked))
    }
}

/// The lookup key for reading back a park.
fn asked(item: &ParkSend) -> (SessionKey, Lease, SendId) {
    (item.key, item.lease, item.send_id)
}

/// Releases leases. After a lost response, a missing lease counts as released.
pub(crate) async fn release(pool: &Pool, items: Vec<ReleaseSession>) -> Result<Vec<bool>> {
    let (tenants, sessions) = key_columns(items.iter().map(|item| item.key));
    let tokens: Vec<Uuid> = items.iter().map(|item| item.lease.token.0).collect();
    let lost: Vec<i16> = items.iter().map(|item| item.lost.number()).collect();
    let mut attempts = Attempts::default();
    loop {
        let query = sql!("leases/release")
            .bind(tenants.clone())
            .bind(sessions.clone())
            .bind(tokens.clone())
            .bind(lost.clone());
        let released = attempts.on(pool, async |connection| {
            Ok(query.fetch_all(connection).await?)
        });
        match released.await {
            Ok(rows) => {
                let mut held = vec![attempts.any_lost(); items.len()];
                for row in &rows {
                    held[Fields::new(row, "session_hot").ord()?] = true;
                }
                return Ok(held);
            }
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

/// What can be read back of a write under a lease whose response was lost.
#[derive(Debug)]
pub(crate) struct Written {
    /// Whether the lease still holds.
    pub(crate) held: bool,
    /// Whether the lease still holds and the write was its last one.
    pub(crate) is_last: bool,
    /// The counters of the hot row.
    pub(crate) counters: Counters,
    /// The signals for the pending inbox items.
    pub(crate) for_items: i32,
    /// The session, if it is ready.
    pub(crate) enqueue: Option<ReadySession>,
    /// The send's last step under the grant, except `resumed`.
    pub(crate) step: Option<Step>,
}

impl Default for Written {
    /// For a session without a hot row.
    fn default() -> Self {
        Self {
            held: false,
            is_last: false,
            counters: Counters {
                next_seq: 0,
                pending: 0,
                signals: 0,
                context_version: 0,
            },
            for_items: 0,
            enqueue: None,
            step: None,
        }
    }
}

pub(crate) async fn read_written(
    connection: &mut PgConnection,
    asked: impl Iterator<Item = (SessionKey, Lease, SendId)>,
) -> std::result::Result<Vec<Option<Written>>, Fault> {
    let asked: Vec<_> = asked.collect();
    let (tenants, sessions) = key_columns(asked.iter().map(|(key, ..)| *key));
    let tokens: Vec<Uuid> = asked.iter().map(|(_, lease, _)| lease.token.0).collect();
    let sends: Vec<Uuid> = asked.iter().map(|(_, _, send)| send.0).collect();
    let epochs: Vec<i64> = asked.iter().map(|(_, lease, _)| lease.epoch).collect();
    let boots: Vec<Uuid> = asked.iter().map(|(_, lease, _)| lease.boot.0).collect();
    let rows = sql!("leases/read_back")
        .bind(tenants)
        .bind(sessions)
        .bind(tokens)
        .bind(sends)
        .bind(epochs)
        .bind(boots)
        .fetch_all(connection)
        .await?;
    let mut found: Vec<Option<Written>> = asked.iter().map(|_| None).collect();
    for row in &rows {
        let mut fields = Fields::new(row, "steps");
        let ord = fields.ord()?;
        let (key, lease, send) = asked[ord];
        found[ord] = Some(written(&mut fields, key, lease, send)?);
    }
    Ok(found)
}

fn written(
    fields: &mut Fields<'_>,
    key: SessionKey,
    lease: Lease,
    send_id: SendId,
) -> Result<Written> {
    let held = fields.take("held")?;
    let writes: i64 = fields.take("writes")?;
    let counters = Counters {
        next_seq: fields.take("next_seq")?,
        pending: fields.take("pending")?,
        signals: fields.take("signals")?,
        context_version: fields.take("context_version")?,
    };
    let for_items = fields.take("for_items")?;
    let enqueue = fields.ready_session(key)?;
    let n: Option<i64> = fields.take("n")?;
    let step = match n {
        None => None,
        Some(n) => Some(Step {
            n,
            send_id,
            kind: fields.name("kind", StepKind::parse)?,
            epoch: lease.epoch,
            boot: BootId(lease.boot.0),
            at: fields.time("at")?,
            refs: fields.json("refs")?,
        }),
    };
    Ok(Written {
        held,
        is_last: held && writes == lease.write + 1,
        counters,
        for_items,
        enqueue,
        step,
    })
}

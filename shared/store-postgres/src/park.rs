//! Giving leases back with a send that waits or goes on elsewhere, and what became of writes under
//! leases whose answer was lost.

use std::collections::BTreeSet;

use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::step::{Step, StepKind};
use mainspring_shared::store::{
    Counters, ParkOutcome, ParkSend, ParkUntil, ReadySession, ReleaseSession, Result,
};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::columns::{LeaseColumns, TotalColumns, UsageColumns, ord};
use crate::group::{Group, drive};
use crate::retry::{Attempts, Fault, Pool, Verdict, sql};
use crate::rows::{Fields, key_columns};

pub(crate) async fn park(
    pool: &Pool,
    at: Option<Timestamp>,
    items: Vec<ParkSend>,
) -> Result<Vec<ParkOutcome>> {
    drive(pool, &Park { at }, &items).await
}

struct Park {
    at: Option<Timestamp>,
}

impl Group for Park {
    type Item = ParkSend;
    type Outcome = ParkOutcome;
    type Seen = BTreeSet<SessionKey>;

    fn clashes(&self, item: &ParkSend, seen: &mut BTreeSet<SessionKey>) -> bool {
        !seen.insert(item.key)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&ParkSend],
    ) -> std::result::Result<Vec<Option<ParkOutcome>>, Fault> {
        let mut leases = LeaseColumns::default();
        let mut reasons: Vec<&'static str> = Vec::new();
        let mut waits: Vec<Option<i64>> = Vec::new();
        let mut totals = TotalColumns::default();
        let mut usage = UsageColumns::default();
        for (index, item) in items.iter().enumerate() {
            leases.push(item.key, item.lease, item.send_id);
            reasons.push(item.on.as_str());
            waits.push(match item.until {
                ParkUntil::After(wait) => Some(wait.as_millis() as i64),
                ParkUntil::Asked => None,
            });
            totals.push(&item.totals);
            usage.push(ord(index), &item.usage);
        }
        let query = leases.bind(sql!("leases/park").bind(self.at.map(|at| at.0)));
        let query = usage.bind(totals.bind(query.bind(reasons).bind(waits)));
        let rows = query.fetch_all(connection).await?;
        let mut outcomes: Vec<_> = items.iter().map(|_| Some(ParkOutcome::LeaseLost)).collect();
        for row in &rows {
            let mut fields = Fields::new(row, "session_hot");
            let ord = fields.ord()?;
            let step = fields.take("step")?;
            let cancelled = fields.take("cancelled")?;
            let ring = fields.ring(items[ord].key)?;
            outcomes[ord] = Some(if cancelled {
                ParkOutcome::Cancelled { step, ring }
            } else {
                ParkOutcome::Parked { step }
            });
        }
        Ok(outcomes)
    }

    /// A park gives its lease back, so what this grant last wrote on the send tells.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&ParkSend],
    ) -> std::result::Result<Vec<Option<ParkOutcome>>, Fault> {
        let asked = items
            .iter()
            .map(|item| (item.key, item.lease, item.send_id));
        let written = read_written(connection, asked).await?;
        let outcomes = written.into_iter().map(|written| {
            let written = written.unwrap_or_default();
            match written.step {
                Some(step) if step.kind == StepKind::Waiting => {
                    Some(ParkOutcome::Parked { step: step.n })
                }
                Some(step) if step.kind == StepKind::Finished => Some(ParkOutcome::Cancelled {
                    step: step.n,
                    ring: written.ring,
                }),
                _ if written.held => None,
                _ => Some(ParkOutcome::LeaseLost),
            }
        });
        Ok(outcomes.collect())
    }

    fn unsettled(&self, _: &ParkSend) -> Result<ParkOutcome> {
        Ok(ParkOutcome::LeaseLost)
    }
}

/// Gives leases back. After a commit whose answer was lost, an absent lease counts as given back.
pub(crate) async fn release(pool: &Pool, items: Vec<ReleaseSession>) -> Result<Vec<bool>> {
    let (tenants, sessions) = key_columns(items.iter().map(|item| item.key));
    let tokens: Vec<Uuid> = items.iter().map(|item| item.lease.token.0).collect();
    let mut attempts = Attempts::default();
    loop {
        let query = sql!("leases/release")
            .bind(tenants.clone())
            .bind(sessions.clone())
            .bind(tokens.clone());
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

/// What is known of a write under a lease whose answer was lost.
#[derive(Debug)]
pub(crate) struct Written {
    /// Whether the lease still holds.
    pub(crate) held: bool,
    /// The hot row's numbers.
    pub(crate) counters: Counters,
    /// Whether a send is begun.
    pub(crate) is_active: bool,
    /// Set when the session is ready.
    pub(crate) ring: Option<ReadySession>,
    /// The send's last step under the grant, `resumed` aside.
    pub(crate) step: Option<Step>,
}

impl Default for Written {
    /// What is known of a session without a hot row.
    fn default() -> Self {
        Self {
            held: false,
            counters: Counters {
                next_seq: 0,
                pending: 0,
                signals: 0,
            },
            is_active: false,
            ring: None,
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
    let rows = sql!("leases/read_back")
        .bind(tenants)
        .bind(sessions)
        .bind(tokens)
        .bind(sends)
        .bind(epochs)
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
    let counters = Counters {
        next_seq: fields.take("next_seq")?,
        pending: fields.take("pending")?,
        signals: fields.take("signals")?,
    };
    let active: i16 = fields.take("active")?;
    let ring = fields.ring(key)?;
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
        counters,
        is_active: active != 0,
        ring,
        step,
    })
}

//! Results and permissions from outside.

use std::collections::BTreeSet;

use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{CallAnswer, PostOutcome, PostResult, Result};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{Approval, CallRecord};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::columns::text;
use crate::ledger::{Ledger, RoundKey, Told};
use crate::retry::{Attempts, Fault, Pool, Verdict, sql};
use crate::rows::Fields;

pub(crate) async fn post(
    pool: &Pool,
    at: Option<Timestamp>,
    items: &[PostResult],
) -> Result<Vec<PostOutcome>> {
    let mut attempts = Attempts::default();
    loop {
        let was_lost = attempts.any_lost();
        let posted = attempts.on(pool, async |connection| {
            post_once(connection, at, items, was_lost).await
        });
        match posted.await {
            Ok(outcomes) => return Ok(outcomes),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

/// Where a call is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    pub(crate) key: SessionKey,
    pub(crate) round: RoundKey,
}

async fn post_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    items: &[PostResult],
    was_lost: bool,
) -> std::result::Result<Vec<PostOutcome>, Fault> {
    let mut tx = connection.begin().await?;
    let homes = homes(&mut tx, items).await?;
    let known = || homes.iter().flatten();
    // No step is written, so no process has to stand for one.
    let nobody = BootId(Uuid::nil());
    let mut ledger = Ledger::lock(&mut tx, at, nobody, known().map(|home| home.key)).await?;
    ledger.read_heads(&mut tx).await?;
    let rounds = known().map(|home| home.round);
    ledger.read_rounds(&mut tx, rounds).await?;
    let mut ours = Ours {
        was_lost,
        answered: BTreeSet::new(),
    };
    let outcomes = homes.iter().zip(items);
    let outcomes = outcomes.map(|(home, item)| match home {
        Some(home) => ours.post(&mut ledger, *home, item),
        None => PostOutcome::Unknown,
    });
    let outcomes = outcomes.collect();
    ledger.write(&mut tx).await?;
    tx.commit().await?;
    Ok(outcomes)
}

/// Finds the calls that may be answered in their items' names.
async fn homes(
    connection: &mut PgConnection,
    items: &[PostResult],
) -> std::result::Result<Vec<Option<Home>>, Fault> {
    let tenants: Vec<i32> = items.iter().map(|item| item.key.tenant.0).collect();
    let ids = items.iter().map(|item| text(&item.call_id).into_owned());
    let above: Vec<Uuid> = items.iter().map(|item| item.key.session.0).collect();
    let rows = sql!("calls/homes")
        .bind(tenants)
        .bind(ids.collect::<Vec<_>>())
        .bind(above)
        .fetch_all(connection)
        .await?;
    let mut homes = vec![None; items.len()];
    for row in &rows {
        let mut fields = Fields::new(row, "tool_calls");
        let ord = fields.ord()?;
        homes[ord] = Some(Home::read(&mut fields)?);
    }
    Ok(homes)
}

impl Home {
    /// The columns `tenant, session_id, send_id, round`.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let key = fields.key()?;
        let round = RoundKey {
            tenant: key.tenant,
            send: SendId(fields.take("send_id")?),
            round: fields.take("round")?,
        };
        Ok(Self { key, round })
    }
}

/// What tells an answer that an earlier attempt stored from one that came too late.
struct Ours {
    /// An earlier attempt may have been committed.
    was_lost: bool,
    answered: BTreeSet<(TenantId, String)>,
}

impl Ours {
    fn post(&mut self, ledger: &mut Ledger, home: Home, item: &PostResult) -> PostOutcome {
        let Home { key, round } = home;
        let call_id = text(&item.call_id).into_owned();
        // A session that was deleted meanwhile took its calls along.
        let Some(call) = ledger.call(round, &call_id) else {
            return PostOutcome::Unknown;
        };
        let is_first = self.answered.insert((key.tenant, call_id.clone()));
        let told = if self.was_lost && is_first && stands(call, &item.answer) {
            ledger.told_before(key)
        } else if call.result.is_some() {
            return PostOutcome::AlreadySettled;
        } else if takes(call, &item.answer) {
            answer(ledger, home, &call_id, &item.answer)
        } else {
            return PostOutcome::NotWaiting;
        };
        PostOutcome::Accepted {
            key,
            send_id: round.send,
            ring: told.ring,
            owner: told.owner,
        }
    }
}

fn answer(ledger: &mut Ledger, home: Home, call_id: &str, answer: &CallAnswer) -> Told {
    let Home { key, round } = home;
    match answer {
        CallAnswer::Result(result) => ledger.settle_call(key, round, call_id, result.clone()),
        CallAnswer::Approve => ledger.change_call(key, round, call_id, |call| {
            call.approval = Approval::Given;
            call.waits_on = None;
            call.deadline_at = None;
        }),
    }
}

/// Whether an unsettled call waits for such an answer.
fn takes(call: &CallRecord, answer: &CallAnswer) -> bool {
    let asked = call.approval == Approval::Asked;
    match (call.waits_on, answer) {
        (None, _) => false,
        (Some(WaitingOn::Tool | WaitingOn::Human), CallAnswer::Result(_)) => true,
        (Some(_), CallAnswer::Result(_) | CallAnswer::Approve) => asked,
    }
}

/// Whether a call has this answer.
fn stands(call: &CallRecord, answer: &CallAnswer) -> bool {
    match answer {
        CallAnswer::Result(result) => call.result.as_ref() == Some(result),
        CallAnswer::Approve => call.approval == Approval::Given,
    }
}

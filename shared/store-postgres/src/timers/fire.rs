//! Firing due timers: claim, decide, accept and store, in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, CreateRunOutcome, Fired, FiredRun, FiredSend, NewRun, Result,
    TimerDelivery, WebhookNews, deliveries, refusal, run_refusal,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Event, Occurrence, Refusal, Step, TimerRecord, transition};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::accept::accept_within;
use crate::columns::json;
use crate::fault::Fault;
use crate::ledger::{locked_out, now};
use crate::retry::{Attempts, Pool, Verdict, sql};
use crate::rows::{Fields, readable};
use crate::{runs, webhooks};

/// Sends that one transaction accepts. Timers after those stay due.
const SENDS_MAX: usize = 2_000;

/// A claimed timer and its step.
struct Claimed {
    timer: TimerRecord,
    queued: Option<SendId>,
    step: Step,
}

impl Claimed {
    /// Decides again after the timer's send or run was refused.
    fn refuse(&mut self, refusal: Refusal, now: Timestamp) {
        let event = Event::Due {
            queued: self.queued,
            refused: Some(refusal),
        };
        if let Ok(step) = transition(&self.timer, &event, now) {
            self.step = step;
        }
    }
}

pub(crate) async fn fire(
    pool: &Pool,
    at: Option<Timestamp>,
    boot: BootId,
    limit: u32,
) -> Result<Fired> {
    let mut attempts = Attempts::default();
    loop {
        let fired = attempts.on(pool, async |connection| {
            fire_once(connection, at, boot, limit).await
        });
        match fired.await {
            Ok(fired) => return Ok(fired),
            // Timers that a lost attempt fired are no longer due; the sweep enqueues their sends.
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn fire_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    boot: BootId,
    limit: u32,
) -> std::result::Result<Fired, Fault> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let mut fired = Fired {
        now,
        ..Fired::default()
    };
    let mut claimed = claim(&mut tx, now, limit, &mut fired).await?;
    let any_left = leave_locked(&mut tx, &mut claimed).await?;
    deliver(&mut tx, boot, &mut claimed, &mut fired).await?;
    let steps: Vec<_> = claimed.into_iter().map(|c| (c.timer, c.step)).collect();
    settle(&mut tx, now, &steps).await?;
    let news = steps.iter();
    let news = news.filter_map(|(timer, step)| WebhookNews::of_firing(timer, step, now));
    webhooks::note(&mut tx, news.collect()).await?;
    let next = sql!("timers/next")
        .bind(now.0)
        .fetch_optional(&mut *tx)
        .await?;
    if let Some(row) = next {
        fired.next_due_at = Some(Fields::new(&row, "timers").time("fire_at")?);
    }
    if any_left {
        fired.retry_locked();
    }
    tx.commit().await?;
    Ok(fired)
}

/// Claims due timers and decides their steps.
async fn claim(
    tx: &mut PgConnection,
    now: Timestamp,
    limit: u32,
    fired: &mut Fired,
) -> std::result::Result<Vec<Claimed>, Fault> {
    let mut claimed = Vec::new();
    let mut sends = 0;
    let mut passed_over = 0;
    loop {
        let rows = sql!("timers/due")
            .bind(now.0)
            .bind(i64::from(limit))
            .bind(passed_over)
            .fetch_all(&mut *tx)
            .await?;
        fired.more = rows.len() >= limit as usize;
        let due = readable(rows.iter().map(due));
        passed_over += (rows.len() - due.len()) as i64;
        let none_left = due.is_empty();
        for (timer, queued) in due {
            if sends >= SENDS_MAX {
                fired.more = true;
                break;
            }
            let event = Event::Due {
                queued,
                refused: None,
            };
            if let Ok(step) = transition(&timer, &event, now) {
                sends += step.occurrences.len();
                claimed.push(Claimed {
                    timer,
                    queued,
                    step,
                });
            }
        }
        // After a page of unreadable timers there may be others.
        if !(none_left && fired.more) {
            return Ok(claimed);
        }
    }
}

/// Reads a due timer, and its last send if that has not started.
fn due(row: &PgRow) -> Result<(TimerRecord, Option<SendId>)> {
    let mut fields = Fields::new(row, "timers");
    Ok((fields.timer()?, fields.maybe_send_id("queued")?))
}

/// Drops timers whose session another transaction has locked: they stay due, and the others fire.
/// Returns whether there were any.
async fn leave_locked(
    tx: &mut PgConnection,
    claimed: &mut Vec<Claimed>,
) -> std::result::Result<bool, Fault> {
    let keys: BTreeSet<SessionKey> = claimed.iter().flat_map(sends_to).collect();
    let locked = locked_out(tx, keys).await?;
    claimed.retain(|claimed| !sends_to(claimed).iter().any(|key| locked.contains(key)));
    Ok(!locked.is_empty())
}

/// The sessions to which a timer's sends go.
fn sends_to(claimed: &Claimed) -> Vec<SessionKey> {
    let wanted = deliveries(&claimed.timer, &claimed.step).into_iter();
    let keys = wanted.filter_map(|(_, delivery)| match delivery {
        TimerDelivery::Send(item) => Some(item.target.key()),
        TimerDelivery::Run(_) => None,
    });
    keys.collect()
}

/// Accepts the sends and creates the runs of timers. After a refused one, all later ones of the
/// same timer are refused, too: its session is closed, gone or full.
async fn deliver(
    tx: &mut PgConnection,
    boot: BootId,
    claimed: &mut [Claimed],
    fired: &mut Fired,
) -> std::result::Result<(), Fault> {
    let mut wanted: Vec<(usize, i64, Timestamp)> = Vec::new();
    let mut items: Vec<AcceptSend> = Vec::new();
    let mut started: Vec<(usize, i64, Timestamp)> = Vec::new();
    let mut runs: Vec<NewRun> = Vec::new();
    let mut refused: BTreeMap<usize, Refusal> = BTreeMap::new();
    for (index, claimed) in claimed.iter().enumerate() {
        for (occurrence, delivery) in deliveries(&claimed.timer, &claimed.step) {
            let place = (index, occurrence.n, occurrence.due_at);
            match delivery {
                TimerDelivery::Send(item) => {
                    wanted.push(place);
                    items.push(*item);
                }
                TimerDelivery::Run(new) => {
                    started.push(place);
                    runs.push(*new);
                }
            }
        }
    }
    let accepted = accept_within(tx, fired.now, boot, &items).await?;
    for (((index, n, due_at), item), outcome) in wanted.into_iter().zip(items).zip(accepted) {
        if let Some(refusal) = refusal(n, &outcome) {
            refused.entry(index).or_insert(refusal);
        } else if let AcceptOutcome::Accepted(accepted) = outcome {
            fired.enqueue.extend(accepted.enqueue);
            fired.sends.push(FiredSend {
                key: item.target.key(),
                send: item.id,
                step: accepted.step,
                due_at,
            });
        }
    }
    let created = runs::create_within(tx, fired.now, &runs).await?;
    for ((index, n, due_at), outcome) in started.into_iter().zip(created) {
        if let Some(refusal) = run_refusal(n, &outcome) {
            refused.entry(index).or_insert(refusal);
        } else if let CreateRunOutcome::Created(run) = outcome {
            fired.runs.push(FiredRun {
                key: run.key,
                due_at,
            });
        }
    }
    for (index, claimed) in claimed.iter_mut().enumerate() {
        let refusal = refused.remove(&index);
        let is_refused = refusal.is_some();
        if let Some(refusal) = refusal {
            claimed.refuse(refusal, fired.now);
        }
        fired.count(&claimed.step, is_refused);
    }
    Ok(())
}

/// Stores the new states of locked timers after their steps.
pub(super) async fn settle(
    tx: &mut PgConnection,
    now: Timestamp,
    steps: &[(TimerRecord, Step)],
) -> std::result::Result<(), Fault> {
    if steps.is_empty() {
        return Ok(());
    }
    let all = || steps.iter().map(|(timer, step)| (timer, &step.next));
    let occurred = || {
        let each = |(timer, step): &'_ (TimerRecord, Step)| {
            let key = (timer.tenant, timer.id);
            let occurrences = step.occurrences.clone();
            occurrences.into_iter().map(move |o| (key, o))
        };
        steps.iter().flat_map(each)
    };
    let occurred: Vec<(_, Occurrence)> = occurred().collect();
    let time = |at: Option<Timestamp>| at.map(|at| at.0);
    sql!("timers/settle")
        .bind(all().map(|(t, _)| t.tenant.0).collect::<Vec<i32>>())
        .bind(all().map(|(t, _)| t.id.0).collect::<Vec<Uuid>>())
        .bind(all().map(|(_, s)| s.status.as_str()).collect::<Vec<_>>())
        .bind(all().map(|(_, s)| s.next_n).collect::<Vec<_>>())
        .bind(all().map(|(_, s)| time(s.due_at)).collect::<Vec<_>>())
        .bind(all().map(|(_, s)| time(s.fire_at)).collect::<Vec<_>>())
        .bind(all().map(|(_, s)| s.failures).collect::<Vec<_>>())
        .bind(
            all()
                .map(|(_, s)| s.failure.as_ref().map(json))
                .collect::<Vec<_>>(),
        )
        .bind(
            all()
                .map(|(_, s)| s.last_send.map(|id| id.0))
                .collect::<Vec<_>>(),
        )
        .bind(
            all()
                .map(|(_, s)| time(s.last_fired_at))
                .collect::<Vec<_>>(),
        )
        .bind(all().map(|(_, s)| time(s.ended_at)).collect::<Vec<_>>())
        .bind(occurred.iter().map(|((t, _), _)| t.0).collect::<Vec<i32>>())
        .bind(
            occurred
                .iter()
                .map(|((_, id), _)| id.0)
                .collect::<Vec<Uuid>>(),
        )
        .bind(occurred.iter().map(|(_, o)| o.n).collect::<Vec<_>>())
        .bind(occurred.iter().map(|(_, o)| o.due_at.0).collect::<Vec<_>>())
        .bind(
            occurred
                .iter()
                .map(|(_, o)| o.fate.as_str())
                .collect::<Vec<_>>(),
        )
        .bind(
            occurred
                .iter()
                .map(|(_, o)| o.send_id.map(|id| id.0))
                .collect::<Vec<_>>(),
        )
        .bind(
            occurred
                .iter()
                .map(|(_, o)| o.fired_at.0)
                .collect::<Vec<_>>(),
        )
        .bind(occurred.iter().map(|(_, o)| o.manual).collect::<Vec<_>>())
        .bind(now.0)
        .execute(tx)
        .await?;
    Ok(())
}

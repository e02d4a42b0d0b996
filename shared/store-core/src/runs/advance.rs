//! Advances of runs.

use mainspring_shared::agent::{OnBusy, SendOptions};
use mainspring_shared::id::{BootId, RunKey};
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::session::hot::SendState;
use mainspring_shared::session::transition::{self, AtRest, Notify};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AdvanceOutcome, AdvanceRun, RunReport, RunWords, Target,
    WebhookNews, passes_bound,
};

use super::{live, takes_sends};
use crate::db::sql;
use crate::fault::Result;
use crate::query::{query_scalar, statement};
use crate::rows::json;
use crate::store::Tx;
use crate::{accept, calls, hot, inbox, post, webhooks};

/// Advances runs one after the other.
pub(crate) async fn advance(
    tx: &mut Tx,
    boot: BootId,
    items: Vec<AdvanceRun>,
) -> Result<Vec<AdvanceOutcome>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(advance_one(tx, boot, item).await?);
    }
    Ok(outcomes)
}

async fn advance_one(tx: &mut Tx, boot: BootId, item: AdvanceRun) -> Result<AdvanceOutcome> {
    let now = tx.now;
    let RunKey { tenant, run } = item.run.key;
    // A leaf cannot continue in a session that is gone; the caller has to compute the advance
    // again.
    for start in &item.start {
        if let Target::Existing(key) = &start.target
            && !takes_sends(tx, *key).await?
        {
            return Ok(AdvanceOutcome::Lost);
        }
    }
    if item.leaves_max.is_some() && !item.start.is_empty() {
        let (all, own) = live(tx, item.run.key).await?;
        if passes_bound(&item, all, own) {
            return Ok(if owns(tx, boot, &item).await? {
                AdvanceOutcome::NoRoom
            } else {
                AdvanceOutcome::Lost
            });
        }
    }
    if !write_run(tx, boot, &item).await? {
        return Ok(AdvanceOutcome::Lost);
    }
    let step = item.step + 1;
    statement(sql!("runs/write_nodes"))
        .bind(tenant.0)
        .bind(run.0)
        .bind(json(&item.nodes)?)
        .execute(tx.conn())
        .await?;
    for end in &item.ends {
        statement(sql!("sends/reported"))
            .bind(tenant.0)
            .bind(end.0)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
    }
    for ask in &item.asks {
        statement(sql!("runs/drop_ask"))
            .bind(*ask)
            .execute(tx.conn())
            .await?;
    }
    statement(sql!("runs/write_step"))
        .bind(tenant.0)
        .bind(run.0)
        .bind(step)
        .bind(now.0)
        .bind(boot.0)
        .bind(json(&item.changes)?)
        .execute(tx.conn())
        .await?;
    if let Some(news) = WebhookNews::of_advance(&item, now) {
        webhooks::note(tx, &news).await?;
    }
    let mut enqueue = Vec::new();
    for outcome in accept::all(tx, boot, item.start).await? {
        if let AcceptOutcome::Accepted(accepted) = outcome {
            enqueue.extend(accepted.enqueue);
        }
    }
    let mut owner = None;
    if let Some(report) = item.report {
        let session = report.session;
        let notify = tell(tx, boot, report).await?;
        enqueue.extend(notify.ready);
        owner = notify.owner.map(|boot| (session, boot));
    }
    Ok(AdvanceOutcome::Advanced {
        step,
        enqueue,
        notify: owner,
    })
}

/// Whether the boot owns the run, at the step that the item is based on.
async fn owns(tx: &mut Tx, boot: BootId, item: &AdvanceRun) -> Result<bool> {
    let RunKey { tenant, run } = item.run.key;
    let owns = query_scalar(sql!("runs/owned"))
        .bind(tenant.0)
        .bind(run.0)
        .bind(boot.0)
        .bind(item.step)
        .fetch_one(tx.conn())
        .await?;
    Ok(owns)
}

/// Writes the run's row; false if the boot does not own the run, or it was advanced in the
/// meantime.
async fn write_run(tx: &mut Tx, boot: BootId, item: &AdvanceRun) -> Result<bool> {
    let record = &item.run;
    let keeps = !item.release && !record.status.is_final();
    let done = statement(sql!("runs/advance"))
        .bind(record.key.tenant.0)
        .bind(record.key.run.0)
        .bind(boot.0)
        .bind(item.step)
        .bind(record.status.as_str())
        .bind(record.attempt)
        .bind(json(&record.options)?)
        .bind(record.result.as_ref().map(json).transpose()?)
        .bind(record.error.as_ref().map(json).transpose()?)
        .bind(json(&record.usage)?)
        .bind(json(&record.counts)?)
        .bind(record.alarm_at.map(|at| at.0))
        .bind(record.started_at.map(|at| at.0))
        .bind(record.finished_at.map(|at| at.0))
        .bind(keeps.then_some(boot.0))
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Reports a run's end to the session that waits for it: an open call gets a result, a busy session
/// an inbox item, and an idle one a send unless it need not be woken.
async fn tell(tx: &mut Tx, boot: BootId, report: RunReport) -> Result<Notify> {
    let key = report.session;
    let Some(session) = hot::load(tx, key).await? else {
        return Ok(Notify::default());
    };
    let hot = session.hot;
    if let Some((call_id, result)) = &report.call
        && let Some(call) = calls::get(tx.conn(), key.tenant, call_id).await?
        && call.result.is_none()
    {
        calls::settle(tx, key.tenant, call_id, result).await?;
        return post::answered(tx, &hot, &call).await;
    }
    let Some(RunWords {
        item_id,
        send,
        content,
        wake,
        ended_run,
    }) = report.words
    else {
        return Ok(Notify::default());
    };
    let head = hot::head(tx, key).await?;
    let state = head.as_ref().map(SendState::of);
    let at_rest = if wake { AtRest::Send } else { AtRest::Keep };
    if let Some(what) = transition::report(&hot, state.as_ref(), at_rest, tx.now) {
        let item = InboxItem {
            id: item_id,
            n: what.n,
            kind: ItemKind::Child,
            mode: OnBusy::Steer,
            send_id: what.send,
            content,
            fate: Fate::Pending,
            seq: None,
            created_at: tx.now,
            settled_at: None,
        };
        return inbox::store(tx, key, what, &item).await;
    }
    let send = AcceptSend {
        id: send,
        target: Target::Existing(key),
        input: content,
        options: SendOptions {
            ended_run,
            ..SendOptions::default()
        },
        reports_to: None,
        run: None,
        idempotency: None,
        queued_max: i64::MAX,
        keeper: None,
    };
    let outcomes = accept::all(tx, boot, vec![send]).await?;
    let enqueue = outcomes.into_iter().find_map(|outcome| match outcome {
        AcceptOutcome::Accepted(accepted) => accepted.enqueue,
        AcceptOutcome::Replayed(_)
        | AcceptOutcome::Mismatch
        | AcceptOutcome::Refused(_)
        | AcceptOutcome::Locked => None,
    });
    Ok(Notify {
        ready: enqueue,
        owner: None,
    })
}

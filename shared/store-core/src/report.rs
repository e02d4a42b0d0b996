//! Reporting the ends of children to their parents.

use std::collections::BTreeMap;

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::hot::{HotRow, SendState};
use mainspring_shared::session::transition::{self, AtRest, Notify};
use mainspring_shared::store::ReportOutcome;
use mainspring_shared::tool::{child_item, child_result};

use crate::calls;
use crate::db::sql;
use crate::fault::{Result, skipped};
use crate::hot;
use crate::inbox;
use crate::post;
use crate::query::statement;
use crate::row::Row;
use crate::rows::{self, Cells};
use crate::store::Tx;

/// Reports final sends, oldest first.
pub(crate) async fn all(
    tx: &mut Tx,
    sends: Option<Vec<(TenantId, SendId)>>,
    limit: u32,
) -> Result<Vec<ReportOutcome>> {
    match sends {
        Some(sends) => {
            let ended = named(tx, sends, limit).await?;
            let mut outcomes = Vec::with_capacity(ended.len());
            for send in ended {
                tx.begin_item().await?;
                let told = one(tx, &send).await;
                outcomes.extend(tx.end_item(told).await?.flatten());
            }
            Ok(outcomes)
        }
        None => oldest(tx, limit).await,
    }
}

async fn oldest(tx: &mut Tx, limit: u32) -> Result<Vec<ReportOutcome>> {
    let mut outcomes = Vec::new();
    let mut passed_over = 0;
    loop {
        let rows = statement(sql!("sends/unreported"))
            .bind(limit)
            .bind(passed_over)
            .fetch_all(tx.conn())
            .await?;
        let sick_before = passed_over;
        for row in &rows {
            tx.begin_item().await?;
            let told = one_of_row(tx, row).await;
            match tx.end_item(told).await? {
                Some(told) => outcomes.extend(told),
                None => passed_over += 1,
            }
        }
        // If a whole page cannot be read, try the next page.
        let sick = (passed_over - sick_before) as usize;
        if sick < rows.len() || rows.len() < limit as usize {
            return Ok(outcomes);
        }
    }
}

async fn one_of_row(tx: &mut Tx, row: &Row) -> Result<Option<ReportOutcome>> {
    let send = rows::send(&mut Cells::new(row, "sends"))?;
    one(tx, &send).await
}

/// The unreported ones among these sends, each once.
async fn named(tx: &mut Tx, sends: Vec<(TenantId, SendId)>, limit: u32) -> Result<Vec<SendRecord>> {
    let mut found = BTreeMap::new();
    for (tenant, id) in sends {
        let row = statement(sql!("sends/unreported_one"))
            .bind(tenant.0)
            .bind(id.0)
            .fetch_optional(tx.conn())
            .await?;
        if let Some(row) = row {
            match rows::send(&mut Cells::new(&row, "sends")) {
                Ok(send) => {
                    found.insert((send.finished_at, id, tenant), send);
                }
                Err(fault) => skipped(&fault),
            }
        }
    }
    Ok(found.into_values().take(limit as usize).collect())
}

/// The session that requested a send.
async fn parent(tx: &mut Tx, send: &SendRecord) -> Result<Option<SessionKey>> {
    let Some(call_id) = &send.reports_to else {
        return Ok(None);
    };
    let tenant = send.key.tenant;
    let call = calls::get(tx.conn(), tenant, call_id).await?;
    Ok(call.map(|call| SessionKey {
        tenant,
        session: call.session,
    }))
}

/// Reports a send to its parent: the session that made the call. The call names it even if the
/// child was deleted; once the call is gone, there is no parent. While the parent is locked by
/// someone else, the send stays unreported.
async fn one(tx: &mut Tx, send: &SendRecord) -> Result<Option<ReportOutcome>> {
    let now = tx.now;
    let tenant = send.key.tenant;
    if tx.contended.is_some()
        && let Some(parent) = parent(tx, send).await?
        && !hot::try_lock(tx, parent).await?
    {
        return Ok(None);
    }
    let reported = statement(sql!("sends/reported"))
        .bind(tenant.0)
        .bind(send.id.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let Some(call_id) = send
        .reports_to
        .as_ref()
        .filter(|_| reported.rows_affected() > 0)
    else {
        return Ok(None);
    };
    let Some(call) = calls::get(tx.conn(), tenant, call_id).await? else {
        return Ok(None);
    };
    let parent = SessionKey {
        tenant,
        session: call.session,
    };
    let Some(session) = hot::load(tx, parent).await? else {
        return Ok(None);
    };
    let hot = session.hot;
    // The call may have been settled before its session was locked.
    let Some(call) = calls::get(tx.conn(), tenant, call_id).await? else {
        return Ok(None);
    };
    let notify = if call.result.is_none() {
        calls::settle(tx, tenant, call_id, &child_result(send)).await?;
        post::answered(tx, &hot, &call).await?
    } else {
        keep(tx, &hot, send, call_id).await?
    };
    Ok(Some(ReportOutcome {
        send_id: send.id,
        parent,
        enqueue: notify.ready,
        owner: notify.owner,
    }))
}

/// Puts the end of a child into its parent's inbox. The call that requested it was settled before,
/// because the child worked in the background or the parent was interrupted.
async fn keep(tx: &mut Tx, hot: &HotRow, send: &SendRecord, call_id: &str) -> Result<Notify> {
    let head = hot::head(tx, hot.key).await?;
    let state = head.as_ref().map(SendState::of);
    let Some(what) = transition::report(hot, state.as_ref(), AtRest::Keep, tx.now) else {
        return Ok(Notify::default());
    };
    let (id, content) = child_item(send, call_id);
    let item = InboxItem {
        id,
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
    inbox::store(tx, hot.key, what, &item).await
}

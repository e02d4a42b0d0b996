//! Tool calls: their rows from request to result.

use std::collections::BTreeSet;

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::hot::HotRow;
use mainspring_shared::session::transition::Grant;
use mainspring_shared::store;
use mainspring_shared::store::{
    CallBegin, CallChange, CallStep, Calls, ClaimableCalls, ListWaitingCalls, NewCall, Page,
    PostOutcome, PostResult, ReadInbox, ReportOutcome,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{
    Approval, CallRecord, CallResult, answers, calls_of_round, cancelled_call, interrupted_call,
};
use serde::Serialize;

use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::{query_scalar, statement};
use crate::reads::page;
use crate::row::Row;
use crate::rows::{self, Cells, json};
use crate::store::{SqlStore, Tx, clock};
use crate::{inbox, post, report};

#[async_trait]
impl Calls for SqlStore {
    async fn post_results(&self, items: Vec<PostResult>) -> store::Result<Vec<PostOutcome>> {
        self.write(items, |tx, items| Box::pin(post::all(tx, items)))
            .await
    }

    async fn report_children(
        &self,
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> store::Result<Vec<ReportOutcome>> {
        self.write((sends, limit), |tx, (sends, limit)| {
            Box::pin(report::all(tx, sends, limit))
        })
        .await
    }

    async fn read_round(
        &self,
        key: SessionKey,
        send: SendId,
        round: i32,
    ) -> store::Result<Vec<CallRecord>> {
        self.read(move |conn| Box::pin(of_round(conn, key, send, round)))
            .await
    }

    async fn get_calls(
        &self,
        ids: Vec<(TenantId, String)>,
    ) -> store::Result<Vec<Option<CallRecord>>> {
        self.read(|conn| Box::pin(by_id(conn, ids))).await
    }

    async fn list_waiting_calls(&self, query: ListWaitingCalls) -> store::Result<Page<CallRecord>> {
        self.read(move |conn| Box::pin(waiting(conn, query))).await
    }

    async fn claimable_calls(&self, query: ClaimableCalls) -> store::Result<Page<CallRecord>> {
        self.read(move |conn| Box::pin(claimable(conn, self.at, query)))
            .await
    }

    async fn lapsed_calls(&self, limit: u32) -> store::Result<Vec<(SessionKey, String)>> {
        self.read(move |conn| Box::pin(lapsed(conn, self.at, limit)))
            .await
    }

    async fn read_inbox(&self, query: ReadInbox) -> store::Result<Vec<InboxItem>> {
        self.read(move |conn| Box::pin(inbox::read(conn, query)))
            .await
    }
}

/// A row of `tool_calls`, as the statement's parameter.
#[derive(Debug, Serialize)]
struct CallCells<'c> {
    call_id: &'c str,
    round: i32,
    place: i32,
    name: &'c str,
    arguments: String,
    repeat: &'static str,
    approval: &'static str,
    #[serde(flatten)]
    state: StateCells,
}

/// The state of a call after a step.
#[derive(Debug, Default, Serialize)]
struct StateCells {
    waits_on: Option<&'static str>,
    started_epoch: Option<i64>,
    deadline_at: Option<i64>,
    asked: Option<String>,
    result: Option<String>,
}

impl StateCells {
    fn started(author: Grant) -> Self {
        Self {
            started_epoch: Some(author.epoch),
            ..Self::default()
        }
    }

    fn settled(result: &CallResult) -> Result<Self> {
        Ok(Self {
            result: Some(json(result)?),
            ..Self::default()
        })
    }
}

/// Stores the calls that a send's message requests.
pub(crate) async fn insert(
    tx: &mut Tx,
    key: SessionKey,
    send: SendId,
    author: Grant,
    calls: &[NewCall],
) -> Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let now = tx.now;
    let rows = calls.iter().map(|call| call_cells(call, author, now));
    let rows = json(&rows.collect::<Result<Vec<_>>>()?)?;
    statement(sql!("calls/insert"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(send.0)
        .bind(rows)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

fn call_cells(call: &NewCall, author: Grant, now: Timestamp) -> Result<CallCells<'_>> {
    let mut approval = Approval::None;
    let state = match &call.begins {
        CallBegin::Started => StateCells::started(author),
        CallBegin::Requested => StateCells::default(),
        CallBegin::Waits {
            on,
            approval: asked,
            deadline,
        } => {
            if *asked {
                approval = Approval::Asked;
            }
            StateCells {
                waits_on: Some(on.as_str()),
                deadline_at: deadline.map(|wait| now.after(wait).0),
                ..StateCells::default()
            }
        }
        CallBegin::Settled(result) => StateCells::settled(result)?,
    };
    Ok(CallCells {
        call_id: &call.call_id,
        round: call.round,
        place: call.place,
        name: &call.name,
        arguments: json(&call.arguments)?,
        repeat: call.repeat.as_str(),
        approval: approval.as_str(),
        state,
    })
}

/// A change of a row of `tool_calls`, as the statement's parameter.
#[derive(Debug, Serialize)]
struct ChangeCells<'c> {
    call_id: &'c str,
    #[serde(flatten)]
    state: StateCells,
}

/// Stores changes of a session's calls, in order.
pub(crate) async fn change(
    tx: &mut Tx,
    key: SessionKey,
    author: Grant,
    changes: &[CallChange],
) -> Result<()> {
    let now = tx.now;
    for group in groups(changes) {
        let rows = group.iter().map(|change| change_cells(change, author, now));
        let rows = json(&rows.collect::<Result<Vec<_>>>()?)?;
        statement(sql!("calls/change"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(rows)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

/// Splits changes before each repeated call, since one statement can change a row only once.
fn groups(changes: &[CallChange]) -> Vec<&[CallChange]> {
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    let mut from = 0;
    for (place, change) in changes.iter().enumerate() {
        if !seen.insert(&change.call_id) {
            groups.push(&changes[from..place]);
            from = place;
            seen = BTreeSet::from([&change.call_id]);
        }
    }
    if from < changes.len() {
        groups.push(&changes[from..]);
    }
    groups
}

fn change_cells(change: &CallChange, author: Grant, now: Timestamp) -> Result<ChangeCells<'_>> {
    let state = match &change.change {
        CallStep::Started => StateCells::started(author),
        CallStep::Waits { on, deadline } => StateCells {
            waits_on: Some(on.as_str()),
            deadline_at: deadline.map(|wait| now.after(wait).0),
            ..StateCells::default()
        },
        CallStep::Asks { asked, deadline } => StateCells {
            waits_on: Some(WaitingOn::Human.as_str()),
            deadline_at: deadline.map(|wait| now.after(wait).0),
            asked: Some(json(asked)?),
            ..StateCells::default()
        },
        CallStep::Settled(result) => StateCells::settled(result)?,
    };
    Ok(ChangeCells {
        call_id: &change.call_id,
        state,
    })
}

/// A round's calls as a range of ids; the upper end is exclusive.
fn range(send: SendId, round: i32) -> (String, String) {
    let from = calls_of_round(send, round);
    let mut until = from.clone();
    // The character after the underscore that ends the prefix.
    until.pop();
    until.push('`');
    (from, until)
}

/// The calls of a round, ordered by place.
pub(crate) async fn of_round(
    conn: &mut Conn,
    key: SessionKey,
    send: SendId,
    round: i32,
) -> Result<Vec<CallRecord>> {
    let (from, until) = range(send, round);
    let rows = statement(sql!("calls/round"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(from)
        .bind(until)
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| rows::call(row).map(|(_, call)| call))
        .collect()
}

/// Calls by id.
pub(crate) async fn by_id(
    conn: &mut Conn,
    ids: Vec<(TenantId, String)>,
) -> Result<Vec<Option<CallRecord>>> {
    let mut found = Vec::with_capacity(ids.len());
    for (tenant, id) in ids {
        found.push(get(conn, tenant, &id).await?);
    }
    Ok(found)
}

/// A call by id.
pub(crate) async fn get(conn: &mut Conn, tenant: TenantId, id: &str) -> Result<Option<CallRecord>> {
    let row = statement(sql!("calls/get"))
        .bind(tenant.0)
        .bind(id.to_owned())
        .fetch_optional(conn)
        .await?;
    let call = row.as_ref().map(rows::call).transpose()?;
    Ok(call.map(|(_, call)| call))
}

/// Stores a call's result, unless it has one.
pub(crate) async fn settle(
    tx: &mut Tx,
    tenant: TenantId,
    id: &str,
    result: &CallResult,
) -> Result<()> {
    let now = tx.now;
    statement(sql!("calls/settle"))
        .bind(tenant.0)
        .bind(id.to_owned())
        .bind(json(result)?)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Stores a call as an answer from outside left it.
pub(crate) async fn answer(tx: &mut Tx, tenant: TenantId, call: &CallRecord) -> Result<()> {
    let asked = Some(&call.asked).filter(|asked| !asked.is_empty());
    statement(sql!("calls/answer"))
        .bind(tenant.0)
        .bind(call.call_id.clone())
        .bind(call.waits_on.map(WaitingOn::as_str))
        .bind(call.approval.as_str())
        .bind(call.deadline_at.map(|at| at.0))
        .bind(asked.map(json).transpose()?)
        .bind(call.result.as_ref().map(json).transpose()?)
        .bind(call.settled_at.map(|at| at.0))
        .bind(call.claim.map(|claim| claim.token))
        .bind(call.claim.map(|claim| claim.until.0))
        .bind(call.claim.map(|claim| claim.n))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Calls that wait for a person or a client.
pub(crate) async fn waiting(conn: &mut Conn, query: ListWaitingCalls) -> Result<Page<CallRecord>> {
    let (since, id) = query
        .after
        .map_or((i64::MIN, String::new()), |(at, id)| (at.0, id));
    let rows = statement(sql!("calls/waiting"))
        .bind(query.tenant.0)
        .bind(query.on.map(WaitingOn::as_str))
        .bind(since)
        .bind(id)
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    let read = |row: &Row| rows::call(row).map(|(_, call)| call);
    Ok(page(&rows, query.limit, read))
}

/// Calls of external tools that a claim would get.
pub(crate) async fn claimable(
    conn: &mut Conn,
    at: Option<Timestamp>,
    query: ClaimableCalls,
) -> Result<Page<CallRecord>> {
    let ClaimableCalls {
        tenant,
        names,
        token,
        after,
        limit,
    } = query;
    let now = clock(conn, at).await?;
    let read = |row: &Row| rows::call(row).map(|(_, call)| call);
    if after.is_none() {
        let held = statement(sql!("calls/held"))
            .bind(tenant.0)
            .bind(token)
            .bind(i64::from(limit) + 1)
            .fetch_all(conn)
            .await?;
        let mut held = page(&held, limit, read);
        held.data.retain(|call| names.contains(&call.name));
        if !held.data.is_empty() {
            return Ok(held);
        }
    }
    let (since, id) = after.map_or((i64::MIN, String::new()), |(at, id)| (at.0, id));
    let mut found = Page {
        data: Vec::new(),
        more: false,
    };
    // One name at a time, so that each is read in the order of its index.
    for name in names {
        let rows = statement(sql!("calls/claimable"))
            .bind(tenant.0)
            .bind(name)
            .bind(now.0)
            .bind(i64::from(limit) + 1)
            .bind(since)
            .bind(id.clone())
            .fetch_all(conn)
            .await?;
        let of_name = page(&rows, limit, read);
        found.more |= of_name.more;
        found.data.extend(of_name.data);
    }
    let order = |call: &CallRecord| (call.requested_at, call.call_id.clone());
    found.data.sort_by_key(order);
    found.more |= found.data.len() > limit as usize;
    found.data.truncate(limit as usize);
    Ok(found)
}

/// Calls whose claim has lapsed and that nobody else may make.
pub(crate) async fn lapsed(
    conn: &mut Conn,
    at: Option<Timestamp>,
    limit: u32,
) -> Result<Vec<(SessionKey, String)>> {
    let now = clock(conn, at).await?;
    let rows = statement(sql!("calls/lapsed"))
        .bind(now.0)
        .bind(limit)
        .fetch_all(conn)
        .await?;
    let read = |row: &Row| {
        let mut cells = Cells::new(row, "tool_calls");
        Ok((cells.key()?, cells.get("call_id")?))
    };
    Ok(page(&rows, limit, read).data)
}

/// Whether a call of a round still waits for an answer from outside.
pub(crate) async fn any_waits(
    tx: &mut Tx,
    key: SessionKey,
    send: SendId,
    round: i32,
) -> Result<bool> {
    let (from, until) = range(send, round);
    let waits = query_scalar(sql!("calls/any_waits"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(from)
        .bind(until)
        .fetch_one(tx.conn())
        .await?;
    Ok(waits)
}

/// Settles the calls of a send that wait for an answer from outside as interrupted.
pub(crate) async fn interrupt(tx: &mut Tx, key: SessionKey, send: SendId) -> Result<()> {
    let now = tx.now;
    statement(sql!("calls/settle_waiting"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(send.0)
        .bind(json(&interrupted_call())?)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Settles the calls of a send's open round as cancelled when the send ends: those that the
/// session's last message requests, if it requests any. Returns the messages that answer them, to
/// be written next.
pub(crate) async fn end_open_round(
    tx: &mut Tx,
    hot: &HotRow,
    send: SendId,
) -> Result<Vec<NewMessage>> {
    let now = tx.now;
    let round: Option<i32> = query_scalar(sql!("messages/open_round"))
        .bind(hot.key.tenant.0)
        .bind(hot.key.session.0)
        .bind(hot.next_seq - 1)
        .bind(send.0)
        .fetch_optional(tx.conn())
        .await?;
    let Some(round) = round else {
        return Ok(Vec::new());
    };
    let (from, until) = range(send, round);
    statement(sql!("calls/settle_round"))
        .bind(hot.key.tenant.0)
        .bind(hot.key.session.0)
        .bind(from)
        .bind(until)
        .bind(json(&cancelled_call())?)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let calls = of_round(tx.conn(), hot.key, send, round).await?;
    Ok(answers(&calls).expect("a call without a result was just given one"))
}

//! Reporting the ends of children to their parents.

use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::session::transition::AtRest;
use mainspring_shared::store::{ReportOutcome, Result};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{child_item, child_result};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::fault::Fault;
use crate::ledger::{Ledger, RoundKey, locked_out};
use crate::pieces::{Piece, Pieces};
use crate::retry::{Attempts, Pool, Verdict, sql};
use crate::rows::{Fields, send_columns};

pub(crate) async fn report(
    pool: &Pool,
    at: Option<Timestamp>,
    named: Option<&[(TenantId, SendId)]>,
    limit: u32,
) -> Result<Vec<ReportOutcome>> {
    let mut pieces = Pieces::new(limit);
    let mut all = Vec::new();
    while let Some(piece) = pieces.next() {
        let outcomes = report_of(pool, at, named, piece).await;
        all.extend(pieces.of(piece, outcomes)?.into_iter().flatten());
    }
    Ok(all)
}

async fn report_of(
    pool: &Pool,
    at: Option<Timestamp>,
    named: Option<&[(TenantId, SendId)]>,
    piece: Piece,
) -> Result<Vec<ReportOutcome>> {
    let mut attempts = Attempts::default();
    // Outcomes that attempts were about to commit, in case one did although its response was lost.
    let mut hoped: Vec<ReportOutcome> = Vec::new();
    loop {
        let was_lost = attempts.any_lost();
        let reported = attempts.on(pool, async |connection| {
            if !was_lost {
                hoped.clear();
            }
            let mut outcomes = confirmed(connection, &hoped).await?;
            hoped.clone_from(&outcomes);
            let found = report_once(connection, at, named, piece, &mut hoped).await?;
            outcomes.extend(found);
            Ok(outcomes)
        });
        match reported.await {
            Ok(outcomes) => return Ok(outcomes),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

/// The outcomes of earlier attempts that were committed.
async fn confirmed(
    connection: &mut PgConnection,
    hoped: &[ReportOutcome],
) -> std::result::Result<Vec<ReportOutcome>, Fault> {
    if hoped.is_empty() {
        return Ok(Vec::new());
    }
    let ids = hoped.iter().map(|told| (told.parent.tenant, told.send_id));
    let (tenants, ids) = send_columns(ids);
    let rows = sql!("sends/reported")
        .bind(tenants)
        .bind(ids)
        .fetch_all(connection)
        .await?;
    let confirmed = rows.iter().map(|row| {
        let ord = Fields::new(row, "sends").ord()?;
        Ok(hoped[ord].clone())
    });
    Ok(confirmed.collect::<Result<_>>()?)
}

/// A final send to report, and the call that it settles.
struct Due {
    send: SendRecord,
    parent: Option<(SessionKey, RoundKey)>,
}

impl Due {
    fn read(row: &PgRow) -> Result<Self> {
        let mut fields = Fields::new(row, "sends");
        let send = fields.send()?;
        let session: Option<Uuid> = fields.take("parent_session")?;
        let asked: Option<Uuid> = fields.take("parent_send")?;
        let round: Option<i32> = fields.take("parent_round")?;
        let tenant = send.key.tenant;
        let parent = session.zip(asked).zip(round);
        let parent = parent.map(|((session, asked), round)| {
            let session = SessionId(session);
            let send = SendId(asked);
            let round = RoundKey {
                tenant,
                send,
                round,
            };
            (SessionKey { tenant, session }, round)
        });
        Ok(Self { send, parent })
    }
}

async fn report_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    named: Option<&[(TenantId, SendId)]>,
    piece: Piece,
    hoped: &mut Vec<ReportOutcome>,
) -> std::result::Result<Vec<ReportOutcome>, Fault> {
    let mut tx = connection.begin().await?;
    // Lock the sends before their parents. This cannot deadlock: a send that another transaction
    // has locked is skipped, not waited for.
    let mut due = due(&mut tx, named, piece).await?;
    // Parents that another transaction has locked are told the next time.
    let parents = due.iter().filter_map(|due| due.parent);
    let parents: Vec<SessionKey> = parents.map(|(key, _)| key).collect();
    let locked = locked_out(&mut tx, parents).await?;
    due.retain(|due| due.parent.is_none_or(|(key, _)| !locked.contains(&key)));
    if due.is_empty() {
        tx.rollback().await?;
        return Ok(Vec::new());
    }
    // No step is written, so none needs a boot.
    let nobody = BootId(Uuid::nil());
    let parents = || due.iter().filter_map(|due| due.parent);
    let keys = parents().map(|(key, _)| key);
    let mut ledger = Ledger::lock(&mut tx, at, nobody, keys).await?;
    ledger.read_heads(&mut tx).await?;
    let rounds = parents().map(|(_, round)| round);
    ledger.read_rounds(&mut tx, rounds).await?;
    let outcomes: Vec<ReportOutcome> = due
        .iter()
        .filter_map(|due| tell_parent(&mut ledger, due))
        .collect();
    let now = ledger.now;
    ledger.write(&mut tx).await?;
    let ids = due.iter().map(|due| (due.send.key.tenant, due.send.id));
    let (tenants, ids) = send_columns(ids);
    sql!("sends/report")
        .bind(now.0)
        .bind(tenants)
        .bind(ids)
        .execute(&mut *tx)
        .await?;
    hoped.extend_from_slice(&outcomes);
    tx.commit().await?;
    Ok(outcomes)
}

async fn due(
    connection: &mut PgConnection,
    named: Option<&[(TenantId, SendId)]>,
    piece: Piece,
) -> std::result::Result<Vec<Due>, Fault> {
    let (limit, skip) = (i64::from(piece.limit), i64::from(piece.skip));
    let query = match named {
        None => sql!("sends/unreported").bind(limit).bind(skip),
        Some(named) => {
            let (tenants, ids) = send_columns(named.iter().copied());
            sql!("sends/unreported_of")
                .bind(limit)
                .bind(tenants)
                .bind(ids)
                .bind(skip)
        }
    };
    let rows = query.fetch_all(connection).await?;
    Ok(rows.iter().map(Due::read).collect::<Result<_>>()?)
}

/// Reports a send to its parent. `None` if the parent is gone, and its call with it.
fn tell_parent(ledger: &mut Ledger, due: &Due) -> Option<ReportOutcome> {
    let (parent, round) = due.parent?;
    let hot = ledger.hot.get(&parent)?;
    if hot.row.lifecycle == Lifecycle::Deleted {
        return None;
    }
    let call_id = due.send.reports_to.as_deref()?;
    let is_open = ledger.call(round, call_id)?.result.is_none();
    let notify = if is_open {
        ledger.settle_call(parent, round, call_id, child_result(&due.send))
    } else {
        let (id, content) = child_item(&due.send, call_id);
        ledger.report(parent, id, content, AtRest::Keep)?
    };
    Some(ReportOutcome {
        send_id: due.send.id,
        parent,
        enqueue: notify.ready,
        owner: notify.owner,
    })
}

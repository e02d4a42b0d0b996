//! Deletes sessions that have been idle for longer than their tenant keeps them.

use std::time::Duration;

use mainspring_shared::id::{SessionId, TenantId, first_id};
use mainspring_shared::session::{SessionRecord, SessionStatus};
use mainspring_shared::store::{self, ListSends, ListSessions, ListTimers, ReadMessages};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::TimerStatus;

use super::Progress;
use crate::app::App;
use crate::deleting;

/// Sessions per pass.
const SESSIONS: u32 = 20;

/// A key in a session's metadata; `true` keeps the session.
pub(crate) const KEEP: &str = "keep";

/// Checks one page of old sessions, newest first, and deletes those that have been idle for long
/// enough, like a request would. Children are deleted with their parents, and leaves with their
/// runs. Sessions that are the target of timers are kept.
pub(super) async fn sweep(
    app: &App,
    tenant: TenantId,
    keep: Duration,
    progress: &mut Progress,
) -> Result<u64, store::Error> {
    let Some(boot) = app.process.registration.id() else {
        return Ok(0);
    };
    let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    let before = Timestamp(app.store.now().await?.0.saturating_sub(keep));
    let query = ListSessions {
        tenant,
        status: None,
        agent: None,
        metadata: std::collections::BTreeMap::new(),
        before: Some(
            progress
                .session
                .unwrap_or_else(|| SessionId(first_id(before))),
        ),
        limit: SESSIONS,
    };
    let page = app.store.list_sessions(query).await?;
    let last = page.data.last().map(|session| session.key.session);
    let mut removed = 0;
    for session in &page.data {
        if session.parent.is_some() {
            continue;
        }
        if !is_idle(app, session, before).await? {
            progress.skipped.sessions += 1;
        } else if deleting::delete(app, boot, session.key).await? {
            removed += 1;
        }
    }
    progress.session = last.filter(|_| page.more);
    Ok(removed)
}

/// Whether nothing has happened in a session since `before`, nothing is pending, and nothing keeps
/// it.
async fn is_idle(
    app: &App,
    session: &SessionRecord,
    before: Timestamp,
) -> Result<bool, store::Error> {
    let rests = matches!(session.status, SessionStatus::Idle | SessionStatus::Closed);
    let is_kept = session
        .metadata
        .get(KEEP)
        .and_then(serde_json::Value::as_bool)
        == Some(true);
    if !rests || is_kept || session.updated_at >= before {
        return Ok(false);
    }
    let key = session.key;
    let query = ReadMessages {
        key,
        after: session.last_seq() - 1,
        limit: 1,
    };
    let messages = app.store.read_messages(query).await?;
    if messages.iter().any(|message| message.created_at >= before) {
        return Ok(false);
    }
    let query = ListSends {
        tenant: key.tenant,
        session: Some(key.session),
        status: None,
        before: None,
        limit: 1,
    };
    let sends = app.store.list_sends(query).await?.data;
    let is_over = |at: Option<Timestamp>| at.is_some_and(|at| at < before);
    let rests = |send: &mainspring_shared::send::SendRecord| {
        send.run.is_none() && is_over(send.finished_at)
    };
    if !sends.iter().all(rests) {
        return Ok(false);
    }
    for status in [TimerStatus::Armed, TimerStatus::Paused] {
        let query = ListTimers {
            tenant: key.tenant,
            session: Some(key.session),
            status: Some(status),
            before: None,
            limit: 1,
        };
        if !app.store.list_timers(query).await?.data.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

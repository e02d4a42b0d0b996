//! Sends that wait for a person because their worker died (`recovery: manual`).

use mainspring_shared::bus::StepNotice;
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::send::{SendRecord, SendStatus, SendView, WaitingOn};
use mainspring_shared::store::{ListSends, ReadySession};

use super::cancel;
use crate::app::App;
use crate::error::Error;

/// Resumes the send of a session that waits for recovery.
pub async fn resume(app: &App, key: SessionKey) -> Result<SendRecord, Error> {
    let session = app
        .store
        .get_session(key)
        .await?
        .ok_or_else(Error::session_not_found)?;
    let resumed = app.store.resume_recovery(app.boot_id()?, key).await?;
    let id = resumed.ok_or_else(nothing_to_recover)?;
    let record = app
        .watch
        .read_send(key.tenant, id)
        .await?
        .ok_or_else(Error::send_not_found)?;
    app.notifier.enqueue([ReadySession {
        key,
        pool: session.agent.pool().to_owned(),
        priority: record.options.priority,
        ready_since: app.clock.now(),
    }]);
    app.notifier
        .publish_steps(&[StepNotice::new(key, id, record.first_step, false)]);
    Ok(record)
}

/// Cancels the send of a session that waits for recovery.
pub async fn abort(app: &App, key: SessionKey) -> Result<SendView, Error> {
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found());
    }
    let query = ListSends {
        tenant: key.tenant,
        session: Some(key.session),
        status: Some(SendStatus::Waiting),
        before: None,
        limit: 10,
    };
    let waiting = app.store.list_sends(query).await?.data;
    let lost = waiting
        .into_iter()
        .find(|send| send.waiting_on == Some(WaitingOn::Recovery));
    let lost = lost.ok_or_else(nothing_to_recover)?;
    cancel::send(app, lost.key.tenant, lost.id, None).await
}

fn nothing_to_recover() -> Error {
    Error::new(
        Code::SessionNotWaiting,
        "no send of this session waits for recovery",
    )
}

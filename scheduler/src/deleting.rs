//! Deletes sessions, with everything below them.
//!
//! One transaction marks a session as deleted. From then on nobody sees it, and the rest of the
//! deletion cannot get lost. A session with very many open sends is closed first, and its sends are
//! cancelled page by page. Then the sessions below it are deleted, and the rows of all of them are
//! erased page by page, either by the request or by the sweep of any scheduler.

use mainspring_shared::bus::StepNotice;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::store::{
    self, DeleteOutcome, DeletedSession, ERASED_AT_ONCE, ErasedStep, delete_whole, erase_step,
};

use crate::app::App;
use crate::loops::causes;
use crate::metrics::{ERASED, ERASING_SECONDS};

/// Maximum number of deleted sessions per pass.
const SESSIONS: u32 = 64;

/// Maximum number of pages of one session per pass, so that a huge session does not delay the
/// others.
const PAGES: u32 = 10;

/// Deletes a session and those below it, top down, so that nothing new can start below a deleted
/// session. Returns false if there is no such session.
pub async fn delete(app: &App, boot: BootId, key: SessionKey) -> Result<bool, store::Error> {
    let exists = delete_one(app, boot, key).await?;
    if exists && let Err(error) = delete_below(app, boot, key).await {
        tracing::info!(
            session.id = %key.session,
            %error,
            "could not delete the sessions below a deleted one; the sweep will"
        );
    }
    Ok(exists)
}

async fn delete_below(app: &App, boot: BootId, key: SessionKey) -> Result<(), store::Error> {
    let mut above = vec![key];
    while let Some(key) = above.pop() {
        for child in app.store.list_children(key).await? {
            delete_one(app, boot, child).await?;
            above.push(child);
        }
    }
    Ok(())
}

/// Deletes one session. Returns false if there is no such session.
async fn delete_one(app: &App, boot: BootId, key: SessionKey) -> Result<bool, store::Error> {
    let outcomes = delete_whole(app.store.as_ref(), boot, key).await?;
    let exists = !outcomes.is_empty();
    for outcome in outcomes {
        notify(app, key, outcome);
    }
    Ok(exists)
}

/// Notifies the worker that owned the session, those waiting for its sends, and those streaming it.
fn notify(app: &App, key: SessionKey, outcome: DeleteOutcome) {
    let is_deleted = matches!(outcome, DeleteOutcome::Deleted { .. });
    let (cancelled, owner, last_step) = match outcome {
        DeleteOutcome::Deleted {
            cancelled,
            owner,
            last_step,
        } => (cancelled, owner, last_step),
        DeleteOutcome::Ending {
            cancelled,
            last_step,
        } => (cancelled, None, last_step),
        DeleteOutcome::NotFound => return,
    };
    if owner.is_some() {
        app.notifier.signal(key, 0);
    }
    let ended = |send: SendId| StepNotice::new(key, send, last_step, true);
    let mut notices: Vec<_> = cancelled.into_iter().map(ended).collect();
    if is_deleted {
        notices.push(StepNotice::deleted(key));
    }
    app.notifier.publish_steps(&notices);
}

/// Erases rows of deleted sessions, starting at `cursor`. Returns true if more are left.
pub(crate) async fn sweep(
    app: &App,
    cursor: &mut Option<DeletedSession>,
) -> Result<bool, store::Error> {
    let Some(boot) = app.process.registration.id() else {
        return Ok(false);
    };
    let due = app.store.deleted_sessions(*cursor, SESSIONS).await?;
    if cursor.is_none() {
        // The oldest unfinished deletion: the gauge keeps growing if that deletion never finishes.
        let waited = match due.first() {
            Some(first) => app.store.now().await?.0 - first.due_at.0,
            None => 0,
        };
        metrics::gauge!(ERASING_SECONDS).set(waited.max(0) as f64 / 1_000.0);
    }
    let mut more = due.len() == SESSIONS as usize;
    *cursor = due.last().copied().filter(|_| more);
    for found in due {
        match erase_pages(app, boot, found.key).await {
            Ok(left) => more |= left,
            // A later pass retries it; it must not delay the others.
            Err(error) if error.is_of_data() => {
                let error = causes(&error);
                tracing::warn!(
                    session.id = %found.key.session,
                    error,
                    "could not erase a deleted session; will retry"
                );
            }
            Err(error) => return Err(error),
        }
        if app.process.lifecycle.is_stopping() {
            return Ok(false);
        }
    }
    Ok(more)
}

/// Erases some pages of one session. Returns true if more are left.
async fn erase_pages(app: &App, boot: BootId, key: SessionKey) -> Result<bool, store::Error> {
    for _ in 0..PAGES {
        let step = erase_step(app.store.as_ref(), boot, key, ERASED_AT_ONCE).await?;
        let ErasedStep { deleted, page } = step;
        for (child, outcome) in deleted {
            notify(app, child, outcome);
        }
        metrics::counter!(ERASED).increment(page.rows);
        if !page.more {
            return Ok(false);
        }
    }
    Ok(true)
}

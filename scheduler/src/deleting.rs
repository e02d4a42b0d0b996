//! Deleting sessions, with all that is below them.
//!
//! A session is deleted by one transaction: from then on it is gone for everyone, and nothing that
//! comes after can be forgotten. One with very many open sends is closed before, and these end a page
//! at a time. The sessions below it follow, and what all of them leave behind is
//! removed a page at a time, by whoever made the request or by the sweep of any scheduler.

use mainspring_shared::bus::StepNotice;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::store::{
    self, DeleteOutcome, DeletedSession, ERASED_AT_ONCE, ErasedStep, delete_whole, erase_step,
};

use crate::app::App;
use crate::loops::causes;
use crate::metrics::{ERASED, ERASING_SECONDS};

/// Deleted sessions that are looked at in one pass.
const SESSIONS: u32 = 64;

/// Pages of one session in one pass, so that a huge one leaves some of it to others.
const PAGES: u32 = 10;

/// Deletes a session and those below it, from the top down, so that nothing new is begun below what
/// is gone. False when there is none.
pub async fn delete(app: &App, boot: BootId, key: SessionKey) -> Result<bool, store::Error> {
    let is_there = whole(app, boot, key).await?;
    if is_there && let Err(error) = below(app, boot, key).await {
        tracing::info!(session.id = %key.session, %error, "the sweep deletes what is below");
    }
    Ok(is_there)
}

async fn below(app: &App, boot: BootId, key: SessionKey) -> Result<(), store::Error> {
    let mut above = vec![key];
    while let Some(key) = above.pop() {
        for child in app.store.list_children(key).await? {
            whole(app, boot, child).await?;
            above.push(child);
        }
    }
    Ok(())
}

/// Deletes one session. False when there is none.
async fn whole(app: &App, boot: BootId, key: SessionKey) -> Result<bool, store::Error> {
    let outcomes = delete_whole(app.store.as_ref(), None, boot, key).await?;
    let is_there = !outcomes.is_empty();
    for outcome in outcomes {
        tell(app, key, outcome);
    }
    Ok(is_there)
}

/// Tells whoever ran the session, and whoever waits for one of its sends.
fn tell(app: &App, key: SessionKey, outcome: DeleteOutcome) {
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
    let ended = |send: SendId| StepNotice {
        key,
        send,
        n: last_step,
        settled: true,
    };
    let notices: Vec<_> = cancelled.into_iter().map(ended).collect();
    app.notifier.steps(&notices);
}

/// Removes some of what deleted sessions left behind, from `place` on. True when more is left.
pub(crate) async fn sweep(
    app: &App,
    place: &mut Option<DeletedSession>,
) -> Result<bool, store::Error> {
    let Some(boot) = app.registration.id() else {
        return Ok(false);
    };
    let due = app.store.deleted_sessions(None, *place, SESSIONS).await?;
    if place.is_none() {
        // The one that has waited the longest: where none ever ends, this grows.
        let waited = match due.first() {
            Some(first) => app.store.now().await?.0 - first.due_at.0,
            None => 0,
        };
        metrics::gauge!(ERASING_SECONDS).set(waited.max(0) as f64 / 1_000.0);
    }
    let mut more = due.len() == SESSIONS as usize;
    *place = due.last().copied().filter(|_| more);
    for found in due {
        match pages(app, boot, found.key).await {
            Ok(left) => more |= left,
            // It is looked at again; the others are not kept waiting.
            Err(error) if error.is_of_data() => {
                let error = causes(&error);
                tracing::warn!(session.id = %found.key.session, error, "cannot be removed");
            }
            Err(error) => return Err(error),
        }
        if app.lifecycle.is_stopping() {
            return Ok(false);
        }
    }
    Ok(more)
}

/// Takes the removal of one session some pages further. True when more is left.
async fn pages(app: &App, boot: BootId, key: SessionKey) -> Result<bool, store::Error> {
    for _ in 0..PAGES {
        let step = erase_step(app.store.as_ref(), None, boot, key, ERASED_AT_ONCE).await?;
        let ErasedStep { deleted, page } = step;
        for (child, outcome) in deleted {
            tell(app, child, outcome);
        }
        metrics::counter!(ERASED).increment(page.rows);
        if !page.more {
            return Ok(false);
        }
    }
    Ok(true)
}

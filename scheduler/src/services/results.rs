//! Posts results of calls that wait for a client or a person.

use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::store::{PostOutcome, PostResult};

use super::accept::retry_locked;
use crate::app::App;
use crate::error::Error;

/// Whether a result was not stored because another transaction has locked its session.
pub fn is_locked(outcome: &PostOutcome) -> bool {
    *outcome == PostOutcome::Locked
}

/// Posts results and notifies the workers. Results for locked sessions are retried for some seconds.
pub async fn post(app: &App, items: Vec<PostResult>) -> Result<Vec<PostOutcome>, Error> {
    let outcomes = app.store.post_results(items.clone()).await?;
    notify(app, &outcomes);
    let step = |left| post_again(app, left);
    Ok(retry_locked(app, items, outcomes, is_locked, step).await)
}

/// Posts again. An error counts as still locked, so that the results stored earlier are still
/// reported.
async fn post_again(app: &App, items: Vec<PostResult>) -> Vec<PostOutcome> {
    let count = items.len();
    let posted = app.store.post_results(items).await;
    let posted = posted.unwrap_or_else(|_| vec![PostOutcome::Locked; count]);
    notify(app, &posted);
    posted
}

pub(crate) fn notify(app: &App, outcomes: &[PostOutcome]) {
    for outcome in outcomes {
        if let PostOutcome::Accepted {
            key,
            enqueue,
            owner,
            ..
        } = outcome
        {
            app.notifier.enqueue(enqueue.clone());
            if owner.is_some() {
                app.notifier.signal(*key, SIGNAL_RESULT);
            }
        }
    }
}

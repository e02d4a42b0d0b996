//! Results of calls that are answered from outside.

use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::store::{PostOutcome, PostResult};

use super::accept::again;
use crate::app::App;
use crate::error::Error;

/// Whether nothing of a result was stored because something else is at work on its session.
pub fn is_locked(outcome: &PostOutcome) -> bool {
    *outcome == PostOutcome::Locked
}

/// Posts results and tells whom they concern, those of locked sessions as soon as these are free.
pub async fn post(app: &App, items: Vec<PostResult>) -> Result<Vec<PostOutcome>, Error> {
    let outcomes = app.store.post_results(None, items.clone()).await?;
    tell(app, &outcomes);
    let step = |left| post_again(app, left);
    Ok(again(app, items, outcomes, is_locked, step).await)
}

/// What is stored by now is told in any case.
async fn post_again(app: &App, items: Vec<PostResult>) -> Vec<PostOutcome> {
    let count = items.len();
    let posted = app.store.post_results(None, items).await;
    let posted = posted.unwrap_or_else(|_| vec![PostOutcome::Locked; count]);
    tell(app, &posted);
    posted
}

fn tell(app: &App, outcomes: &[PostOutcome]) {
    for outcome in outcomes {
        if let PostOutcome::Accepted {
            key, ring, owner, ..
        } = outcome
        {
            app.notifier.ring(ring.clone());
            if owner.is_some() {
                app.notifier.signal(*key, SIGNAL_RESULT);
            }
        }
    }
}

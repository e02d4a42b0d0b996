//! Removes blobs that nothing names any more.

use mainspring_shared::blob::SWEEP_GRACE;

use super::{Health, jittered, pause};
use crate::app::App;
use crate::metrics::{BLOBS_REMOVED, RETIRED};
use crate::services::pressure::Work;

/// Blobs of a page, each of which is a few row operations and at most one deletion.
const PAGE: u32 = 200;

/// Looks at all blobs, page by page, again and again until shutdown. Where a pass fails, the next one
/// begins there.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("blobs");
    let mut after = None;
    // Schedulers that start together begin at different times.
    let first = app.config.blob_interval.mul_f64(app.entropy.fraction());
    if !pause(app, first).await {
        return;
    }
    loop {
        let mut wait = jittered(app, app.config.blob_interval);
        while !app.acceptor.refuses(Work::Bulk) {
            match app.outside.blobs.sweep(SWEEP_GRACE, after, PAGE).await {
                Ok(swept) => {
                    match &swept.failed {
                        None => health.succeeded(),
                        Some(error) => wait = health.failed(error, app.entropy.fraction()),
                    }
                    metrics::counter!(BLOBS_REMOVED).increment(swept.blobs);
                    metrics::counter!(RETIRED).increment(swept.holds);
                    after = swept.next;
                }
                Err(error) => {
                    wait = health.failed(&error, app.entropy.fraction());
                    break;
                }
            }
            if app.process.lifecycle.is_stopping() {
                return;
            }
            if after.is_none() {
                break;
            }
        }
        if !pause(app, wait).await {
            return;
        }
    }
}

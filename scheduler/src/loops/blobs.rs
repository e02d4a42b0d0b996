//! Removes unreferenced blobs.

use mainspring_shared::blob::SWEEP_GRACE;

use super::{Health, jittered, pause};
use crate::app::App;
use crate::metrics::{BLOBS_REMOVED, RETIRED};
use crate::services::pressure::Work;

/// Blobs per page. Each takes a few row operations and at most one deletion.
const PAGE: u32 = 200;

/// Scans all blobs page by page, over and over, until shutdown. After a failed pass, the next one
/// continues where it stopped.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("blobs");
    let mut after = None;
    // Schedulers that start together get different offsets.
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

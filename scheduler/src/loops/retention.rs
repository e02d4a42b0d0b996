//! Retention: what nobody can ask for any more is removed, a little at a time.

use mainspring_shared::store;

use super::{Health, jittered, pause};
use crate::app::App;
use crate::metrics::RETIRED;

/// Removals in a row before the loop rests: other work gets its turn.
const ROUNDS_MAX: u32 = 100;

/// Removes until a stop begins.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("retention");
    loop {
        let mut wait = jittered(app, app.config.retention_interval);
        for _ in 0..ROUNDS_MAX {
            match sweep(app).await {
                Ok(0) => {
                    health.works();
                    break;
                }
                Ok(rows) => {
                    health.works();
                    metrics::counter!(RETIRED).increment(rows);
                }
                Err(error) => {
                    wait = health.fails(&error, app.entropy.fraction());
                    break;
                }
            }
            if app.lifecycle.is_stopping() {
                return;
            }
        }
        if !pause(app, wait).await {
            return;
        }
    }
}

/// Removes a little of each kind; returns how many rows went.
async fn sweep(app: &App) -> Result<u64, store::Error> {
    let keep = app.config.idempotency_keep;
    let rows = app.store.sweep_retention(None, keep).await?;
    Ok(rows + app.store.sweep_timers(None, app.config.timer_keep).await?)
}

//! Retention: what nobody can ask for any more is removed, a little at a time.

use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::store::{self, RetireSends};

use super::{Health, jittered, pause};
use crate::app::App;
use crate::metrics::RETIRED;

/// Removals in a row before the loop rests: other work gets its turn.
const ROUNDS_MAX: u32 = 100;

/// Sends that one transaction looks at.
const PAGE: u32 = 500;

/// Removes until a stop begins.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("retention");
    let mut place = None;
    loop {
        let mut wait = jittered(app, app.config.retention_interval);
        for _ in 0..ROUNDS_MAX {
            match sweep(app, &mut place).await {
                // Behind a page of sends that all stay there may be others.
                Ok(0) if place.is_none() => {
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

/// Removes a little of each kind; returns how many rows went. Sends are looked at page by page, from
/// `place` on, which is none again behind the last one that may be old enough.
async fn sweep(app: &App, place: &mut Option<SendId>) -> Result<u64, store::Error> {
    let keep = app.config.idempotency_keep;
    let mut rows = app.store.sweep_retention(None, keep).await?;
    rows += app.store.sweep_timers(None, app.config.timer_keep).await?;
    if let Some(send_keep) = app.config.send_keep {
        let query = RetireSends {
            tenant: TenantId::DEFAULT,
            // A repeated request finds what it made for as long as its key is known.
            keep: send_keep.max(keep),
            after: *place,
            limit: PAGE,
        };
        let retired = app.store.retire_sends(None, query).await?;
        *place = retired.next;
        rows += retired.rows;
    }
    Ok(rows)
}

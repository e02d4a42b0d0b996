//! Handles alarms: ends of delays, due retries, and deadlines.

use std::time::Duration;

use mainspring_shared::bus::StepNotice;
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::store;

use super::{Health, orphans, pause};
use crate::app::App;
use crate::metrics::ALARMS;

/// Maximum number of alarms per transaction.
const LIMIT: u32 = 500;

/// Minimum pause, so that an alarm that stays due does not cause a busy loop.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Handles alarms until shutdown.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("alarms");
    loop {
        let wait = match serve(app).await {
            Ok(wait) => {
                health.succeeded();
                wait
            }
            Err(error) => health.failed(&error, app.entropy.fraction()),
        };
        if !pause(app, wait).await {
            return;
        }
    }
}

/// Handles due alarms. Returns the time until the next one, at most the configured interval.
async fn serve(app: &App) -> Result<Duration, store::Error> {
    let Some(boot) = app.process.registration.id() else {
        return Ok(app.config.alarm_interval);
    };
    let swept = app.store.sweep_alarms(boot, LIMIT).await?;
    metrics::counter!(ALARMS).increment(u64::from(swept.served));
    app.notifier.enqueue(swept.enqueue);
    let ended = swept.finished.into_iter();
    let notices: Vec<_> = ended
        .map(|(key, send, n)| StepNotice::new(key, send, n, true))
        .collect();
    app.notifier.publish_steps(&notices);
    orphans::cancel_work_of(app, boot, swept.begun).await?;
    let reported = report(app).await?;
    if reported >= LIMIT as usize {
        return Ok(PAUSE_MIN);
    }
    if swept.served >= LIMIT {
        return Ok(PAUSE_MIN);
    }
    let until = swept.next_alarm_at.map(|next| next.since(swept.now));
    Ok(until
        .unwrap_or(Duration::MAX)
        .clamp(PAUSE_MIN, app.config.alarm_interval.max(PAUSE_MIN)))
}

/// Reports ended children to their parents if a worker died before it could.
async fn report(app: &App) -> Result<usize, store::Error> {
    let reported = app.store.report_children(None, LIMIT).await?;
    let count = reported.len();
    for outcome in reported {
        app.notifier.enqueue(outcome.enqueue);
        if outcome.owner.is_some() {
            app.notifier.signal(outcome.parent, SIGNAL_INBOX);
        }
    }
    Ok(count)
}

//! Fires due timers. Any number of schedulers may do so at the same time.

use std::time::Duration;

use futures::StreamExt;
use mainspring_runtime::telemetry::spans;
use mainspring_shared::bus::{Notice, StepNotice, Topic};
use mainspring_shared::store::{self, Fired};
use mainspring_shared::time::Timestamp;

use super::Health;
use crate::app::App;
use crate::metrics::{TIMER_LATENESS, TIMERS_FIRED};

/// Timers per transaction: enough to amortise the commit, few enough that their sessions are locked
/// for only a fraction of a second.
const LIMIT: u32 = 1_000;

/// Minimum pause, so that a timer that stays due does not cause a busy loop.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Fires timers until shutdown.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("timers");
    let mut armed = app.bus().subscribe(Topic::Timers).await;
    loop {
        let wait = match fire(app).await {
            Ok(wait) => {
                health.succeeded();
                wait
            }
            Err(error) => health.failed(&error, app.entropy.fraction()),
        };
        tokio::select! {
            biased;
            () = app.process.lifecycle.stopping() => return,
            () = app.clock.sleep(wait) => {}
            word = armed.next() => match word {
                // A timer is due before the pause would end: check again.
                Some(Notice::Payload(_)) => {}
                // The pause is short enough to ignore lost notifications.
                Some(Notice::Gap) => app.clock.sleep(wait).await,
                None => {
                    app.clock.sleep(wait).await;
                    armed = app.bus().subscribe(Topic::Timers).await;
                }
            },
        }
        if app.process.lifecycle.is_stopping() {
            return;
        }
    }
}

/// Fires due timers. Returns the time until the next one, at most the configured interval.
async fn fire(app: &App) -> Result<Duration, store::Error> {
    let Some(boot) = app.process.registration.id() else {
        return Ok(app.config.timer_interval);
    };
    loop {
        let fired = app.store.fire_timers(boot, LIMIT).await?;
        let more = fired.more && fired.served > 0 && !app.process.lifecycle.is_stopping();
        let until = fired.next_due_at.map(|next| next.since(fired.now));
        announce(app, fired);
        if !more {
            let longest = app.config.timer_interval.max(PAUSE_MIN);
            return Ok(until.unwrap_or(longest).clamp(PAUSE_MIN, longest));
        }
    }
}

fn late_ms(now: Timestamp, due_at: Timestamp) -> u64 {
    u64::try_from(now.since(due_at).as_millis()).unwrap_or(u64::MAX)
}

/// Publishes metrics and notifications for committed occurrences.
fn announce(app: &App, fired: Fired) {
    for (count, fate) in [
        ((fired.sends.len() + fired.runs.len()) as u64, "fired"),
        (u64::from(fired.merged), "merged"),
        (u64::from(fired.skipped), "skipped"),
        (u64::from(fired.failed), "failed"),
    ] {
        if count > 0 {
            metrics::counter!(TIMERS_FIRED, "fate" => fate).increment(count);
        }
    }
    for send in &fired.sends {
        spans::fire_timer(send.key, send.send, late_ms(fired.now, send.due_at));
    }
    for run in &fired.runs {
        spans::fire_run_timer(run.key, late_ms(fired.now, run.due_at));
    }
    let sent = fired.sends.iter().map(|send| send.due_at);
    for due_at in sent.chain(fired.runs.iter().map(|run| run.due_at)) {
        let late = fired.now.since(due_at);
        metrics::histogram!(TIMER_LATENESS).record(late.as_secs_f64());
    }
    for run in &fired.runs {
        app.notifier.run_changed(run.key);
    }
    app.notifier.enqueue(fired.enqueue);
    let sends = fired.sends.into_iter();
    let notices: Vec<_> = sends
        .map(|fired| StepNotice::new(fired.key, fired.send, fired.step, false))
        .collect();
    app.notifier.publish_steps(&notices);
}

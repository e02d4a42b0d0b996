//! The journal: a file with one line per step of every session. Each session's steps are in order,
//! and each step is written at least once, even if processes die.
//!
//! Head lines in the file record how far it is complete. Steps are found by their commit time, but
//! they do not quite become visible in that order, because a transaction may take a while. So what
//! was just read is read again a moment later, and once more after a longer time. And since a
//! session's steps are numbered without gaps, any later step of the session reveals all steps that
//! were missed before it.

mod lines;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::store::{self, Store};
use mainspring_shared::time::{Clock, Timestamp};

use self::writer::Writer;
use super::{Health, jittered};
use crate::app::App;
use crate::metrics::JOURNAL_BEHIND;

/// Why the journal cannot be written.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the database could not be read")]
    Store(#[from] store::Error),
    #[error("the journal's file cannot be written")]
    File(#[from] io::Error),
}

/// Where steps are read from.
struct Source {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Whether lines include the content of messages.
    content: bool,
    /// Maximum number of sessions per query.
    found_max: u32,
}

/// The database's time, read once per pass.
#[derive(Debug, Clone, Copy)]
struct Now {
    at: Timestamp,
    /// When it was read, on the monotonic clock.
    time: Duration,
}

impl Now {
    /// The database's current time, extrapolated.
    fn on(self, source: &Source) -> Timestamp {
        let gone = source.clock.monotonic().saturating_sub(self.time);
        self.at.after(gone)
    }
}

/// How far the journal lags behind. The gauge is updated even while the journal cannot be written.
#[derive(Debug, Default)]
struct Behind {
    /// The last known lag and when it was measured; none while another process writes the journal.
    known: Option<(Duration, Duration)>,
}

impl Behind {
    /// Records the lag at this time.
    fn is(&mut self, behind: Duration, time: Duration) {
        self.known = Some((behind, time));
        metrics::gauge!(JOURNAL_BEHIND).set(behind.as_secs_f64());
    }

    /// Records that nothing was written since the last measurement.
    fn grows(&mut self, time: Duration) {
        self.known.get_or_insert((Duration::ZERO, time));
        metrics::gauge!(JOURNAL_BEHIND).set(self.by(time).as_secs_f64());
    }

    /// The lag at this time.
    fn by(&self, time: Duration) -> Duration {
        let grown = |(behind, since): (Duration, _)| behind + time.saturating_sub(since);
        self.known.map_or(Duration::ZERO, grown)
    }

    /// Records that another process writes the journal.
    fn is_elsewhere(&mut self) {
        self.known = None;
        metrics::gauge!(JOURNAL_BEHIND).set(0.0);
    }
}

/// Writes the journal until shutdown, if this scheduler is configured to.
pub(crate) async fn run(app: &Arc<App>) {
    let Some(settings) = app.config.journal.clone() else {
        return;
    };
    let (path, interval) = (settings.path.clone(), settings.interval);
    let source = Source {
        store: app.store.clone(),
        clock: app.clock.clone(),
        content: app.config.trace_content,
        found_max: writer::FOUND_MAX,
    };
    let mut writer = Writer::new(source, settings);
    let mut health = Health::new("journal");
    let mut stands_by = false;
    loop {
        let wait = match writer.pass().await {
            Ok(true) => {
                health.succeeded();
                jittered(app, interval)
            }
            Ok(false) => {
                health.succeeded();
                if !std::mem::replace(&mut stands_by, true) {
                    let path = path.display();
                    tracing::info!(%path, "another process writes the journal; this one stands by");
                }
                jittered(app, interval)
            }
            Err(fault) => health.failed(&fault, app.entropy.fraction()),
        };
        tokio::select! {
            biased;
            () = app.process.lifecycle.stopping() => break,
            () = app.clock.sleep(wait) => {}
        }
    }
    // Write what was committed so far. The next process to write the journal adds the rest.
    if writer.writes()
        && let Err(error) = writer.pass().await
    {
        tracing::debug!(%error, "could not write the rest of the journal; the next process will");
    }
}

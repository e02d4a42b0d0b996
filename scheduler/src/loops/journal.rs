//! A journal: every step of every session as a line in a file, in order for each session, at least once and none left
//! out, also over the deaths of processes.
//!
//! Lines of the file say how far it came. Steps are found by when they were committed, which is not quite the order in
//! which they can be read: a transaction may take its time. So what was just read is read again a moment later,
//! and once more after a longer while; and since a session's steps are numbered without gaps, whichever step of it
//! is found leads to all that were missed before it.

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

/// Why nothing can be written.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the database could not be read")]
    Store(#[from] store::Error),
    #[error("the journal's file cannot be written")]
    File(#[from] io::Error),
}

/// Where steps are read.
struct Source {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Whether lines hold what was said.
    content: bool,
    /// How many sessions are found at once.
    found_max: u32,
}

/// The database's clock, which is asked once for each pass.
#[derive(Debug, Clone, Copy)]
struct Now {
    at: Timestamp,
    /// When it was asked.
    time: Duration,
}

impl Now {
    /// What it says by now.
    fn on(self, source: &Source) -> Timestamp {
        let gone = source.clock.monotonic().saturating_sub(self.time);
        self.at.after(gone)
    }
}

/// How far the journal is behind; told also while nothing can be written.
#[derive(Debug, Default)]
struct Behind {
    /// How far it was, and when that was so; none where another process writes.
    known: Option<(Duration, Duration)>,
}

impl Behind {
    /// It is this far at this time.
    fn is(&mut self, behind: Duration, time: Duration) {
        self.known = Some((behind, time));
        metrics::gauge!(JOURNAL_BEHIND).set(behind.as_secs_f64());
    }

    /// Nothing was written since.
    fn grows(&mut self, time: Duration) {
        self.known.get_or_insert((Duration::ZERO, time));
        metrics::gauge!(JOURNAL_BEHIND).set(self.by(time).as_secs_f64());
    }

    /// How far it is at this time.
    fn by(&self, time: Duration) -> Duration {
        let grown = |(behind, since): (Duration, _)| behind + time.saturating_sub(since);
        self.known.map_or(Duration::ZERO, grown)
    }

    /// Another process writes.
    fn is_elsewhere(&mut self) {
        self.known = None;
        metrics::gauge!(JOURNAL_BEHIND).set(0.0);
    }
}

/// Writes the journal until shutdown, if this scheduler is to have one.
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
    // What was committed until here; the rest is written by whoever goes on.
    if writer.writes()
        && let Err(error) = writer.pass().await
    {
        tracing::debug!(%error, "the journal's end is left to the next process");
    }
}

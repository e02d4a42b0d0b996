//! What became of an import: counts by kind, and what was left out by name.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};
use mainspring_importers::{LeftOut, Session};
use serde_json::{Value, json};

use crate::args::Format;
use crate::failure::{Exit, Failure};
use crate::output::{self, Column};

/// How many conversations there are between two lines of progress, where no bar is shown.
const LINE_EVERY: usize = 1_000;

const COLUMNS: [Column; 5] = [
    ("KIND", "kind"),
    ("CREATED", "created"),
    ("KNOWN", "known"),
    ("REFUSED", "refused"),
    ("LEFT OUT", "left_out"),
];

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Sessions,
    Messages,
    Calls,
    Media,
    Todo,
    Notes,
    Timers,
}

const KINDS: [&str; 7] = [
    "sessions",
    "messages",
    "calls",
    "images and files",
    "to-do items",
    "notes",
    "timers",
];

#[derive(Debug, Default)]
struct Fates {
    created: u64,
    known: u64,
    refused: u64,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    fates: [Fates; KINDS.len()],
    pub(super) left_out: LeftOut,
}

impl Report {
    /// Counts things that are here now.
    pub(super) fn add(&mut self, kind: Kind, is_new: bool, count: usize) {
        let fates = &mut self.fates[kind as usize];
        let place = if is_new {
            &mut fates.created
        } else {
            &mut fates.known
        };
        *place += count as u64;
    }

    /// Counts a session and what is in it, but its timers.
    pub(super) fn contents(&mut self, session: &Session, is_new: bool) {
        for (kind, count) in [
            (Kind::Sessions, 1),
            (Kind::Messages, session.message_count()),
            (Kind::Calls, session.call_count()),
            (Kind::Media, session.blob_count()),
            (Kind::Todo, session.todo_count()),
            (Kind::Notes, session.note_count()),
        ] {
            self.add(kind, is_new, count);
        }
    }

    /// Tells of something that cannot be imported.
    pub(super) fn refuse(&mut self, progress: &Progress, kind: Kind, (what, why): (&str, &str)) {
        self.fates[kind as usize].refused += 1;
        progress.note(&format!("refused: {} {what}: {why}", KINDS[kind as usize]));
    }

    /// Tells of something that the server refuses. If it is not available or denies access, the rest would fare no
    /// better, and the import ends.
    pub(super) fn fail(
        &mut self,
        progress: &Progress,
        kind: Kind,
        what: &str,
        failure: Failure,
    ) -> Result<(), Failure> {
        if matches!(failure.exit, Exit::Unavailable | Exit::Unauthorised) {
            return Err(failure
                .about(&what)
                .next("import again: what was imported is recognized"));
        }
        self.refuse(progress, kind, (what, &failure.message));
        Ok(())
    }

    pub(super) fn refused(&self) -> bool {
        self.fates.iter().any(|fates| fates.refused > 0)
    }

    pub(super) fn print(&self, format: Format, is_dry: bool) -> Result<(), Failure> {
        let fates = KINDS.iter().zip(&self.fates);
        let fates = fates.map(|(kind, fates)| {
            json!({
                "kind": kind, "created": fates.created, "known": fates.known, "refused": fates.refused,
                "left_out": 0,
            })
        });
        let left = self.left_out.iter().map(|(name, count)| {
            json!({ "kind": name, "created": 0, "known": 0, "refused": 0, "left_out": count })
        });
        let rows: Vec<Value> = fates.chain(left).collect();
        output::list(format, &COLUMNS, &rows)?;
        if is_dry {
            output::note("nothing was imported: these are the counts of the source");
        }
        Ok(())
    }
}

/// Progress on stderr: a bar on a terminal, and lines otherwise.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    done: usize,
    count: usize,
}

impl Progress {
    pub(super) fn new(count: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(count as u64);
            let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len} conversations {eta}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            bar,
            done: 0,
            count,
        }
    }

    pub(super) fn step(&mut self) {
        self.done += 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.done.is_multiple_of(LINE_EVERY) => {
                let (done, count) = (self.done, self.count);
                output::note(&format!("{done}/{count} conversations"));
            }
            None => {}
        }
    }

    /// Writes a line above the bar.
    pub(super) fn note(&self, text: &str) {
        let text = output::harmless(text);
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(&text)),
            None => output::note(&text),
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

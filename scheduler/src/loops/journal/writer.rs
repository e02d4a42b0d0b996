//! Which steps are looked for, and what is known of those that were written.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use mainspring_runtime::telemetry::{Jsonl, JsonlSettings};
use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::journal::JournalHead;
use mainspring_shared::store::{FindSteps, FoundSteps};
use mainspring_shared::time::Timestamp;
use serde::Deserialize;

use super::lines::{self, Piece, Wanted, When};
use super::{Behind, Fault, Now, Source};
use crate::metrics::JOURNAL_LINES;

/// Sessions that are found per question: each page looks at all steps of its time again.
pub(super) const FOUND_MAX: u32 = 20_000;

/// Steps of one question behind which the next one is about less time.
const DENSE: i64 = 10_000;

/// How late a step may be seen after the time that it says, in milliseconds: what is usual, and what is waited for.
///
/// A step says when its transaction began. Postgres ends a transaction that pauses for three seconds and a statement that
/// takes ten, SQLite has one writer; but one of many slow statements may take longer, and MySQL lets one whose process was
/// stopped stand until its connection is given up. A step that is later than the longer time is not found by
/// itself: the session's next step leads to it, for as long as it is remembered how far the session was written.
pub(super) const USUAL_MS: i64 = 2_000;
pub(super) const LATEST_MS: i64 = 60_000;

/// What is younger is left for later, in milliseconds: Postgres tells of claims before they are on its disk, for at most
/// three times `wal_writer_delay`, and a crash of the server may undo them until then.
pub(super) const SETTLED_MS: i64 = 1_000;

/// How often it is looked back far.
const LOOK_BACK: Duration = Duration::from_secs(15);

/// How long it is remembered how far a session was written, in milliseconds: longer than it is looked back.
const REMEMBERED_MS: i64 = 10 * LATEST_MS;

/// The times that are looked at together, at least and at most: a journal that was off for long catches up quickly, and
/// none of its questions is about more than the database answers in time.
pub(super) const SPAN_MIN_MS: i64 = 10_000;
pub(super) const SPAN_MAX_MS: i64 = 600_000;

/// Sessions that are read at once.
const SESSIONS: usize = 16;

/// Sessions that are read between two looks at the clock.
const SESSIONS_MAX: usize = 1_000;

/// Lines that are written together.
const LINES: usize = 1_000;

/// How far a session was written.
#[derive(Debug, Clone, Copy)]
struct Written {
    n: i64,
    at: Timestamp,
}

/// What a line says of how far the journal is: of a head, or of a step.
#[derive(Debug, Deserialize)]
struct Known {
    from: Option<Timestamp>,
    tenant: Option<TenantId>,
    session_id: Option<SessionId>,
    n: Option<i64>,
    at: Option<Timestamp>,
}

/// Writes the journal where no other process does.
pub(super) struct Writer {
    source: Source,
    settings: JsonlSettings,
    journal: Option<Journal>,
    /// Whether the database finds steps by their time.
    is_indexed: bool,
    pub(super) behind: Behind,
}

impl Writer {
    pub(super) fn new(source: Source, settings: JsonlSettings) -> Self {
        Self {
            source,
            settings,
            journal: None,
            is_indexed: false,
            behind: Behind::default(),
        }
    }

    /// Whether this process is the one that writes.
    pub(super) const fn writes(&self) -> bool {
        self.journal.is_some()
    }

    /// Writes what is new; false where another process does.
    pub(super) async fn pass(&mut self) -> Result<bool, Fault> {
        let passed = self.attempt().await;
        match &passed {
            Ok(true) => {}
            Ok(false) => self.behind.is_elsewhere(),
            Err(fault) => {
                if matches!(fault, Fault::File(_)) {
                    // What is in the file is read again.
                    self.journal = None;
                }
                self.behind.grows(self.source.clock.monotonic());
            }
        }
        passed
    }

    async fn attempt(&mut self) -> Result<bool, Fault> {
        if self.journal.is_none() {
            let time = self.source.clock.monotonic();
            self.journal = open(self.settings.clone(), time).await?;
        }
        let Some(journal) = &mut self.journal else {
            return Ok(false);
        };
        if !self.is_indexed {
            self.source.store.index_steps().await?;
            self.is_indexed = true;
        }
        let at = self.source.store.now().await?;
        let time = self.source.clock.monotonic();
        let now = Now { at, time };
        journal.begin(at).await?;
        journal.follow(now);
        journal.write(&self.source, now, &mut self.behind).await?;
        Ok(true)
    }
}

#[derive(Debug)]
struct Journal {
    /// The file; elsewhere while it is written.
    file: Option<Jsonl>,
    written: HashMap<SessionKey, Written>,
    /// Whether nothing said where it begins.
    is_new: bool,
    /// Whether its first line is there.
    has_begun: bool,
    reached: Reached,
    lines: Vec<String>,
    /// Whether there are lines behind the last one that says how far it is, and what that one says.
    is_ahead: bool,
    noted: Timestamp,
}

/// How far a journal is.
#[derive(Debug)]
struct Reached {
    /// Every step that says an earlier time is written, or is from before the journal: where whoever goes on has to
    /// begin.
    complete: Timestamp,
    /// Up to where it was looked, so that the rest is only what could not be seen by then.
    cursor: Timestamp,
    /// When it was looked back far the last time.
    looked_back: Option<Duration>,
    /// When the last pass came to its end.
    passed: Duration,
}

/// Opens the file and reads from it how far it came; none where another process writes it.
async fn open(settings: JsonlSettings, time: Duration) -> Result<Option<Journal>, Fault> {
    let opened = tokio::task::spawn_blocking(move || {
        let mut written = HashMap::<SessionKey, Written>::new();
        let mut complete = None;
        let file = Jsonl::open(&settings, |line| {
            let Ok(known) = serde_json::from_str::<Known>(line) else {
                return;
            };
            if let (Some(tenant), Some(session), Some(n), Some(at)) =
                (known.tenant, known.session_id, known.n, known.at)
            {
                let key = SessionKey { tenant, session };
                let last = written.entry(key).or_insert(Written { n, at });
                last.n = last.n.max(n);
                last.at = last.at.max(at);
            } else if known.from.is_some() {
                // The last one: the database's clock may have been set back between them.
                complete = known.from;
            }
        })?;
        let Some(file) = file else {
            return Ok(None);
        };
        let from = complete.unwrap_or(Timestamp(0));
        let mut journal = Journal {
            file: Some(file),
            written,
            is_new: complete.is_none(),
            has_begun: false,
            reached: Reached {
                complete: from,
                cursor: from,
                looked_back: None,
                passed: time,
            },
            lines: Vec::new(),
            is_ahead: false,
            noted: from,
        };
        journal.forget();
        Ok(Some(journal))
    });
    joined(opened.await)
}

fn joined<T>(joined: Result<io::Result<T>, tokio::task::JoinError>) -> Result<T, Fault> {
    Ok(joined.map_err(io::Error::other)??)
}

impl Journal {
    /// Makes sure of the first line, so that whoever goes on after a death knows where the journal began.
    async fn begin(&mut self, now: Timestamp) -> Result<(), Fault> {
        if self.has_begun {
            return Ok(());
        }
        if self.is_new {
            self.reached.complete = now;
            self.reached.cursor = now;
        }
        let is_empty = self.file.as_ref().is_some_and(Jsonl::is_empty);
        if self.is_new && !is_empty {
            self.lines.push(self.head());
        }
        self.append().await?;
        self.noted = self.reached.complete;
        self.has_begun = true;
        Ok(())
    }

    /// Begins again where the database's clock was set back to, as when another server took over: what is committed from
    /// then on says earlier times than those that were looked at.
    fn follow(&mut self, now: Now) {
        if now.at >= self.reached.cursor {
            return;
        }
        // It may have been set back at any time since the last pass.
        let unseen = now.time.saturating_sub(self.reached.passed).as_millis();
        let unseen = i64::try_from(unseen).unwrap_or(i64::MAX);
        let back = now.at.0.saturating_sub(LATEST_MS).saturating_sub(unseen);
        let (was, now) = (self.reached.cursor.0, now.at.0);
        tracing::warn!(
            was,
            now,
            "the database's clock was set back; the journal looks again from there"
        );
        self.reached.cursor = Timestamp(back);
        self.reached.complete = self.reached.complete.min(self.reached.cursor);
        self.reached.looked_back = None;
        self.is_ahead = true;
    }

    /// Writes what was committed since the last pass.
    async fn write(&mut self, source: &Source, now: Now, behind: &mut Behind) -> Result<(), Fault> {
        let is_due = |last: Duration| now.time.saturating_sub(last) >= LOOK_BACK;
        let far = self.reached.looked_back.is_none_or(is_due);
        // A step that says an earlier time can be seen by now. Only looking again at everything behind that of the last
        // time finds all that could not.
        let visible = before(now.at, LATEST_MS);
        let end = before(now.at, SETTLED_MS);
        let mut from = if far {
            self.reached.complete
        } else {
            self.reached
                .complete
                .max(before(self.reached.cursor, USUAL_MS))
        };
        let mut span = SPAN_MIN_MS;
        while from < end {
            let until = Timestamp(from.0.saturating_add(span)).min(end);
            let (is_dense, until) = self.span(source, from, until, now).await?;
            self.reached.cursor = self.reached.cursor.max(until);
            if far {
                self.reached.complete = self.reached.complete.max(until.min(visible));
            }
            self.note().await?;
            let time = source.clock.monotonic();
            behind.is(now.on(source).since(self.reached.cursor), time);
            from = until;
            span = if is_dense {
                SPAN_MIN_MS
            } else {
                (span * 2).min(SPAN_MAX_MS)
            };
        }
        behind.is(
            now.on(source).since(self.reached.cursor),
            source.clock.monotonic(),
        );
        if far {
            self.reached.looked_back = Some(now.time);
        }
        self.reached.passed = now.time;
        Ok(())
    }

    /// Writes the steps that were committed between these times: whether they are many, and up to where, which is
    /// nearer where they are of many sessions.
    async fn span(
        &mut self,
        source: &Source,
        from: Timestamp,
        until: Timestamp,
        now: Now,
    ) -> Result<(bool, Timestamp), Fault> {
        let near = Timestamp(from.0.saturating_add(SPAN_MIN_MS));
        let mut query = FindSteps {
            from,
            until,
            after: None,
            limit: source.found_max,
        };
        let mut steps = 0;
        loop {
            let found = source.store.find_steps(query.clone()).await?;
            let is_last = found.len() < source.found_max as usize;
            steps += found.iter().map(|it| it.last - it.first + 1).sum::<i64>();
            query.after = found.last().map(|found| found.key);
            if !is_last {
                // Of the sessions on this page more is known by now than was asked for.
                query.until = query.until.min(near);
            }
            // What is too young is told by the time at which it is read.
            for found in found.chunks(SESSIONS_MAX) {
                self.sessions(source, found, now).await?;
            }
            if is_last {
                return Ok((steps >= DENSE || query.until < until, query.until));
            }
        }
    }

    /// Writes what is new of these sessions.
    async fn sessions(
        &mut self,
        source: &Source,
        found: &[FoundSteps],
        now: Now,
    ) -> Result<(), Fault> {
        let at = now.on(source);
        let when = When {
            floor: self.reached.complete,
            settled: before(at, SETTLED_MS),
            // A step that says a later time than this is from before the clock was set back.
            ahead: Timestamp(at.0.saturating_add(LATEST_MS)),
        };
        let wanted = found.iter().filter_map(|&FoundSteps { key, first, last }| {
            let known = self.written.get(&key).map(|written| written.n);
            let is_new = known.is_none_or(|known| known < last);
            is_new.then_some(Wanted {
                key,
                first,
                last,
                known,
            })
        });
        let wanted: Vec<Wanted> = wanted.collect();
        let pieces = futures::stream::iter(wanted.into_iter().map(|wanted| async move {
            let piece = lines::first(source, wanted, when).await?;
            Ok::<_, Fault>((wanted, piece))
        }));
        let mut pieces = pieces.buffered(SESSIONS);
        while let Some((wanted, piece)) = pieces.try_next().await? {
            self.session(source, wanted, piece, when).await?;
        }
        Ok(())
    }

    /// Writes a session, of which this was read.
    async fn session(
        &mut self,
        source: &Source,
        wanted: Wanted,
        mut piece: Piece,
        when: When,
    ) -> Result<(), Fault> {
        loop {
            for line in piece.lines {
                self.lines.push(line.text);
                self.is_ahead = true;
                let (n, at) = (line.n, line.at);
                self.written.insert(wanted.key, Written { n, at });
                if self.lines.len() >= LINES {
                    self.flush().await?;
                }
            }
            if let Some(n) = piece.unreadable {
                let at = self.reached.cursor;
                let written = self.written.entry(wanted.key);
                let written = written.or_insert(Written { n, at });
                written.n = written.n.max(n);
            }
            let Some(after) = piece.next else {
                return Ok(());
            };
            piece = lines::behind(source, wanted, after, when).await?;
        }
    }

    /// Writes the lines, and how far they are: a session's lines may be ahead of those of others, so that only this
    /// says where whoever goes on has to begin. What need not be remembered any more is forgotten.
    async fn note(&mut self) -> Result<(), Fault> {
        // In quiet times too, now and then, lest whoever goes on looks at all of them again.
        let is_old = self.reached.complete.0.saturating_sub(self.noted.0) >= SPAN_MAX_MS;
        if !self.is_ahead && !is_old {
            return Ok(());
        }
        self.lines.push(self.head());
        self.flush().await?;
        self.is_ahead = false;
        self.noted = self.reached.complete;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        let oldest = before(self.reached.complete, REMEMBERED_MS);
        self.written.retain(|_, written| written.at >= oldest);
    }

    fn head(&self) -> String {
        serde_json::to_string(&JournalHead::new(self.reached.complete)).unwrap_or_default()
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        if self.lines.is_empty() {
            return Ok(());
        }
        self.append().await
    }

    /// Writes the lines; they are there after the death of this process.
    async fn append(&mut self) -> Result<(), Fault> {
        let Some(mut file) = self.file.take() else {
            return Err(io::Error::other("the file is not open").into());
        };
        let lines = std::mem::take(&mut self.lines);
        let head = self.head();
        metrics::counter!(JOURNAL_LINES).increment(lines.len() as u64);
        let appended = tokio::task::spawn_blocking(move || {
            file.append(&head, &lines)?;
            Ok(file)
        });
        self.file = Some(joined(appended.await)?);
        Ok(())
    }
}

/// So many milliseconds earlier.
const fn before(at: Timestamp, ms: i64) -> Timestamp {
    Timestamp(at.0.saturating_sub(ms))
}

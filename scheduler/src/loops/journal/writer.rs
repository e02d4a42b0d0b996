//! Decides which steps to look for, and remembers which were written.

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

use super::lines::{self, Piece, TimeBounds, Wanted};
use super::{Behind, Fault, Now, Source};
use crate::metrics::JOURNAL_LINES;

/// Sessions per query. Each page scans all steps of its time span again.
pub(super) const FOUND_MAX: u32 = 20_000;

/// If a query finds this many steps, the next one covers a shorter time span.
const DENSE: i64 = 10_000;

/// How late a step may become visible after its timestamp, in milliseconds: usually, and at most.
///
/// A step's timestamp is the start of its transaction. Postgres ends a transaction that idles for
/// three seconds and a statement that runs for ten, and SQLite has a single writer. But a
/// transaction with many slow statements may take longer, and MySQL keeps the transaction of a
/// stopped process open until its connection is given up. A step that becomes visible after the
/// longer time is not found directly. The session's next step reveals it, as long as the journal
/// remembers how far the session was written.
pub(super) const USUAL_MS: i64 = 2_000;
pub(super) const LATEST_MS: i64 = 60_000;

/// Steps younger than this are left for later, in milliseconds. With asynchronous commit, Postgres
/// shows claims before they are on disk, for at most three times `wal_writer_delay`, and a server
/// crash may undo them until then.
pub(super) const SETTLED_MS: i64 = 1_000;

/// How often the journal looks back by the longer time.
const LOOK_BACK: Duration = Duration::from_secs(15);

/// How long the progress of a session is remembered, in milliseconds: longer than the journal looks
/// back.
const REMEMBERED_MS: i64 = 10 * LATEST_MS;

/// Minimum and maximum time span of a query: a journal that was off for long catches up quickly,
/// and no query covers more than the database can answer in time.
pub(super) const SPAN_MIN_MS: i64 = 10_000;
pub(super) const SPAN_MAX_MS: i64 = 600_000;

/// Sessions that are read concurrently.
const SESSIONS: usize = 16;

/// Sessions that are read between two readings of the clock.
const SESSIONS_MAX: usize = 1_000;

/// Lines per write.
const LINES: usize = 1_000;

/// How far a session was written.
#[derive(Debug, Clone, Copy)]
struct Written {
    n: i64,
    at: Timestamp,
}

/// The fields of a head line or of a step's line that tell how far the journal is complete.
#[derive(Debug, Deserialize)]
struct Known {
    from: Option<Timestamp>,
    tenant: Option<TenantId>,
    session_id: Option<SessionId>,
    n: Option<i64>,
    at: Option<Timestamp>,
}

/// Writes the journal unless another process does.
pub(super) struct Writer {
    source: Source,
    settings: JsonlSettings,
    journal: Option<Journal>,
    /// Whether the database is known to have the index that finds steps by time.
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

    /// Whether this process is the one that writes the journal.
    pub(super) const fn writes(&self) -> bool {
        self.journal.is_some()
    }

    /// Writes what is new. Returns false if another process writes the journal.
    pub(super) async fn pass(&mut self) -> Result<bool, Fault> {
        let passed = self.attempt().await;
        match &passed {
            Ok(true) => {}
            Ok(false) => self.behind.is_elsewhere(),
            Err(fault) => {
                if matches!(fault, Fault::File(_)) {
                    // The file's contents are read again before the next write.
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
    /// The file; none during a write.
    file: Option<Jsonl>,
    written: HashMap<SessionKey, Written>,
    /// Whether the file had no head line.
    is_new: bool,
    /// Whether the first head line has been written.
    has_begun: bool,
    reached: Reached,
    lines: Vec<String>,
    /// Whether lines were written since the last head line.
    is_ahead: bool,
    noted: Timestamp,
}

/// How far the journal is complete.
#[derive(Debug)]
struct Reached {
    /// Every step with an earlier timestamp is written or predates the journal. The next process to
    /// write the journal has to start here.
    complete: Timestamp,
    /// The time up to which steps were looked for. Of the earlier steps, only those that were not
    /// visible then can be missing.
    cursor: Timestamp,
    /// When the journal last looked back by the longer time.
    looked_back: Option<Duration>,
    /// When the last pass ended.
    passed: Duration,
}

/// Opens the file and reads how far it is complete. Returns none if another process writes it.
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
                // The last head counts, even if it is not the latest: the database's clock may have
                // been set back.
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
    /// Ensures that the file has a head line, so that a successor after a crash knows where the
    /// journal began.
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

    /// Moves back if the database's clock was set back, for example after a failover. Steps
    /// committed from then on have earlier timestamps than those that were already looked for.
    fn follow(&mut self, now: Now) {
        if now.at >= self.reached.cursor {
            return;
        }
        // The clock may have been set back at any time since the last pass.
        let unseen = now.time.saturating_sub(self.reached.passed).as_millis();
        let unseen = i64::try_from(unseen).unwrap_or(i64::MAX);
        let back = now.at.0.saturating_sub(LATEST_MS).saturating_sub(unseen);
        let (was, now) = (self.reached.cursor.0, now.at.0);
        tracing::warn!(
            was,
            now,
            "the database's clock was set back; the journal searches again from there"
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
        // By now, every step with an earlier timestamp is visible. But `complete` may only advance
        // if everything since the last time it advanced has been looked for again.
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

    /// Writes the steps that were committed between these times. Returns whether they are many, and
    /// the end of the time that was covered, which is earlier than `until` if many sessions have
    /// steps.
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
                // The sessions of this page were written beyond this time, so the query may end
                // earlier.
                query.until = query.until.min(near);
            }
            // Which steps are too young is decided by the time at which they are read.
            for found in found.chunks(SESSIONS_MAX) {
                self.sessions(source, found, now).await?;
            }
            if is_last {
                return Ok((steps >= DENSE || query.until < until, query.until));
            }
        }
    }

    /// Writes the new steps of these sessions.
    async fn sessions(
        &mut self,
        source: &Source,
        found: &[FoundSteps],
        now: Now,
    ) -> Result<(), Fault> {
        let at = now.on(source);
        let bounds = TimeBounds {
            floor: self.reached.complete,
            settled: before(at, SETTLED_MS),
            // Steps with a later timestamp were written before the clock was set back.
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
            let piece = lines::first(source, wanted, bounds).await?;
            Ok::<_, Fault>((wanted, piece))
        }));
        let mut pieces = pieces.buffered(SESSIONS);
        while let Some((wanted, piece)) = pieces.try_next().await? {
            self.session(source, wanted, piece, bounds).await?;
        }
        Ok(())
    }

    /// Writes the lines of one session, starting with a piece that was already read.
    async fn session(
        &mut self,
        source: &Source,
        wanted: Wanted,
        mut piece: Piece,
        bounds: TimeBounds,
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
            piece = lines::lines_after(source, wanted, after, bounds).await?;
        }
    }

    /// Writes a head line after the lines. Some sessions' lines may be ahead of others', so that
    /// only the head says where a successor has to start. Also forgets sessions that need not be
    /// remembered.
    async fn note(&mut self) -> Result<(), Fault> {
        // Without new lines, a head is still written now and then, so that a successor does not
        // scan the whole quiet period again.
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

    /// Appends the lines durably: they survive the death of this process.
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

/// This many milliseconds earlier.
const fn before(at: Timestamp, ms: i64) -> Timestamp {
    Timestamp(at.0.saturating_sub(ms))
}

//! A journal: every step of every session as a line in a file, in order for each session, at least once and none left
//! out, also over the deaths of processes.
//!
//! Lines of the file say how far it came. Steps are found by when they were committed, which is not quite the order in
//! which they can be read: a transaction may take its time. So what was just read is read again a moment later,
//! and once more after a longer while; and since a session's steps are numbered without gaps, whichever step of it
//! is found leads to all that were missed before it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::telemetry::{Jsonl, JsonlSettings, redacted};
use mainspring_shared::id::SessionKey;
use mainspring_shared::journal::{JournalHead, JournalLine};
use mainspring_shared::message::{Message, Role, plain_text};
use mainspring_shared::step::Step;
use mainspring_shared::store::{self, FindSteps, ReadMessages, StepAt};
use mainspring_shared::time::Timestamp;
use serde_json::json;

use super::{Health, jittered};
use crate::app::App;
use crate::metrics::{JOURNAL_BEHIND, JOURNAL_LINES};

/// Places of steps per read.
const PLACES: u32 = 1_000;

/// Steps of one session per read.
const STEPS: u32 = 200;

/// Steps that are looked at before the first one that is found of a session that is not known.
const BEFORE: i64 = 64;

/// How late a step may be seen after the time that it says, in milliseconds: what is usual, and what no transaction
/// exceeds, since the server ends those that pause.
const USUAL_MS: i64 = 2_000;
const LATEST_MS: i64 = 60_000;

/// How often it is looked back that far.
const LOOK_BACK: Duration = Duration::from_secs(15);

/// How long it is remembered how far a session was written, in milliseconds: longer than it is looked back.
const REMEMBERED_MS: i64 = 10 * LATEST_MS;

/// The times that are looked at together, at least and at most: a journal that was off for long catches up quickly.
const SPAN_MIN_MS: i64 = 10_000;
const SPAN_MAX_MS: i64 = 86_400_000;

/// Lines that are written together.
const LINES: usize = 1_000;

/// Why nothing can be written.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the database could not be read")]
    Store(#[from] store::Error),
    #[error("the journal's file cannot be written")]
    File(#[from] io::Error),
}

/// How far a session was written.
#[derive(Debug, Clone, Copy)]
struct Written {
    n: i64,
    at: Timestamp,
}

#[derive(Debug)]
struct Journal {
    /// The file; elsewhere while it is written.
    file: Option<Jsonl>,
    written: HashMap<SessionKey, Written>,
    /// What was committed before is written, but for what could not be seen by then.
    cursor: Timestamp,
    /// When it was looked back far the last time.
    looked_back: Option<Duration>,
    lines: Vec<String>,
    /// Whether there are lines behind the last one that says how far it is.
    is_ahead: bool,
}

/// Writes the journal until shutdown, if this scheduler is to have one.
pub(crate) async fn run(app: &Arc<App>) {
    let Some(settings) = app.config.journal.clone() else {
        return;
    };
    let mut health = Health::new("journal");
    let mut journal = None;
    let mut stands_by = false;
    loop {
        let wait = match pass(app, &settings, &mut journal).await {
            Ok(true) => {
                health.succeeded();
                jittered(app, settings.interval)
            }
            Ok(false) => {
                if !std::mem::replace(&mut stands_by, true) {
                    let path = settings.path.display();
                    tracing::info!(%path, "another process writes the journal; this one stands by");
                }
                jittered(app, settings.interval)
            }
            Err(fault) => {
                // What is in the file is read again.
                journal = None;
                health.failed(&fault, app.entropy.fraction())
            }
        };
        tokio::select! {
            biased;
            () = app.lifecycle.stopping() => break,
            () = app.clock.sleep(wait) => {}
        }
    }
    // What was committed until here; the rest is written by whoever goes on.
    if journal.is_some()
        && let Err(error) = pass(app, &settings, &mut journal).await
    {
        tracing::debug!(%error, "the journal's end is left to the next process");
    }
}

/// Writes what is new; false where another process does.
async fn pass(
    app: &App,
    settings: &JsonlSettings,
    journal: &mut Option<Journal>,
) -> Result<bool, Fault> {
    let now = app.store.now().await?;
    if journal.is_none() {
        *journal = open(settings.clone(), now).await?;
    }
    let Some(journal) = journal else {
        return Ok(false);
    };
    let time = app.clock.monotonic();
    let is_due = |last: Duration| time.saturating_sub(last) >= LOOK_BACK;
    let far = journal.looked_back.is_none_or(is_due);
    let back = if far { LATEST_MS } else { USUAL_MS };
    let behind = now.since(journal.cursor);
    metrics::gauge!(JOURNAL_BEHIND).set(behind.as_secs_f64());
    let mut from = Timestamp(journal.cursor.0.saturating_sub(back));
    let mut span = SPAN_MIN_MS;
    while from <= now {
        let until = Timestamp(from.0.saturating_add(span));
        let found = journal.span(app, from, until).await?;
        journal.cursor = journal.cursor.max(until.min(now));
        journal.note().await?;
        from = until;
        span = if found < PLACES as usize / 2 {
            (span * 2).min(SPAN_MAX_MS)
        } else {
            SPAN_MIN_MS
        };
    }
    if far {
        journal.looked_back = Some(time);
    }
    Ok(true)
}

/// Opens the file and reads from it how far it came; none where another process writes it.
async fn open(settings: JsonlSettings, now: Timestamp) -> Result<Option<Journal>, Fault> {
    let opened = tokio::task::spawn_blocking(move || {
        let mut written = HashMap::<SessionKey, Written>::new();
        let mut cursor = None;
        let file = Jsonl::open(&settings, |line| {
            if let Ok(line) = serde_json::from_str::<JournalLine>(line) {
                let key = SessionKey {
                    tenant: line.tenant,
                    session: line.session_id,
                };
                let (n, at) = (line.n, line.at);
                let last = written.entry(key).or_insert(Written { n, at });
                last.n = last.n.max(n);
                last.at = last.at.max(at);
            } else if let Ok(head) = serde_json::from_str::<JournalHead>(line) {
                cursor = cursor.max(Some(head.from));
            }
        })?;
        let Some(mut file) = file else {
            return Ok(None);
        };
        if file.is_empty() {
            // Now, so that whoever goes on after a death knows where it began.
            let head = head(cursor.unwrap_or(now));
            file.append(&head, &[])?;
        }
        let cursor = cursor.unwrap_or(now);
        let oldest = cursor.0.saturating_sub(REMEMBERED_MS);
        written.retain(|_, written| written.at.0 >= oldest);
        Ok(Some(Journal {
            file: Some(file),
            written,
            cursor,
            looked_back: None,
            lines: Vec::new(),
            is_ahead: false,
        }))
    });
    joined(opened.await)
}

fn joined<T>(joined: Result<io::Result<T>, tokio::task::JoinError>) -> Result<T, Fault> {
    Ok(joined.map_err(io::Error::other)??)
}

fn head(from: Timestamp) -> String {
    serde_json::to_string(&JournalHead::new(from)).unwrap_or_default()
}

impl Journal {
    /// Writes the steps that were committed between these times; how many places were found.
    async fn span(&mut self, app: &App, from: Timestamp, until: Timestamp) -> Result<usize, Fault> {
        let mut query = FindSteps {
            from,
            until,
            after: None,
            limit: PLACES,
        };
        let mut count = 0;
        loop {
            let found = app.store.find_steps(query.clone()).await?;
            count += found.len();
            query.after = found.last().copied();
            let is_last = found.len() < PLACES as usize;
            let mut sessions = BTreeMap::<SessionKey, (i64, i64)>::new();
            for StepAt { key, n, .. } in found {
                let (first, last) = sessions.entry(key).or_insert((n, n));
                *first = (*first).min(n);
                *last = (*last).max(n);
            }
            for (key, (first, last)) in sessions {
                self.session(app, key, first, last).await?;
            }
            if is_last {
                return Ok(count);
            }
        }
    }

    /// Writes the steps of a session of which these were found.
    async fn session(
        &mut self,
        app: &App,
        key: SessionKey,
        first: i64,
        last: i64,
    ) -> Result<(), Fault> {
        let known = self.written.get(&key).map(|written| written.n);
        if known.is_some_and(|known| known >= last) {
            return Ok(());
        }
        // What is older than that was written, by whoever still knew the session.
        let floor = Timestamp(self.cursor.0.saturating_sub(LATEST_MS));
        let mut after = known.unwrap_or((first - 1 - BEFORE).max(0));
        loop {
            let steps = match app.store.read_steps(key, after, STEPS).await {
                Ok(steps) => steps,
                Err(error) if error.is_of_data() => {
                    tracing::error!(session.id = %key.session, %error, "steps cannot be read and are left out");
                    let at = self.cursor;
                    self.written.insert(key, Written { n: last, at });
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            let is_last = steps.len() < STEPS as usize;
            for step in steps {
                after = step.n;
                if known.is_none() && step.n < first && step.at < floor {
                    continue;
                }
                self.step(app, key, &step).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    async fn step(&mut self, app: &App, key: SessionKey, step: &Step) -> Result<(), Fault> {
        let messages = written_by(app, key, step).await?;
        let mine: Vec<&Message> = messages.iter().collect();
        let mut line = JournalLine::new(key.tenant, key.session, step, &mine);
        if app.config.trace_content && !mine.is_empty() {
            line.content = Some(content(&mine));
        }
        let line = serde_json::to_string(&line).map_err(io::Error::other)?;
        self.lines.push(line);
        self.is_ahead = true;
        let (n, at) = (step.n, step.at);
        self.written.insert(key, Written { n, at });
        if self.lines.len() >= LINES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes the lines, and how far they are: a session's lines may be ahead of those of others, so that only this
    /// says where whoever goes on has to begin. What need not be remembered any more is forgotten.
    async fn note(&mut self) -> Result<(), Fault> {
        if !std::mem::take(&mut self.is_ahead) {
            return Ok(());
        }
        self.lines.push(self.head());
        self.flush().await?;
        let oldest = self.cursor.0.saturating_sub(REMEMBERED_MS);
        self.written.retain(|_, written| written.at.0 >= oldest);
        Ok(())
    }

    fn head(&self) -> String {
        head(Timestamp(self.cursor.0.saturating_sub(LATEST_MS)))
    }

    /// Writes the lines; they are there after the death of this process.
    async fn flush(&mut self) -> Result<(), Fault> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let Some(mut file) = self.file.take() else {
            return Ok(());
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

/// The messages that a step wrote, but for those that were pruned.
async fn written_by(app: &App, key: SessionKey, step: &Step) -> Result<Vec<Message>, store::Error> {
    let (Some(first), count) = (step.refs.first_seq, step.refs.messages) else {
        return Ok(Vec::new());
    };
    if count == 0 {
        return Ok(Vec::new());
    }
    let query = ReadMessages {
        key,
        after: first - 1,
        limit: count,
    };
    let mut messages = match app.store.read_messages(query).await {
        Ok(messages) => messages,
        // Its line says what else is known of it.
        Err(error) if error.is_of_data() => Vec::new(),
        Err(error) => return Err(error),
    };
    messages.retain(|message| message.seq < first + i64::from(count));
    Ok(messages)
}

fn content(messages: &[&Message]) -> serde_json::Value {
    let said = messages.iter().map(|message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let calls = message.tool_calls.iter();
        let calls = calls.map(|call| json!({ "id": call.id, "arguments": call.arguments }));
        let calls: Vec<_> = calls.collect();
        json!({ "role": role, "text": plain_text(&message.content), "calls": calls })
    });
    redacted(said.collect())
}

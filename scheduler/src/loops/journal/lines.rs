//! Reads the steps of sessions as lines of the journal.

use std::io;
use std::ops::Range;

use mainspring_runtime::telemetry::redacted;
use mainspring_shared::id::SessionKey;
use mainspring_shared::journal::JournalLine;
use mainspring_shared::message::{Message, Role, plain_text};
use mainspring_shared::step::Step;
use mainspring_shared::store::{self, ReadMessages};
use mainspring_shared::time::Timestamp;
use serde_json::json;

use super::{Fault, Source};

/// Steps of one session per read.
const STEPS: u32 = 200;

/// How far back before the first found step to start reading a session whose progress is unknown.
/// It grows until it is enough.
const BEFORE: i64 = 64;

/// Messages per read, unless a single step wrote more.
const MESSAGES: i64 = 256;

/// A session that has steps to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) key: SessionKey,
    /// The first and the last step that were found.
    pub(super) first: i64,
    pub(super) last: i64,
    /// The last step that was written, if known.
    pub(super) known: Option<i64>,
}

/// Which steps to write, by their time.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeBounds {
    /// Steps before this time have already been written, by a process that still remembered the
    /// session.
    pub(super) floor: Timestamp,
    /// Steps from `settled` on are left for later, except those from `ahead` on.
    pub(super) settled: Timestamp,
    pub(super) ahead: Timestamp,
}

/// The line of a step.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) n: i64,
    pub(super) at: Timestamp,
    pub(super) text: String,
}

/// Lines of a session, in order.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) lines: Vec<Line>,
    /// The step after which more follow, if any.
    pub(super) next: Option<i64>,
    /// The number of the last step that cannot be read.
    pub(super) unreadable: Option<i64>,
}

/// Steps of a session.
#[derive(Debug, Default)]
struct Found {
    steps: Vec<Step>,
    /// The step after which more may follow, if any.
    next: Option<i64>,
    /// The number of the last step that cannot be read.
    unreadable: Option<i64>,
}

/// The first lines of a session that are still to be written.
pub(super) async fn first(
    source: &Source,
    wanted: Wanted,
    bounds: TimeBounds,
) -> Result<Piece, Fault> {
    if let Some(known) = wanted.known {
        return lines_after(source, wanted, known, bounds).await;
    }
    let mut back = BEFORE;
    loop {
        let after = (wanted.first - 1 - back).max(0);
        let found = read(source, wanted, after).await?;
        let oldest = found.steps.first();
        let reaches = oldest.is_none_or(|step| step.at < bounds.floor);
        if after == 0 || reaches {
            return piece(source, wanted, found, bounds).await;
        }
        back *= 4;
    }
}

/// The lines that follow step `after`.
pub(super) async fn lines_after(
    source: &Source,
    wanted: Wanted,
    after: i64,
    bounds: TimeBounds,
) -> Result<Piece, Fault> {
    let found = read(source, wanted, after).await?;
    piece(source, wanted, found, bounds).await
}

/// Steps of a session, without those that cannot be read.
async fn read(source: &Source, wanted: Wanted, after: i64) -> Result<Found, Fault> {
    match source.store.read_steps(wanted.key, after, STEPS).await {
        Ok(steps) => {
            let is_full = steps.len() == STEPS as usize;
            Ok(Found {
                next: steps.last().filter(|_| is_full).map(|step| step.n),
                steps,
                unreadable: None,
            })
        }
        Err(error) if error.is_of_data() => one_by_one(source, wanted, after).await,
        Err(error) => Err(error.into()),
    }
}

/// Like `read`, but skips steps that cannot be read, and stops at the last wanted one.
async fn one_by_one(source: &Source, wanted: Wanted, after: i64) -> Result<Found, Fault> {
    let key = wanted.key;
    let end = (after + i64::from(STEPS)).min(wanted.last);
    let mut found = Found {
        next: (end < wanted.last).then_some(end),
        ..Found::default()
    };
    for after in after..end {
        match source.store.read_steps(key, after, 1).await {
            Ok(steps) => found.steps.extend(steps),
            Err(error) if error.is_of_data() => {
                let n = after + 1;
                tracing::error!(
                    session.id = %key.session,
                    n,
                    %error,
                    "could not read a step; leaving it out of the journal"
                );
                found.unreadable = Some(n);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

async fn piece(
    source: &Source,
    wanted: Wanted,
    found: Found,
    bounds: TimeBounds,
) -> Result<Piece, Fault> {
    let Found {
        mut steps,
        mut next,
        mut unreadable,
    } = found;
    let is_fresh = |step: &Step| step.at >= bounds.settled && step.at < bounds.ahead;
    if let Some(fresh) = steps.iter().position(is_fresh) {
        // The steps after it are left for later too.
        unreadable = unreadable.filter(|n| *n < steps[fresh].n);
        steps.truncate(fresh);
        next = None;
    }
    if wanted.known.is_none() {
        steps.retain(|step| step.n >= wanted.first || step.at >= bounds.floor);
    }
    let mut lines = Vec::with_capacity(steps.len());
    let mut rest = &steps[..];
    while !rest.is_empty() {
        let (group, more) = rest.split_at(together(rest));
        lines_of(source, wanted.key, group, &mut lines).await?;
        rest = more;
    }
    Ok(Piece {
        lines,
        next,
        unreadable,
    })
}

/// The `seq`s of the messages that a step wrote.
fn seqs(step: &Step) -> Option<Range<i64>> {
    let (first, count) = (step.refs.first_seq?, i64::from(step.refs.messages));
    (count > 0).then_some(first..first + count)
}

/// The range of `seq`s from the first to the last message that these steps wrote.
fn seqs_of(steps: &[Step]) -> Option<Range<i64>> {
    let all = steps.iter().filter_map(seqs);
    all.reduce(|all, more| all.start.min(more.start)..all.end.max(more.end))
}

/// How many of the steps to read messages for in one query.
fn together(steps: &[Step]) -> usize {
    let is_much = |count: &usize| {
        let seqs = seqs_of(&steps[..*count]).unwrap_or_default();
        seqs.end - seqs.start > MESSAGES
    };
    let most = (1..=steps.len()).find(is_much);
    most.map_or(steps.len(), |much| (much - 1).max(1))
}

async fn lines_of(
    source: &Source,
    key: SessionKey,
    steps: &[Step],
    lines: &mut Vec<Line>,
) -> Result<(), Fault> {
    let messages = match seqs_of(steps) {
        Some(seqs) => messages(source, key, steps, seqs).await?,
        None => Vec::new(),
    };
    for step in steps {
        let seqs = seqs(step).unwrap_or_default();
        let mine: Vec<&Message> = messages
            .iter()
            .filter(|message| seqs.contains(&message.seq))
            .collect();
        let mut line = JournalLine::new(key.tenant, key.session, step, &mine);
        if source.content && !mine.is_empty() {
            line.content = Some(content(&mine));
        }
        lines.push(Line {
            n: step.n,
            at: step.at,
            text: serde_json::to_string(&line).map_err(io::Error::other)?,
        });
    }
    Ok(())
}

/// The messages that these steps wrote, except pruned ones. If some cannot be read, all messages of
/// the affected steps are missing, and their lines contain only what else is known.
async fn messages(
    source: &Source,
    key: SessionKey,
    steps: &[Step],
    seqs: Range<i64>,
) -> Result<Vec<Message>, store::Error> {
    let read = async |seqs: Range<i64>| {
        let query = ReadMessages {
            key,
            after: seqs.start - 1,
            limit: u32::try_from(seqs.end - seqs.start).unwrap_or(u32::MAX),
        };
        source.store.read_messages(query).await
    };
    match read(seqs).await {
        Err(error) if error.is_of_data() => {}
        read => return read,
    }
    let mut messages = Vec::new();
    for seqs in steps.iter().filter_map(self::seqs) {
        match read(seqs.clone()).await {
            Ok(read) => messages.extend(read.into_iter().filter(|it| seqs.contains(&it.seq))),
            Err(error) if error.is_of_data() => {}
            Err(error) => return Err(error),
        }
    }
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

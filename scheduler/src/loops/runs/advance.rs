//! The advance of one run: from new events to the rows to write.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use mainspring_runtime::telemetry::{self, carrying, spans};
use mainspring_shared::budget::{Spent, Used};
use mainspring_shared::error::{Code, Coded as _, Failure};
use mainspring_shared::id::{SendId, SessionId, SessionKey};
use mainspring_shared::inbox::{FIRST, run_item};
use mainspring_shared::list::{Entry, ListName};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::StopReason;
use mainspring_shared::session::SessionStatus;
use mainspring_shared::store::{
    self, AcceptSend, AdvanceRun, NewSession, Parent, RunNews, RunReport, RunWords, Target,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallResult;
use mainspring_shared::workflow::run::{
    Advance, DETACHED, LeafStart, NodeRecord, RunCounts, RunEvent, RunLeaf, RunRecord, RunStatus,
};
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::memory;
use crate::app::App;
use crate::engine::Run;
use crate::off_thread::off_thread;

/// How long computing an advance may take. The work of one is bounded to a fraction of that.
pub(super) const ADVANCE_MAX: Duration = Duration::from_secs(10);

/// Maximum number of characters of a result in the report to the parent; the rest can be read from
/// the nodes.
const REPORT_CHARS_MAX: usize = 16_000;

/// A run in memory.
pub(super) struct Kept {
    pub(super) run: Run,
    /// The topmost session of the tree that the run's session is in.
    pub(super) root: Option<SessionId>,
}

/// The state from which a run is advanced.
pub(super) enum Start {
    /// Its in-memory state.
    Kept(Box<Kept>),
    /// Its record only, because the run cannot be read or must not be advanced, and why.
    Broken(Box<RunRecord>, Failure),
}

impl Start {
    pub(super) fn record(&self) -> &RunRecord {
        match self {
            Self::Kept(kept) => kept.run.record(),
            Self::Broken(record, _) => record,
        }
    }
}

/// An advance to be committed.
pub(super) struct Prepared {
    pub(super) item: AdvanceRun,
    /// Sends to cancel first.
    pub(super) cancel: Vec<SendId>,
    /// Sessions to delete first.
    pub(super) forget: Vec<SessionId>,
    /// By how much the number of leaves in flight changes.
    pub(super) grown: i64,
    /// What the templates of the advance cost.
    pub(super) worked: u64,
    /// The run after the advance; none if it cannot be read.
    pub(super) kept: Option<Box<Kept>>,
}

/// Applies new events to a run. Returns what to write.
pub(super) async fn prepare(
    app: &App,
    start: Start,
    news: RunNews,
    now: Timestamp,
) -> Result<Prepared, store::Error> {
    let record = start.record();
    let (origin, step) = (record.options.traceparent.as_deref(), news.step);
    let propagation = app.config.propagation;
    let span = spans::invoke_workflow(record.key, &record.name, step, origin, propagation);
    let origin = origin.map(str::to_owned);
    let advancing = advanced(app, start, news, now).instrument(span.clone());
    let prepared = carrying(origin, advancing).await;
    match &prepared {
        Ok(one) => {
            let (item, status) = (&one.item, one.item.run.status.as_str());
            spans::advanced(&span, item.ends.len(), item.start.len(), status);
        }
        Err(error) => spans::failed(&span, error.code()),
    }
    prepared
}

async fn advanced(
    app: &App,
    start: Start,
    news: RunNews,
    now: Timestamp,
) -> Result<Prepared, store::Error> {
    let live_max = news.live_max;
    let ends: Vec<SendId> = news.ends.iter().map(|ended| ended.end.send).collect();
    let asks = news.asks.iter().map(|(number, _)| *number);
    let asks: Vec<i64> = asks.chain(news.unreadable_asks.iter().copied()).collect();
    let mut kept = match start {
        Start::Kept(kept) => kept,
        Start::Broken(record, why) => {
            return given_up(app, &record, (news.step, ends, asks), why, now).await;
        }
    };
    let before = kept.run.record().status;
    let live = i64::from(kept.run.record().counts.live);
    kept.run.limit_live(live_max);
    let (key, step) = (news.key, news.step);
    let events = events(app, &kept, news).await?;
    let Some((back, advance)) = computed(app, kept, events, now).await else {
        tracing::error!(
            run.id = %key.run,
            "advancing a run took too long or broke off; failing it"
        );
        let found = app.store.get_runs(vec![key]).await?;
        let record = found.into_iter().flatten().next();
        let record = record.ok_or_else(|| memory::gone(key))?;
        let why = Failure::new(Code::WorkflowQuarantined, "advancing the run took too long");
        return given_up(app, &record, (step, ends, asks), why, now).await;
    };
    kept = back;
    let Advance {
        changed,
        start,
        cancel,
        forget,
        refused,
    } = advance;
    let mut starts = Vec::with_capacity(start.len());
    for leaf in start {
        starts.push(started(app, &mut kept, leaf).await?);
    }
    let changed: BTreeSet<String> = changed.into_iter().collect();
    let nodes = changed.iter().filter_map(|path| kept.run.node(path));
    let mut nodes: Vec<NodeRecord> = nodes.cloned().collect();
    nodes.sort_by_key(|node| node.n);
    let run = kept.run.record().clone();
    let is_final = run.status.is_final() && !before.is_final();
    for (_, failure) in &refused {
        tracing::info!(
            run.id = %run.key.run,
            code = %failure.code,
            "a request to a run was refused"
        );
    }
    let item = AdvanceRun {
        step,
        changes: changes(&run, before, &nodes, &refused),
        report: is_final
            .then(|| report(app, &run, kept.run.used()))
            .flatten(),
        run,
        nodes,
        start: starts,
        ends,
        asks,
        release: false,
        leaves_max: app.config.leaves_max.map(NonZeroU32::get),
    };
    Ok(Prepared {
        grown: i64::from(item.run.counts.live) - live,
        worked: kept.run.worked(),
        item,
        cancel,
        forget,
        kept: Some(kept),
    })
}

/// The events of a run's news.
async fn events(app: &App, kept: &Kept, news: RunNews) -> Result<Vec<RunEvent>, store::Error> {
    let mut events: Vec<RunEvent> = vec![RunEvent::Looked];
    for mut ended in news.ends {
        if ended.end.stop_reason == StopReason::RoundLimit && kept.run.needs_todo(&ended.path) {
            ended.end.todo_left = todo_left(app, kept, &ended.path).await?;
        }
        events.push(RunEvent::LeafEnded {
            path: ended.path,
            attempt: ended.attempt,
            end: ended.end,
        });
    }
    events.extend(news.asks.into_iter().map(|(_, ask)| RunEvent::Asked(ask)));
    Ok(events)
}

/// Computes an advance on a thread of its own, so that whatever it costs, nothing else waits for
/// it. None if that took too long or broke off.
async fn computed(
    app: &App,
    mut kept: Box<Kept>,
    events: Vec<RunEvent>,
    now: Timestamp,
) -> Option<(Box<Kept>, Advance)> {
    let work = move || {
        let advance = kept.run.advance(events, now);
        (kept, advance)
    };
    off_thread(app.clock.as_ref(), ADVANCE_MAX, work).await
}

/// Fails a run that is not advanced any more, and cancels its leaves.
async fn given_up(
    app: &App,
    record: &RunRecord,
    (step, ends, asks): (i64, Vec<SendId>, Vec<i64>),
    why: Failure,
    now: Timestamp,
) -> Result<Prepared, store::Error> {
    Ok(Prepared {
        item: broken(app, record, &why, step, (ends, asks), now),
        cancel: app.store.live_leaves(record.key).await?,
        grown: -i64::from(record.counts.live),
        forget: Vec::new(),
        worked: 0,
        kept: None,
    })
}

/// Whether the to-do list of a leaf's session has open entries.
async fn todo_left(app: &App, kept: &Kept, path: &str) -> Result<bool, store::Error> {
    let tenant = kept.run.record().key.tenant;
    let Some(session) = kept.run.node(path).and_then(|node| node.session) else {
        return Ok(false);
    };
    let list = app.store.read_list(tenant, ListName::Todo(session)).await?;
    let is_open = |entry: &Entry| entry.status.as_deref() != Some("completed");
    Ok(list.entries.iter().any(is_open))
}

/// Whether a session still accepts sends.
async fn takes_sends(app: &App, key: SessionKey) -> Result<bool, store::Error> {
    let found = app.store.get_session(key).await?;
    Ok(found.is_some_and(|session| session.status != SessionStatus::Closed))
}

/// Generates the ids of a leaf's send and of its session, unless it continues in an existing one.
async fn started(
    app: &App,
    kept: &mut Kept,
    mut leaf: LeafStart,
) -> Result<AcceptSend, store::Error> {
    let send = SendId(app.entropy.ordered_id());
    leaf.options.traceparent = telemetry::traceparent();
    let tenant = kept.run.record().key.tenant;
    let mut continued = None;
    if let Some(there) = leaf.resume_in.take() {
        let key = SessionKey {
            tenant,
            session: there.session,
        };
        if takes_sends(app, key).await? {
            leaf.options.max_rounds = there.max_rounds.or(leaf.options.max_rounds);
            leaf.input = there.input;
            continued = Some(key);
        }
    }
    let session = match continued {
        Some(key) => key.session,
        None => SessionId(app.entropy.ordered_id()),
    };
    kept.run.started(&leaf.path, session, send);
    let run = kept.run.record();
    let mut metadata = std::mem::take(&mut leaf.metadata);
    metadata.remove(DETACHED);
    if leaf.detached {
        metadata.insert(DETACHED.to_owned(), json!(true));
    }
    metadata.insert("run_id".to_owned(), json!(run.key.run));
    metadata.insert("run_path".to_owned(), json!(leaf.path));
    let parent = run.session.filter(|_| !leaf.detached);
    let parent = parent.map(|parent| Parent {
        session: parent,
        call_id: run
            .reports_to
            .clone()
            .unwrap_or_else(|| run.key.run.to_string()),
        root: kept.root.unwrap_or(parent),
        depth: run.depth,
    });
    let target = NewSession {
        key: SessionKey {
            tenant: run.key.tenant,
            session,
        },
        agent: leaf.agent,
        metadata,
        parent,
    };
    Ok(AcceptSend {
        id: send,
        target: match continued {
            Some(key) => Target::Existing(key),
            None => Target::New(Box::new(target)),
        },
        input: leaf.input,
        options: leaf.options,
        reports_to: None,
        run: Some(RunLeaf {
            run: run.key.run,
            path: leaf.path,
            attempt: leaf.attempt,
        }),
        idempotency: None,
        queued_max: i64::MAX,
        keeper: None,
    })
}

/// The changes of an advance, for the run's event stream.
fn changes(
    run: &RunRecord,
    before: RunStatus,
    nodes: &[NodeRecord],
    refused: &[(usize, Failure)],
) -> Value {
    // Settled nodes are listed from the leaves up, then the others from the root down.
    let settled = nodes.iter().rev().filter(|node| node.state.is_settled());
    let others = nodes.iter().filter(|node| !node.state.is_settled());
    let nodes = settled.chain(others).map(|node| {
        let mut shown = json!({ "path": node.path, "kind": node.kind, "state": node.state });
        let mut set = |name: &str, value: Value| {
            if !value.is_null() {
                shown[name] = value;
            }
        };
        set("id", json!(node.id));
        set("session_id", json!(node.session));
        set("send_id", json!(node.send));
        set("error", json!(node.error));
        if node.attempt > 1 {
            set("attempt", json!(node.attempt));
        }
        if node.amended {
            set("amended", json!(true));
        }
        if !node.steered.is_empty() {
            set("steered", json!(node.steered));
        }
        shown
    });
    let mut changes = json!({ "counts": run.counts, "nodes": nodes.collect::<Vec<_>>() });
    if run.status != before {
        changes["status"] = json!(run.status);
    }
    if let Some(at) = run.options.paused_at.filter(|_| !run.status.is_final()) {
        changes["paused_at"] = json!(at);
    }
    if run.status.is_final() && !before.is_final() {
        changes["result"] = json!(run.result);
        changes["error"] = json!(run.error);
        changes["usage"] = json!(run.usage);
    }
    if !refused.is_empty() {
        let failures: Vec<_> = refused.iter().map(|(_, failure)| failure).collect();
        changes["refused"] = json!(failures);
    }
    changes
}

/// The report of a run's end to its session.
fn report(app: &App, run: &RunRecord, used: Used) -> Option<RunReport> {
    let session = SessionKey {
        tenant: run.key.tenant,
        session: run.session?,
    };
    let text = end_text(run);
    let call = run.reports_to.clone().map(|call_id| {
        let value = json!({
            "run_id": run.key.run, "status": run.status, "usage": used.usage, "kept": used.kept,
            "error": run.error,
        });
        let result = if run.status == RunStatus::Completed {
            CallResult {
                value: Some(Box::new(value)),
                ..CallResult::text(text.clone())
            }
        } else {
            let code = run
                .error
                .as_ref()
                .map_or(Code::ToolFailed, |error| error.code);
            CallResult {
                value: Some(Box::new(value)),
                ..CallResult::error(code, text.clone())
            }
        };
        (call_id, result)
    });
    // A cancelled run does not wake its session. But an agent that started it is notified along
    // with its next send, because the report returns what is left of the run's budget.
    let wake = run.status != RunStatus::Cancelled;
    let by_agent = run.options.starter.is_some();
    let words = (wake || by_agent).then(|| RunWords {
        item_id: run_item(run.key.run, run.attempt),
        send: SendId(app.entropy.ordered_id()),
        content: vec![ContentPart::text(text)],
        wake,
        ended_run: (by_agent && run.attempt == FIRST).then_some(run.key.run),
    });
    Some(RunReport {
        session,
        call,
        words,
    })
}

/// The text of the report.
fn end_text(run: &RunRecord) -> String {
    let mut text = format!(
        "The workflow {} ({}) has ended: {}.",
        run.name,
        run.key.run,
        run.status.as_str()
    );
    if let Some(error) = &run.error {
        text.push_str("\nerror: ");
        text.push_str(&error.message);
    }
    let result = match &run.result {
        None | Some(Value::Null) => return text,
        Some(Value::String(words)) => words.clone(),
        Some(value) => value.to_string(),
    };
    text.push_str("\n\n");
    text.extend(result.chars().take(REPORT_CHARS_MAX));
    if result.chars().nth(REPORT_CHARS_MAX).is_some() {
        text.push_str("\n[cut; workflow_status shows the nodes]");
    }
    text
}

/// An advance that fails a run that cannot continue, together with its report. The caller has to
/// cancel the run's leaves first.
pub(super) fn broken(
    app: &App,
    record: &RunRecord,
    error: &Failure,
    step: i64,
    (ends, asks): (Vec<SendId>, Vec<i64>),
    now: Timestamp,
) -> AdvanceRun {
    let was_final = record.status.is_final();
    let mut options = record.options.clone();
    let mut used = Used::default();
    if let Some(starter) = &mut options.starter {
        // The usage of its leaves is unknown, so nothing of the reserved amount is returned.
        let slice = starter.budget.unwrap_or_default().slice();
        used = *starter.used.get_or_insert(Used {
            usage: record.usage,
            kept: slice.minus(Spent::of(&record.usage, 0)),
        });
    }
    let run = RunRecord {
        status: RunStatus::Failed,
        options,
        result: None,
        error: Some(error.clone()),
        alarm_at: None,
        finished_at: Some(record.finished_at.unwrap_or(now)),
        counts: RunCounts {
            live: 0,
            ..record.counts
        },
        ..record.clone()
    };
    AdvanceRun {
        step,
        nodes: Vec::new(),
        start: Vec::new(),
        ends,
        asks,
        changes: json!({
            "status": run.status, "error": error, "usage": run.usage, "counts": run.counts,
        }),
        report: (!was_final).then(|| report(app, &run, used)).flatten(),
        run,
        release: true,
        leaves_max: None,
    }
}

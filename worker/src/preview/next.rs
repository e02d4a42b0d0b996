//! Finds the send whose model call comes next in a session, or constructs one that a client might
//! send.

use std::time::Duration;

use mainspring_shared::budget::{Held, Short, Spent};
use mainspring_shared::error::{Code, Coded as _};
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::Role;
use mainspring_shared::model::ModelFacts;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::preview::{Answered, Ask, PreviewLimit};
use mainspring_shared::session::window::Window;
use mainspring_shared::session::{SessionRecord, SessionStatus};
use mainspring_shared::store::{self, ListSends, StartedSend, Store};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;

use crate::Kernel;
use crate::send::spending;
use crate::session::read_window;

/// Minimum time for which a provider caches the beginning of a request.
const CACHE_LIFE: Duration = Duration::from_mins(5);

/// Page size of queued sends, to find the first one.
const QUEUED_PAGE: u32 = 200;

/// The inputs of a preview, before anything is rendered.
pub(super) struct Next {
    pub(super) send: StartedSend,
    pub(super) window: Window,
    /// Whether it was actually sent.
    pub(super) is_sent: bool,
    pub(super) limits: Vec<PreviewLimit>,
    pub(super) history: History,
}

/// What the provider was asked before.
pub(super) struct History {
    /// The send before this one.
    before: Option<SendRecord>,
    /// The last message of the previous request.
    asked_to: i64,
}

impl History {
    /// The last message that the provider is likely to have cached, together with everything before
    /// it.
    pub(super) fn cached_to(&self, send: &StartedSend, from: i64, now: Timestamp) -> Option<i64> {
        if send.record.rounds > 0 {
            return Some(self.asked_to);
        }
        let before = self.before.as_ref()?;
        let ended = before.finished_at?;
        let options = |send: &SendRecord| {
            let options = &send.options;
            let prompt = options.system_prompt.clone();
            let agent = options.agent.clone();
            (options.model.clone(), prompt, options.tools.clone(), agent)
        };
        let shown = before.shown.as_ref().and_then(|shown| shown.from_seq);
        let alike = before.rounds > 0
            && before.agent_version == send.record.agent_version
            && options(before) == options(&send.record)
            && shown.unwrap_or(1) == from;
        (alike && now.since(ended) < CACHE_LIFE).then_some(self.asked_to)
    }
}

/// Finds what comes next in the session.
pub(super) async fn of(kernel: &Kernel, ask: &Ask) -> Result<Next, Answered> {
    let store = kernel.parts.store.as_ref();
    let read = read(store, ask).await;
    let read = read.map_err(|error| Answered::refused(error.code(), error.to_string()))?;
    let missing = || Answered::refused(Code::SessionNotFound, "no session has this id");
    let Read {
        session,
        open,
        behind,
        before,
    } = read.ok_or_else(missing)?;
    let mut limits = limits_of(&session, open.as_ref(), behind);
    let (record, is_sent) = match (&ask.input, open) {
        (None, Some(open)) => (open, true),
        (Some(_) | None, _) => (imagined(ask, &session), false),
    };
    let send = StartedSend::new(record, session.agent.clone(), None);
    let begun = send.record.agent_version;
    if begun.is_some_and(|version| version != session.agent_version) {
        limits.push(limit(
            Code::SessionBusy,
            "the send continues with the agent that it started with; this is the current one",
        ));
    }
    let next_seq = session.last_seq() + 1;
    let from = send.window_from(next_seq).max(session.first_seq);
    let window = read_window(store, ask.key, from, next_seq).await;
    let window = window.map_err(|error| Answered::refused(error.code(), error.to_string()))?;
    let Some(window) = window else {
        let detail = "the session changed while it was read; try again";
        return Err(Answered::refused(Code::StoreUnavailable, detail));
    };
    let answers = window.held().iter().rev();
    let mut answers = answers.filter(|message| message.role == Role::Assistant);
    let asked_to = answers.next().map_or(0, |answer| answer.seq - 1);
    let send = StartedSend {
        record: SendRecord {
            agent_version: begun.or(Some(session.agent_version)),
            ..send.record
        },
        ..send
    };
    Ok(Next {
        send,
        window,
        is_sent,
        limits,
        history: History { before, asked_to },
    })
}

struct Read {
    session: SessionRecord,
    /// The first send that is not final.
    open: Option<SendRecord>,
    /// The number of sends that are not final, as far as they were counted.
    behind: usize,
    /// The last final send.
    before: Option<SendRecord>,
}

async fn read(store: &dyn Store, ask: &Ask) -> store::Result<Option<Read>> {
    let Some(session) = store.get_session(ask.key).await? else {
        return Ok(None);
    };
    let query = |status, before, limit| ListSends {
        tenant: ask.key.tenant,
        session: Some(ask.key.session),
        status,
        before,
        limit,
    };
    let (mut open, mut behind) = (None, 0);
    for status in [SendStatus::Running, SendStatus::Waiting] {
        let mut page = store.list_sends(query(Some(status), None, 1)).await?.data;
        behind += page.len();
        open = open.or(page.pop());
    }
    let mut queued = store
        .list_sends(query(Some(SendStatus::Queued), None, QUEUED_PAGE))
        .await?;
    behind += queued.data.len();
    while open.is_none() && queued.more {
        let last = queued.data.last().map(|send| send.id);
        let next = query(Some(SendStatus::Queued), last, QUEUED_PAGE);
        queued = store.list_sends(next).await?;
        behind += queued.data.len();
    }
    let first = queued
        .data
        .into_iter()
        .min_by_key(|send| (send.position.is_none(), send.position));
    let open = open.or(first);
    let mut ended = Vec::new();
    for status in [
        SendStatus::Completed,
        SendStatus::Failed,
        SendStatus::Cancelled,
    ] {
        ended.extend(store.list_sends(query(Some(status), None, 1)).await?.data);
    }
    let before = ended.into_iter().max_by_key(|send| send.finished_at);
    Ok(Some(Read {
        session,
        open,
        behind,
        before,
    }))
}

fn limit(code: Code, detail: impl Into<String>) -> PreviewLimit {
    PreviewLimit {
        code: code.as_str().to_owned(),
        detail: detail.into(),
    }
}

fn limits_of(
    session: &SessionRecord,
    open: Option<&SendRecord>,
    behind: usize,
) -> Vec<PreviewLimit> {
    let mut limits = Vec::new();
    if session.status == SessionStatus::Closed {
        limits.push(limit(
            Code::SessionClosed,
            "the session takes no more sends",
        ));
    }
    let Some(open) = open else {
        return limits;
    };
    if let Some(on) = open.waiting_on {
        let detail = format!("{} waits for: {}", open.id, on.as_str());
        limits.push(limit(Code::SessionBusy, detail));
    }
    if open.position.is_none() {
        let detail = format!("{} is delayed", open.id);
        limits.push(limit(Code::SessionBusy, detail));
    }
    if behind > 1 {
        let detail = format!("{behind} sends of the session are not final");
        limits.push(limit(Code::SessionBusy, detail));
    }
    limits
}

/// The send that the input would become.
fn imagined(ask: &Ask, session: &SessionRecord) -> SendRecord {
    SendRecord {
        // A random id: a nil id would mark messages that belong to no send.
        id: SendId(ask.id),
        key: SessionKey {
            tenant: ask.key.tenant,
            session: ask.key.session,
        },
        position: None,
        status: SendStatus::Queued,
        waiting_on: None,
        stop_reason: None,
        input: ask.input.clone().unwrap_or_default(),
        options: ask.options.clone(),
        agent_version: Some(session.agent_version),
        output_text: None,
        output: None,
        error: None,
        usage: Usage::default(),
        held: Held::default(),
        rounds: 0,
        attempts: 0,
        counted: 0,
        not_failed: 0,
        shown: None,
        crashes: 0,
        cancel_requested: false,
        reports_to: None,
        run: None,
        deadline_at: None,
        alarm_at: None,
        first_step: 0,
        created_at: Timestamp(0),
        started_at: None,
        finished_at: None,
    }
}

/// The limits of the send's and the session's budgets that would prevent the call.
pub(super) async fn budget_limits(
    kernel: &Kernel,
    send: &StartedSend,
    (tokens, answer): (u64, u32),
    facts: &ModelFacts,
) -> Result<Vec<PreviewLimit>, Answered> {
    let record = &send.record;
    let own = spending(&record.usage, record.rounds, &record.held);
    let mut left = record.options.budget.unwrap_or_default().caps().less(own);
    if let Some(budget) = send.agent.budget {
        let store = &kernel.parts.store;
        let used = store.session_usage(record.key).await;
        let used = used.map_err(|error| Answered::refused(error.code(), error.to_string()))?;
        let mut spent = Spent::default();
        for used in used
            .into_iter()
            .flat_map(|used| [used.own, used.below])
            .flatten()
        {
            spent = spent.plus(Spent::of(&used.usage, used.calls));
        }
        left = left.and(budget.caps().less(spent));
    }
    let allowed = left.answer(tokens, u64::from(answer), facts.price.as_ref());
    let short = allowed.err();
    let limits = short.map(|short| match short {
        Short::Price => limit(Code::BudgetNoPrice, short.to_string()),
        Short::Tokens | Short::Money | Short::Rounds | Short::Wall | Short::Cut => {
            limit(Code::BudgetExceeded, short.to_string())
        }
    });
    Ok(limits.into_iter().collect())
}

//! Parameters of steps that do not depend on what happened before.

use mainspring_shared::agent::{AgentSpec, ContextSpec};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{CallBegin, CallStep, DumpSession, SessionPatch};
use mainspring_shared::tool::CallResult;
use serde_json::json;

use super::op::{Agent, Begin, Change, Patch};
use crate::suites::store::prelude as small;

/// A cache that a worker could have: it begins where a window could have begun.
pub(super) fn cache(session: &DumpSession, from: u8, length: u8) -> (i64, i64) {
    let next_seq = session.hot.next_seq;
    let begin = session.first_seq;
    let from = begin + i64::from(from) % (next_seq - begin + 1);
    let first = session.messages.iter().find(|message| message.seq == from);
    let from = first.and_then(|m| m.asked_at_seq).unwrap_or(from);
    (from, from + i64::from(length) % (next_seq - from + 1))
}

/// The agent of a session.
pub(super) fn spec(agent: &Agent) -> AgentSpec {
    AgentSpec {
        pool: agent.gpu.then(|| "gpu".to_owned()),
        context: ContextSpec {
            last_messages: agent.last_messages,
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

/// The patch that makes a change.
pub(super) fn patch(change: &Patch) -> SessionPatch {
    let mut patch = SessionPatch::default();
    match change {
        Patch::Agent(agent) => patch.agent = Some(spec(agent)),
        Patch::Metadata(n) => {
            let metadata = json!({ "n": n }).as_object().cloned();
            patch.metadata = metadata;
        }
        Patch::Closed(closed) => patch.closed = Some(*closed),
    }
    patch
}

/// How a call begins.
pub(super) fn begin(begin: Begin) -> CallBegin {
    let waits = |on, approval, deadline: Option<i64>| CallBegin::Waits {
        on,
        approval,
        deadline: deadline.map(small::millis),
    };
    match begin {
        Begin::Started => CallBegin::Started,
        Begin::Requested => CallBegin::Requested,
        Begin::Waits(on, deadline) => waits(on, false, deadline),
        Begin::Asks(deadline) => waits(WaitingOn::Human, true, Some(deadline)),
        Begin::Settled => small::settled(),
    }
}

/// What becomes of a call; nothing, maybe.
pub(super) fn call_step(change: Change) -> Option<CallStep> {
    match change {
        Change::Nothing => None,
        Change::Started => Some(CallStep::Started),
        Change::Waits(on, deadline) => Some(CallStep::Waits {
            on,
            deadline: deadline.map(small::millis),
        }),
        Change::Settled => Some(CallStep::Settled(CallResult::text("done"))),
    }
}

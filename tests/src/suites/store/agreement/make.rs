//! Parameters of steps that do not depend on what happened before.

use mainspring_shared::agent::{AgentSpec, ContextSpec};
use mainspring_shared::store::{DumpSession, SessionPatch};
use serde_json::json;

use super::op::{Agent, Change};

/// A cache that a worker could have: it begins where a window could have begun.
pub(super) fn cache(session: &DumpSession, from: u8, length: u8) -> (i64, i64) {
    let next_seq = session.hot.next_seq;
    let from = 1 + i64::from(from) % next_seq;
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
        },
        ..AgentSpec::default()
    }
}

/// The patch that makes a change.
pub(super) fn patch(change: &Change) -> SessionPatch {
    let mut patch = SessionPatch::default();
    match change {
        Change::Agent(agent) => patch.agent = Some(spec(agent)),
        Change::Metadata(n) => {
            let metadata = json!({ "n": n }).as_object().cloned();
            patch.metadata = metadata;
        }
        Change::Closed(closed) => patch.closed = Some(*closed),
    }
    patch
}

//! Parameters of steps that do not depend on earlier steps.

use mainspring_shared::agent::{AgentRef, AgentSpec, Bound, ContextSpec};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{AcceptSend, CallBegin, CallStep, DumpSession, SessionPatch};
use mainspring_shared::tool::CallResult;
use mainspring_shared::workflow::nodes::NodeKind;
use mainspring_shared::workflow::run::{NodeRecord, NodeState, RunAsk};
use serde_json::json;

use super::op::{Agent, Asked, Begin, Change, PATHS, Patch};
use crate::suites::store::prelude as small;
use crate::suites::store::runs;

/// A cache that a worker could have: it starts where a window could have started.
pub(super) fn cache(session: &DumpSession, from: u8, length: u8) -> (i64, i64) {
    let next_seq = session.hot.next_seq;
    let begin = session.first_seq;
    let from = begin + i64::from(from) % (next_seq - begin + 1);
    let first = session.messages.iter().find(|message| message.seq == from);
    let from = first.and_then(|m| m.asked_at_seq).unwrap_or(from);
    (from, from + i64::from(length) % (next_seq - from + 1))
}

/// The published agent with this number.
pub(super) fn published(n: u8) -> AgentRef {
    AgentRef {
        name: format!("agent-{n}").parse().expect("a name"),
        version: 1,
    }
}

/// The agent of a session.
pub(super) fn spec(agent: &Agent) -> AgentSpec {
    let reference = agent.published.map(published);
    AgentSpec {
        name: reference.as_ref().map(|it| it.name.to_string()),
        bound: reference.map(|agent| {
            Box::new(Bound {
                agent: Some(agent),
                ..Bound::default()
            })
        }),
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

/// The initial state of a call.
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

/// The next step of a call, if any.
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

fn path(pick: u8) -> (i64, String) {
    let place = usize::from(pick) % PATHS.len();
    (place as i64 + 1, PATHS[place].to_owned())
}

/// A request to a run.
pub(super) fn asked(asked: Asked) -> RunAsk {
    match asked {
        Asked::Cancel => RunAsk::Cancel { reason: None },
        Asked::Retry => RunAsk::Retry {
            max_tokens: Some(7),
        },
        Asked::CancelNode(pick) => RunAsk::CancelNode { path: path(pick).1 },
        Asked::RetryNode(pick) => RunAsk::RetryNode { path: path(pick).1 },
        Asked::AmendNode(pick) => RunAsk::AmendNode {
            path: path(pick).1,
            text: None,
            payload: Some(json!({ "by": "hand" })),
        },
        Asked::Steered(pick) => RunAsk::Steered {
            path: path(pick).1,
            item_id: format!("item-{pick}"),
            text: "go left".to_owned(),
        },
    }
}

/// A node of a run.
pub(super) fn node(pick: u8, kind: NodeKind, state: NodeState) -> NodeRecord {
    let (n, path) = path(pick);
    NodeRecord {
        kind,
        ..runs::node(&path, n, state)
    }
}

/// The node of a leaf that is being started. Its number is unique.
pub(super) fn leaf_node(path: &str, leaf: &AcceptSend) -> NodeRecord {
    let n = 100 + leaf.id.0.as_u128() as i64;
    NodeRecord {
        session: Some(leaf.target.key().session),
        send: Some(leaf.id),
        ..runs::node(path, n, NodeState::Queued)
    }
}

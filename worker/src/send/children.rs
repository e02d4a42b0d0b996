//! Children: sessions that a call creates, whose send settles the call when it ends.
//!
//! A child's ids are derived from the call's, so that a call that is examined again after a crash
//! finds the child that it created.

use mainspring_runtime::telemetry;
use mainspring_shared::agent::prompt::bind;
use mainspring_shared::agent::{AgentQuery, AgentSpec, AgentVersion, Delegation, SendOptions};
use mainspring_shared::budget::Budget;
use mainspring_shared::error::Code;
use mainspring_shared::id::{RunId, SendId, SessionId, SessionKey};
use mainspring_shared::message::ContentPart;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::store::{
    AcceptSend, IdempotencyKey, NewSession, Parent, StartedSend, Target,
};
use mainspring_shared::tool::{CallRecord, CallResult, ToolEntry};
use mainspring_shared::wording::plain;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Maximum number of rounds of a child unless its parent says otherwise.
const MAX_ROUNDS: u32 = 20;

/// System prompt of a child unless its parent says otherwise.
const PROMPT: &str = "You do one task for another agent. Do it with the tools you have, then \
                      answer with the result alone: the other agent sees nothing else of your \
                      work.";

/// Maximum depth of a child below the root.
pub(super) const DEPTH_MAX: i32 = 3;

/// How many children of one session may work at once.
pub(super) const CHILDREN_MAX: u64 = 100;

/// Maximum size in bytes of the JSON metadata that a parent may attach to a child.
const METADATA_BYTES_MAX: usize = 16 << 10;

/// How many sends may be queued in a child.
const QUEUED_MAX: i64 = 100;

/// Metadata key of a child's session that says how long it is kept, if not as long as its parent.
pub(super) const LIFECYCLE: &str = "lifecycle";

/// Metadata key of a detached child's session that holds its depth: it has no parent to count from.
const DEPTH: &str = "spawn_depth";

/// How long a child's session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Lifecycle {
    /// As long as its parent.
    Linked,
    /// Until it has answered; like `Linked` if it did not.
    Ephemeral,
    /// Independently: it has no parent.
    Detached,
}

/// The depth of a session below the root.
pub(super) fn depth_of(session: &SessionRecord) -> i32 {
    let noted = session.metadata.get(DEPTH).and_then(Value::as_i64);
    let noted = noted.and_then(|depth| i32::try_from(depth).ok());
    let below = session.parent.as_ref().map(|parent| parent.depth);
    below.or(noted).unwrap_or(0)
}

/// Whether a session is to be deleted once it has answered.
pub(super) fn is_ephemeral(session: &SessionRecord) -> bool {
    session.metadata.get(LIFECYCLE) == Some(&json!("ephemeral"))
}

/// The child that a call created and that has answered it, if it is to be deleted.
pub(super) fn answered_for_good(call: &CallRecord) -> Option<SessionId> {
    let result = call.result.as_ref().filter(|result| !result.failed)?;
    let completed = result.value.as_ref()?.get("status") == Some(&json!("completed"));
    let ephemeral = call.arguments.get(LIFECYCLE) == Some(&json!("ephemeral"));
    (completed && ephemeral).then(|| SessionId(derived(call, "session")))
}

/// A call's arguments: what a parent says about its child.
#[derive(Debug, Deserialize)]
struct Task {
    #[serde(rename = "task")]
    words: String,
    #[serde(default)]
    variables: Map<String, Value>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    system_prompt: Option<String>,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(default)]
    max_rounds: Option<u32>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    max_tokens: Option<u32>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    output_schema: Option<Value>,
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(default)]
    lifecycle: Option<Lifecycle>,
    #[serde(default)]
    session_id: Option<String>,
}

/// A child to accept.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) item: AcceptSend,
    /// The existing child that the parent refers to, if any.
    pub(super) existing: Option<SessionKey>,
    /// What its parent may do, or the part of it that the parent names.
    may: AgentSpec,
}

impl Child {
    /// Limits an existing child to what its parent may do in this send.
    pub(super) fn narrow(&mut self, delegation: &Delegation, agent: &AgentSpec) {
        let mut tools = delegation.narrowed(agent);
        if let Some(allow) = &self.may.allow {
            tools.retain(|name| allow.contains(name));
        }
        self.item.options.tools = Some(tools);
    }
}

/// Whether the caller continues without the child's result.
pub(super) fn is_background(call: &CallRecord) -> bool {
    call.arguments.get("background") == Some(&json!(true))
}

/// The id of the child's send that a call creates.
pub(super) fn send_id(call: &CallRecord) -> SendId {
    SendId(derived(call, "send"))
}

/// The id of the run that a call starts.
pub(super) fn run_id(call: &CallRecord) -> RunId {
    RunId(derived(call, "run"))
}

/// An id derived from a call's. Its timestamp is that of the asking send, so that lists stay
/// ordered.
fn derived(call: &CallRecord, what: &str) -> Uuid {
    let hash = Sha256::digest(format!("{what} {}", call.call_id));
    let mut bytes = *call.send_id.0.as_bytes();
    for (byte, drawn) in bytes.iter_mut().skip(6).zip(hash.iter()) {
        *byte = *drawn;
    }
    uuid::Builder::from_bytes(bytes)
        .with_version(uuid::Version::SortRand)
        .with_variant(uuid::Variant::RFC4122)
        .into_uuid()
}

/// The send that asks for a child.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParentSend<'a> {
    pub(super) key: SessionKey,
    /// The asking session.
    pub(super) session: &'a SessionRecord,
    pub(super) send: &'a StartedSend,
    /// What the asking send delegates.
    pub(super) delegation: &'a Delegation,
    /// What the child may spend.
    pub(super) budget: Option<Budget>,
}

/// The published agent for a call's child, if the call names one that may be started.
#[expect(
    clippy::result_large_err,
    reason = "a refusal is the result of the call"
)]
pub(super) fn named(
    call: &CallRecord,
    delegation: &Delegation,
) -> Result<Option<AgentQuery>, CallResult> {
    let Some(text) = call.arguments.get("agent").and_then(Value::as_str) else {
        return Ok(None);
    };
    let refuse =
        |text: String| CallResult::error(Code::ToolInvalidArguments, format!("error: {text}"));
    let query: AgentQuery = text
        .parse()
        .map_err(|fault| refuse(format!("{text:?} names no agent: {fault}")))?;
    if !delegation.allows(&query) {
        return Err(refuse(format!("you may not start the agent {text:?}")));
    }
    Ok(Some(query))
}

/// Describes arguments of a task that contradict each other, if any.
fn misfit(task: &Task, is_existing: bool, is_named: bool) -> Option<&'static str> {
    let of_new = is_named
        || task.name.is_some()
        || task.max_tokens.is_some()
        || task.temperature.is_some()
        || task.lifecycle.is_some()
        || !task.metadata.is_empty();
    if is_existing && of_new {
        return Some(
            "an existing agent keeps its name and settings: with `session_id`, leave out `agent`, \
             `name`, `max_tokens`, `temperature`, `lifecycle` and `metadata`",
        );
    }
    let unnamed = !is_named && !task.variables.is_empty();
    unnamed.then_some("`variables` requires a published `agent`")
}

/// The child that a call asks for; `named` is the published agent that it names.
#[expect(
    clippy::result_large_err,
    reason = "a refusal is the result of the call"
)]
pub(super) fn child(
    call: &CallRecord,
    parent: ParentSend<'_>,
    named: Option<AgentVersion>,
) -> Result<Child, CallResult> {
    let ParentSend {
        key,
        session,
        send,
        delegation,
        budget,
    } = parent;
    let above = session.parent.as_ref();
    let refuse = |code, text: String| CallResult::error(code, format!("error: {text}"));
    let invalid = |text: String| refuse(Code::ToolInvalidArguments, text);
    let task: Task = serde_json::from_value(call.arguments.value().clone())
        .map_err(|error| invalid(plain(&error.to_string())))?;
    if serde_json::to_vec(&task.metadata).map_or(true, |json| json.len() > METADATA_BYTES_MAX) {
        return Err(invalid(format!(
            "`metadata` has at most {METADATA_BYTES_MAX} bytes of JSON"
        )));
    }
    let depth = depth_of(session) + 1;
    if depth > DEPTH_MAX {
        let text = format!("sub-agents can be nested at most {DEPTH_MAX} levels deep");
        return Err(refuse(Code::LimitExceeded, text));
    }
    let known = task.session_id.as_ref().map(|text| {
        let session: Result<SessionId, _> = text.parse();
        let session = session.map_err(|_| invalid(format!("{text:?} is not a session id")))?;
        Ok(SessionKey { session, ..key })
    });
    let existing = known.transpose()?;
    if let Some(text) = misfit(&task, existing.is_some(), named.is_some()) {
        return Err(invalid(text.to_owned()));
    }
    let wanted = task.tools.clone().map(|names| {
        let names = names.into_iter().map(ToolEntry::Named);
        names.collect::<Vec<_>>()
    });
    let may = delegation.heir(wanted.as_deref());
    let target = if let Some(child) = existing {
        Target::Existing(child)
    } else {
        let metadata = metadata(&task, call, depth);
        let agent = match named {
            None => agent(&task, &send.agent, may.clone()),
            Some(version) => {
                let agent = published(&task, version, delegation, &may, &metadata);
                agent.map_err(invalid)?
            }
        };
        let new = NewSession {
            key: SessionKey {
                session: SessionId(derived(call, "session")),
                ..key
            },
            agent,
            metadata,
            parent: (task.lifecycle != Some(Lifecycle::Detached)).then(|| Parent {
                session: key.session,
                call_id: call.call_id.clone(),
                root: above.map_or(key.session, |parent| parent.root),
                depth,
            }),
        };
        Target::New(Box::new(new))
    };
    let mut options = SendOptions {
        priority: send.record.options.priority,
        budget,
        output_schema: task.output_schema.clone(),
        traceparent: telemetry::traceparent(),
        ..SendOptions::default()
    };
    if existing.is_some() {
        // It has an agent already; the given settings apply to this task only.
        options.model = task.model;
        options.system_prompt = task.system_prompt;
        options.max_rounds = task.max_rounds;
    }
    let item = AcceptSend {
        id: send_id(call),
        target,
        input: vec![ContentPart::text(task.words)],
        options,
        reports_to: Some(call.call_id.clone()),
        run: None,
        idempotency: Some(IdempotencyKey {
            tenant: key.tenant,
            route: "spawn".to_owned(),
            key: call.call_id.clone(),
            body_hash: [0; 32],
        }),
        queued_max: QUEUED_MAX,
        keeper: None,
    };
    Ok(Child {
        item,
        existing,
        may,
    })
}

/// A child's metadata: what its parent says, and who created it.
fn metadata(task: &Task, call: &CallRecord, depth: i32) -> Map<String, Value> {
    let mut metadata = task.metadata.clone();
    metadata.insert("spawned_by".to_owned(), json!(call.call_id));
    metadata.remove(LIFECYCLE);
    metadata.remove(DEPTH);
    match task.lifecycle {
        None | Some(Lifecycle::Linked) => {}
        Some(Lifecycle::Ephemeral) => {
            metadata.insert(LIFECYCLE.to_owned(), json!("ephemeral"));
        }
        Some(Lifecycle::Detached) => {
            metadata.insert(LIFECYCLE.to_owned(), json!("detached"));
            metadata.insert(DEPTH.to_owned(), json!(depth));
        }
    }
    metadata
}

/// A child's published agent, restricted to what its parent has and adjusted by the task; or the
/// reason why it cannot be started like that.
fn published(
    task: &Task,
    version: AgentVersion,
    delegation: &Delegation,
    may: &AgentSpec,
    metadata: &Map<String, Value>,
) -> Result<AgentSpec, String> {
    if task.name.is_some() || task.system_prompt.is_some() {
        return Err(
            "a published agent keeps its name and system prompt: with `agent`, leave out `name` \
             and `system_prompt`"
                .to_owned(),
        );
    }
    let reference = version.reference();
    let mut agent = delegation.narrow(version.spec);
    if task.tools.is_some()
        && let (Some(own), Some(may)) = (&mut agent.allow, &may.allow)
    {
        own.retain(|name| may.contains(name));
    }
    let agent = AgentSpec {
        model: task.model.clone().or(agent.model),
        max_rounds: task.max_rounds.or(agent.max_rounds).or(Some(MAX_ROUNDS)),
        max_tokens: task.max_tokens.or(agent.max_tokens),
        temperature: task.temperature.or(agent.temperature),
        ..agent
    };
    bind(agent, Some(reference), task.variables.clone(), metadata).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        faults.join("; ")
    })
}

/// A child's agent: its parent's permissions or a part of them, adjusted by the task.
fn agent(task: &Task, parent: &AgentSpec, may: AgentSpec) -> AgentSpec {
    AgentSpec {
        name: Some(task.name.clone().unwrap_or_else(|| "delegate".to_owned())),
        system_prompt: Some(
            task.system_prompt
                .clone()
                .unwrap_or_else(|| PROMPT.to_owned()),
        ),
        model: task.model.clone().or_else(|| may.model.clone()),
        max_rounds: Some(task.max_rounds.unwrap_or(MAX_ROUNDS)),
        max_tokens: task.max_tokens.or(parent.max_tokens),
        temperature: task.temperature.or(parent.temperature),
        top_p: parent.top_p,
        reasoning_effort: parent.reasoning_effort,
        thinking: parent.thinking.clone(),
        parallel_tool_calls: parent.parallel_tool_calls,
        // They are made for its parent's model.
        model_options: parent
            .model_options
            .clone()
            .filter(|_| task.model.is_none()),
        // Whom its parent's sender forces to call a tool is the parent. A task's output schema comes with its send; without one a child answers in words. The
        // budget comes with the send, too.
        ..may
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::tool::{Approval, Repeat};

    use super::*;

    #[test]
    fn ids_follow_from_the_call_and_keep_the_time_of_its_send() {
        let send = SendId(Uuid::from_u128(0x0199_aaaa_bbbb_7ccc_8ddd_eeee_ffff_0000));
        let call = |place: i32| CallRecord {
            call_id: mainspring_shared::tool::call_id(send, 0, place as usize),
            session: SessionId(Uuid::nil()),
            send_id: send,
            round: 0,
            place,
            name: "spawn_agent".into(),
            arguments: json!({}).into(),
            repeat: Repeat::Keyed,
            waits_on: None,
            approval: Approval::None,
            started_epoch: None,
            attempt: 0,
            deadline_at: None,
            asked: Vec::new(),
            result: None,
            requested_at: mainspring_shared::time::Timestamp(0),
            claim: None,
            settled_at: None,
        };
        assert_eq!(send_id(&call(0)), send_id(&call(0)));
        assert_ne!(send_id(&call(0)), send_id(&call(1)));
        assert_ne!(send_id(&call(0)).0, derived(&call(0), "session"));
        let made = send_id(&call(0)).0;
        assert_eq!(made.as_bytes()[..6], send.0.as_bytes()[..6]);
        assert_eq!(made.get_version_num(), 7);
    }
}

//! A leaf that runs an agent.

mod calls;
mod skills;
mod spec;

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::Node;
use super::tool::{names_below, templates};
use crate::agent::{AgentQuery, AgentSpec, OutputSpec};
use crate::workflow::run::RunOptions;
use crate::workflow::schema::{Object, maybe, object, of, whole};
use crate::workflow::spec::{Policy, Spec, names_in};
use crate::workflow::validate::limits;
use crate::workflow::validate::reader::{Members, Reader, UseKind};
use crate::workflow::validate::tree::NodeAt;

pub use self::spec::{
    LeafAgent, Lifecycle, MAX_ROUNDS_DEFAULT, MAX_ROUNDS_MAX, MAX_TOKENS_DEFAULT, MAX_TOKENS_MAX,
};

pub(in crate::workflow) use self::spec::AGENT_SPEC;

/// Maximum number of further sends of one attempt that a leaf may ask for.
const CONTINUATIONS_MAX: u64 = 3;

const SCHEMA_HINT: &str = "write {\"name\": …, \"schema\": {JSON Schema}}";

/// A leaf that runs an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// The agent of its session; only defaults if it names a published one.
    pub spec: LeafAgent,
    /// The published agent that it names instead of a spec.
    pub named: Option<NamedLeaf>,
    /// The input, a template.
    pub input: String,
    /// Nodes whose texts are appended to the input.
    pub inputs_from: Vec<String>,
    /// The schema of its answer; overrides that of `spec`.
    pub output_schema: Option<Value>,
    /// Whether it continues when its rounds are used up.
    pub continuation: Option<Continuation>,
    /// Its leaf policy.
    pub policy: Policy,
}

/// A published agent that a leaf names.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedLeaf {
    /// The reference as written; the run stores the version that it resolved to.
    pub agent: AgentQuery,
    /// The values of its prompt's variables; texts in them are templates.
    pub variables: Map<String, Value>,
}

/// Further sends in the same session, after one that used up its rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuation {
    /// Maximum number of further sends.
    pub max: u32,
    /// The rounds of each.
    pub extra_rounds: u32,
    /// Only while the session's to-do list has open items.
    pub needs_todo: bool,
}

impl Node for Agent {
    fn object() -> Object {
        let spec = json!({"anyOf": [of("agent_spec"), {"type": "string", "description": "The same \
                           as JSON text."}]});
        let input = json!({"type": "string", "default": "{{input}}", "description": "Its input, a \
                            template."});
        let texts = json!({"type": "array", "items": {"type": "string"},
            "description": "Earlier nodes whose texts are appended to the input."});
        let agent = json!({"type": "string", "minLength": 1,
            "description": "A published agent instead of `spec`: NAME, NAME@VERSION or \
             NAME@ALIAS."});
        let variables = json!({"type": "object",
            "description": "The values of the variables of that agent's prompt; texts in them are templates."});
        object("A send in a separate session.", &["id"])
            .hinted(
                "spec",
                spec,
                "write {\"name\": …, \"system_prompt\": …}, or name a published `agent`",
            )
            .hinted("agent", agent, "write NAME, NAME@VERSION or NAME@ALIAS")
            .with("variables", variables)
            .one_of(json!([
                {"required": ["spec"], "not": {"required": ["agent"]}},
                {"required": ["agent"], "not": {"required": ["spec"]}},
            ]))
            .with("input", input)
            .with("inputs_from", texts)
            .hinted("output_schema", maybe("output_schema"), SCHEMA_HINT)
            .with("continuation", maybe("continuation"))
            .leaf()
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let members = at.members;
        let named = NamedLeaf::read(reader, at);
        let spec = match &named {
            Some(named) => Some(LeafAgent::of(named.agent.to_string())),
            None if members.map.contains_key("agent") => None,
            None => LeafAgent::read(reader, at),
        };
        let input = reader.text(members, "input");
        let input = input.unwrap_or_else(|| "{{input}}".to_owned());
        reader.template(at.ix, &input, &members.pointer("input"));
        let inputs_from = reader.texts(members, "inputs_from").unwrap_or_default();
        for (index, id) in inputs_from.iter().enumerate() {
            let pointer = format!("{}/{index}", members.pointer("inputs_from"));
            reader.reads(at.ix, id, pointer, UseKind::Context);
        }
        let output_schema = match members.given("output_schema") {
            Some(Value::Object(_)) => read_output_schema(reader, members),
            Some(_) => {
                let message = "`output_schema` is not an object";
                reader.member_problem(members, "output_schema", "output_schema", message);
                None
            }
            None => None,
        };
        let continuation = Continuation::read(reader, members);
        if continuation.is_some() && spec.as_ref().is_some_and(LeafAgent::is_ephemeral) {
            reader.ephemeral_continues(&members.pointer("continuation"));
        }
        let policy = Policy::read(reader, at);
        Some(Self {
            spec: spec?,
            named,
            input,
            inputs_from,
            output_schema,
            continuation,
            policy,
        })
    }

    fn write(&self, _spec: &Spec, out: &mut Map<String, Value>) {
        match &self.named {
            Some(named) => {
                out.insert("agent".into(), json!(named.agent));
                if !named.variables.is_empty() {
                    out.insert("variables".into(), json!(named.variables));
                }
            }
            None => {
                out.insert("spec".into(), self.spec.write());
            }
        }
        out.insert("input".into(), json!(self.input));
        if !self.inputs_from.is_empty() {
            out.insert("inputs_from".into(), json!(self.inputs_from));
        }
        if let Some(schema) = &self.output_schema {
            out.insert("output_schema".into(), schema.clone());
        }
        if let Some(more) = &self.continuation {
            let gate = if more.needs_todo {
                "todo_remaining"
            } else {
                "always"
            };
            let more = json!({"max": more.max, "extra_rounds": more.extra_rounds, "gate": gate});
            out.insert("continuation".into(), more);
        }
    }

    fn policy(&self) -> Option<&Policy> {
        Some(&self.policy)
    }

    fn names_read(&self) -> Vec<String> {
        let mut names = names_in(&self.spec.system_prompt);
        for value in self.named.iter().flat_map(|named| named.variables.values()) {
            names_below(value, &mut names);
        }
        names.extend(names_in(&self.input));
        names.extend(self.inputs_from.iter().cloned());
        names
    }

    fn declared(&self, spec: &Spec) -> u64 {
        let retry = self.policy.retry.as_ref();
        let attempts = retry.map_or(1, |retry| retry.max_attempts);
        let sends = self.continuation.map_or(0, |more| more.max) + 1;
        let sends = attempts.saturating_mul(sends);
        let own = self.spec.budget.unwrap_or(0).saturating_mul(sends.into());
        let fallback = self.policy.fallback.map_or(0, |ix| spec.declared(ix));
        own.saturating_add(fallback)
    }
}

impl Agent {
    /// The agent of its session, with the rendered prompt, in a run with these options.
    pub fn session_agent(&self, system_prompt: String, options: &RunOptions) -> AgentSpec {
        let spec = &self.spec;
        let heir = options.heir(spec.tools.as_deref());
        let calls = spec.calls.clone();
        AgentSpec {
            name: Some(spec.name.clone()),
            system_prompt: Some(system_prompt),
            model: spec.model.clone().or_else(|| heir.model.clone()),
            max_rounds: Some(spec.max_rounds),
            max_tokens: Some(spec.max_tokens),
            temperature: calls.temperature,
            top_p: calls.top_p,
            reasoning_effort: calls.reasoning_effort,
            tool_choice: calls.tool_choice,
            parallel_tool_calls: calls.parallel_tool_calls,
            model_options: calls.model_options,
            output_schema: self.schema().cloned(),
            pool: options.pool.clone().or_else(|| spec.pool.clone()),
            isolation: spec.isolation.stricter(heir.isolation),
            skills: self.skills(heir.skills.clone(), options),
            ..heir
        }
    }

    /// The agent of its session if it names a published one, in a run with these options.
    pub fn named_agent(&self, agent: AgentSpec, options: &RunOptions) -> AgentSpec {
        let narrowed = options.narrow(agent);
        AgentSpec {
            output_schema: self.output_schema.clone().or(narrowed.output_schema),
            pool: options.pool.clone().or(narrowed.pool),
            ..narrowed
        }
    }

    /// The schema of its answer: the node's own, or else the agent's.
    pub fn schema(&self) -> Option<&Value> {
        let own = self.output_schema.as_ref();
        own.or(self.spec.output_schema.as_ref())
    }
}

impl NamedLeaf {
    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let members = at.members;
        if !members.map.contains_key("agent") {
            if members.map.contains_key("variables") {
                let message = "`variables` requires a published agent";
                reader.member_problem(members, "variables", "variables", message);
            }
            return None;
        }
        if members.map.contains_key("spec") {
            let message = "a leaf has either `spec` or `agent`";
            reader.member_problem(members, "spec", "spec", message);
        }
        let variables = reader
            .object(members, "variables")
            .cloned()
            .unwrap_or_default();
        let pointer = members.pointer("variables");
        for (name, value) in &variables {
            templates(reader, at.ix, value, &limits::at(&pointer, name));
        }
        let text = reader.label(members, "agent")?;
        let agent: AgentQuery = match text.parse() {
            Ok(agent) => agent,
            Err(fault) => {
                let message = format!("{text:?} names no agent: {fault}");
                reader.member_problem(members, "agent", "agent", message);
                return None;
            }
        };
        if reader
            .granted
            .is_some_and(|granted| !granted.allows(&agent))
        {
            let message = format!("the caller may not start the agent {text:?}");
            let hint = "write a `spec`, or name an agent that is allowed";
            reader.problem(members.pointer("agent"), "agent", message, hint);
        }
        Some(Self { agent, variables })
    }
}

/// The members of a continuation.
pub(in crate::workflow) static CONTINUATION: LazyLock<Object> = LazyLock::new(|| {
    let rounds = whole(1, MAX_ROUNDS_MAX.into(), json!(MAX_ROUNDS_DEFAULT));
    let description = "Further sends in the same session, after one that used up its rounds.";
    object(description, &[])
        .with("max", whole(1, CONTINUATIONS_MAX, json!(1)))
        .with("extra_rounds", rounds)
        .with(
            "gate",
            json!({"enum": ["todo_remaining", "always"], "default": "todo_remaining",
                "description": "Only while its to-do list has open items, or always."}),
        )
});

impl Continuation {
    fn read(reader: &mut Reader<'_>, members: Members<'_>) -> Option<Self> {
        let pointer = members.pointer("continuation");
        let members = reader.inner(members, "continuation", &pointer, &CONTINUATION)?;
        let max = reader.whole(members, "max", (1, CONTINUATIONS_MAX));
        let rounds = reader.whole(members, "extra_rounds", (1, MAX_ROUNDS_MAX.into()));
        let gate = reader.word(members, "gate", &["todo_remaining", "always"]);
        Some(Self {
            max: max.unwrap_or(1) as u32,
            extra_rounds: rounds.map_or(MAX_ROUNDS_DEFAULT, |rounds| rounds as u32),
            needs_todo: gate != Some(1),
        })
    }
}

/// The JSON Schema of `output_schema`.
pub(in crate::workflow) fn output_schema() -> Value {
    json!({"type": "object",
        "description": "The schema of the answer: {name, schema, strict}, or just a JSON Schema."})
}

/// Reads the schema of an answer, and compiles it once so that this cannot fail later.
fn read_output_schema(reader: &mut Reader<'_>, members: Members<'_>) -> Option<Value> {
    let value = members.given("output_schema")?;
    match OutputSpec::read(value) {
        Ok(_) => Some(value.clone()),
        Err(fault) => {
            let at = format!("{}{}", members.pointer("output_schema"), fault.pointer);
            let hint = "write {\"name\": …, \"schema\": {JSON Schema}}, or just the schema";
            reader.problem(at, "output_schema", fault.detail, hint);
            None
        }
    }
}

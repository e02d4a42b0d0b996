//! The agent of a leaf, as written in a spec.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{calls, read_output_schema, skills};
use crate::agent::{CallSettings, Isolation};
use crate::skill::SkillRef;
use crate::tool::{self, ToolEntry};
use crate::wording::plain;
use crate::workflow::schema::{Object, maybe, object, whole};
use crate::workflow::spec::NodeIx;
use crate::workflow::validate::limits::{check, decode};
use crate::workflow::validate::reader::{Members, Reader};
use crate::workflow::validate::tree::NodeAt;

/// Default maximum number of rounds of a leaf.
pub const MAX_ROUNDS_DEFAULT: u32 = 8;
/// Largest number of rounds that a leaf may ask for.
pub const MAX_ROUNDS_MAX: u32 = 50;
/// Default maximum number of tokens of an answer.
pub const MAX_TOKENS_DEFAULT: u32 = 4_000;
/// Largest number of tokens of an answer that a leaf may ask for.
pub const MAX_TOKENS_MAX: u32 = 10_000_000;

/// The agent of a leaf, as written in a spec.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafAgent {
    /// A label to filter by.
    pub name: String,
    /// The system prompt, a template.
    pub system_prompt: String,
    /// Tools on offer; those of the run's starter when absent.
    pub tools: Option<Vec<ToolEntry>>,
    /// Maximum number of rounds.
    pub max_rounds: u32,
    /// Maximum number of tokens of one answer.
    pub max_tokens: u32,
    /// How its model is called besides; only what its author wrote.
    pub calls: CallSettings,
    /// The model; that of the run's starter, or the workers' default, when absent.
    pub model: Option<String>,
    /// The schema of its answer.
    pub output_schema: Option<Value>,
    /// How long its session is kept.
    pub lifecycle: Lifecycle,
    /// The metadata of its session.
    pub metadata: Map<String, Value>,
    /// Its token budget.
    pub budget: Option<u64>,
    /// The worker pool that it runs in.
    pub pool: Option<String>,
    /// Its minimum isolation.
    pub isolation: Isolation,
    /// The skills that it names; those of the run's starter when absent.
    pub skills: Option<Vec<SkillRef>>,
}

/// How long the session of a leaf is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifecycle {
    /// Until the leaf succeeds; like `Linked` if it does not.
    Ephemeral,
    /// As long as its run, and the session that the run belongs to.
    #[default]
    Linked,
    /// Independently: it has no parent, and stays when the run is removed.
    Detached,
}

impl Lifecycle {
    /// Every lifecycle.
    pub const ALL: [Self; 3] = [Self::Ephemeral, Self::Linked, Self::Detached];

    /// The name in a spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeral",
            Self::Linked => "linked",
            Self::Detached => "detached",
        }
    }
}

/// The members of a leaf's agent.
pub(in crate::workflow) static AGENT_SPEC: LazyLock<Object> = LazyLock::new(|| {
    let rounds = json!({"anyOf": [whole(1, MAX_ROUNDS_MAX.into(), Value::Null),
        {"type": "string", "pattern": "^\\s*[0-9.]+\\s*$"}], "default": MAX_ROUNDS_DEFAULT});
    let tools = json!({"description": "Tools by name, or declared; null for those of the run's \
                        caller.",
        "anyOf": [{"type": "null"}, {"type": "array", "items": {"type": ["string", "object"]}}]});
    let model = json!({"type": ["string", "null"], "description": "MODEL or PROVIDER/MODEL."});
    let pool = json!({"type": ["string", "null"], "description": "The workers that may run it."});
    let budget = json!({"anyOf": [{"type": "null"}, BUDGET.to_value()]});
    object("The agent of a leaf.", &["name", "system_prompt"])
        .label("name", "A label to filter by.", "give the agent a name")
        .label(
            "system_prompt",
            "Its system prompt: role and task, a template.",
            "describe the agent's role and task",
        )
        .hinted(
            "tools",
            tools,
            "write a list of tool names, [] for none, or null to inherit",
        )
        .with("max_rounds", rounds)
        .with(
            "max_tokens",
            whole(1, MAX_TOKENS_MAX.into(), json!(MAX_TOKENS_DEFAULT)),
        )
        .with("temperature", calls::temperature())
        .with("top_p", calls::top_p())
        .with("reasoning_effort", calls::reasoning_effort())
        .hinted("tool_choice", calls::tool_choice(), calls::CHOICE_HINT)
        .with("parallel_tool_calls", calls::parallel_tool_calls())
        .with("model_options", calls::model_options())
        .hinted(
            "model",
            model,
            "write MODEL or PROVIDER/MODEL, or leave it out",
        )
        .with("output_schema", maybe("output_schema"))
        .with(
            "lifecycle",
            json!({"enum": ["ephemeral", "linked", "detached"], "default": "linked"}),
        )
        .with("metadata", json!({"type": "object"}))
        .hinted("budget", budget, BUDGET_HINT)
        .hinted("pool", pool, "name a pool of workers, or leave it out")
        .with(
            "isolation",
            json!({"enum": ["none", "process"], "default": "none",
                "description": "Where those of its tools run that reach beyond the database."}),
        )
        .hinted("skills", skills::schema(), skills::HINT)
});

const BUDGET_HINT: &str = "write {\"tokens\": …}";

static BUDGET: LazyLock<Object> = LazyLock::new(|| {
    object("Its total limits.", &["tokens"]).hinted(
        "tokens",
        whole(1, i64::MAX as u64, Value::Null),
        BUDGET_HINT,
    )
});

impl LeafAgent {
    /// The defaults for a leaf that names a published agent.
    pub(super) fn of(name: String) -> Self {
        Self {
            name,
            system_prompt: String::new(),
            tools: None,
            max_rounds: MAX_ROUNDS_DEFAULT,
            max_tokens: MAX_TOKENS_DEFAULT,
            calls: CallSettings::default(),
            model: None,
            output_schema: None,
            lifecycle: Lifecycle::default(),
            metadata: Map::new(),
            budget: None,
            pool: None,
            isolation: Isolation::default(),
            skills: None,
        }
    }

    /// Whether its session is deleted as soon as it succeeds.
    pub fn is_ephemeral(&self) -> bool {
        self.lifecycle == Lifecycle::Ephemeral
    }

    /// Reads `spec`, an object or its JSON text.
    pub(super) fn read(reader: &mut Reader<'_>, node: NodeAt<'_>) -> Option<Self> {
        let pointer = node.members.pointer("spec");
        let Some(value) = node.members.map.get("spec") else {
            reader.missing(node.members, "spec");
            return None;
        };
        let decoded;
        let mut value = value;
        if let Value::String(text) = value {
            let checked = decode(text, &pointer).and_then(|value| check(&value).map(|()| value));
            decoded = match checked {
                Ok(value) => value,
                Err(mut problem) => {
                    problem.pointer = pointer;
                    reader.problems.push(problem);
                    return None;
                }
            };
            value = &decoded;
        }
        let Value::Object(map) = value else {
            let message = "`spec` is not an object";
            reader.member_problem(node.members, "spec", "not_object", message);
            return None;
        };
        Self::read_members(reader, node.ix, Members::new(map, &pointer, &AGENT_SPEC))
    }

    fn read_members(reader: &mut Reader<'_>, node: NodeIx, members: Members<'_>) -> Option<Self> {
        reader.only(members);
        let name = reader.label(members, "name");
        let system_prompt = reader.label(members, "system_prompt");
        if let Some(prompt) = &system_prompt {
            reader.template(node, prompt, &members.pointer("system_prompt"));
        }
        let tools = read_tools(reader, members);
        let max_rounds = read_rounds(reader, members);
        let max_tokens = reader.whole(members, "max_tokens", (1, MAX_TOKENS_MAX.into()));
        let calls = calls::read(reader, members);
        let model = members.given("model");
        let model = model.map(|_| reader.label(members, "model"));
        let output_schema = read_output_schema(reader, members);
        let lifecycle = Lifecycle::read(reader, members);
        let metadata = reader.object(members, "metadata").cloned();
        let budget = read_budget(reader, members);
        let pool = read_pool(reader, members, tools.as_deref().unwrap_or_default());
        let words = Isolation::ALL.map(Isolation::as_str);
        let isolation = reader.word(members, "isolation", &words);
        let skills = skills::read(reader, members);
        calls::offered(reader, members, &calls, tools.as_deref());
        Some(Self {
            name: name?,
            system_prompt: system_prompt?,
            tools,
            max_rounds,
            max_tokens: max_tokens.map_or(MAX_TOKENS_DEFAULT, |tokens| tokens as u32),
            calls,
            model: model.flatten(),
            output_schema,
            lifecycle,
            metadata: metadata.unwrap_or_default(),
            budget,
            pool,
            isolation: isolation.map_or(Isolation::None, |place| Isolation::ALL[place]),
            skills,
        })
    }

    pub(super) fn write(&self) -> Value {
        let mut out = json!({
            "name": self.name,
            "system_prompt": self.system_prompt,
            "tools": self.tools,
            "max_rounds": self.max_rounds,
            "max_tokens": self.max_tokens,
            "model": self.model,
            "output_schema": self.output_schema,
            "lifecycle": self.lifecycle.as_str(),
            "metadata": self.metadata,
        });
        calls::write(&self.calls, &mut out);
        if let Some(tokens) = self.budget {
            out["budget"] = json!({ "tokens": tokens });
        }
        if let Some(pool) = &self.pool {
            out["pool"] = json!(pool);
        }
        if !self.isolation.is_none() {
            out["isolation"] = json!(self.isolation);
        }
        if let Some(skills) = &self.skills {
            let skills: Vec<String> = skills.iter().map(ToString::to_string).collect();
            out["skills"] = json!(skills);
        }
        out
    }
}

impl Lifecycle {
    /// Reads `lifecycle`; in version 1 of the language it had no effect.
    fn read(reader: &mut Reader<'_>, members: Members<'_>) -> Self {
        let words = Self::ALL.map(Self::as_str);
        let wanted = reader.word(members, "lifecycle", &words);
        if reader.version < 2 {
            return Self::default();
        }
        let wanted = wanted.map(|place| Self::ALL[place]).unwrap_or_default();
        if wanted == Self::Detached && reader.granted.is_some() {
            let message = "leaves of a run started by an agent cannot be detached";
            let hint = "write \"linked\", or leave it out";
            reader.problem(members.pointer("lifecycle"), "lifecycle", message, hint);
        }
        wanted
    }
}

fn read_pool(reader: &mut Reader<'_>, members: Members<'_>, tools: &[ToolEntry]) -> Option<String> {
    members.given("pool")?;
    let pool = reader.label(members, "pool")?;
    if let Some(fault) = tool::pool_fault(&pool, tools) {
        reader.member_problem(members, "pool", "pool", format!("`pool` {fault}"));
    }
    Some(pool)
}

/// Rounds may be written as `8`, `8.0` or `"8"`.
fn read_rounds(reader: &mut Reader<'_>, members: Members<'_>) -> u32 {
    let Some(value) = members.map.get("max_rounds") else {
        return MAX_ROUNDS_DEFAULT;
    };
    let written = value.as_str().and_then(|text| text.trim().parse().ok());
    let number = written.or_else(|| value.as_f64());
    let fits =
        |number: &f64| number.fract() == 0.0 && (1.0..=f64::from(MAX_ROUNDS_MAX)).contains(number);
    if let Some(number) = number.filter(fits) {
        number as u32
    } else {
        let message = format!("`max_rounds` is not a whole number from 1 to {MAX_ROUNDS_MAX}");
        let hint = format!("leave it out for {MAX_ROUNDS_DEFAULT}");
        reader.problem(members.pointer("max_rounds"), "not_in_range", message, hint);
        MAX_ROUNDS_DEFAULT
    }
}

fn read_tools(reader: &mut Reader<'_>, members: Members<'_>) -> Option<Vec<ToolEntry>> {
    let value = members.given("tools")?;
    let pointer = members.pointer("tools");
    let Value::Array(list) = value else {
        reader.member_problem(members, "tools", "not_a_list", "`tools` is not a list");
        return None;
    };
    let mut entries = Vec::new();
    for (index, one) in list.iter().enumerate() {
        let at = format!("{pointer}/{index}");
        match serde_json::from_value::<ToolEntry>(one.clone()) {
            Ok(entry) => {
                reader.granted(&entry, &at);
                entries.push(entry);
            }
            Err(error) => {
                let hint = "write a tool's name, or an object with `type`";
                reader.problem(
                    at,
                    "tool",
                    format!("is not a tool: {}", plain(&error.to_string())),
                    hint,
                );
            }
        }
    }
    if entries.len() == list.len() {
        for fault in tool::check(&entries) {
            let at = format!("{pointer}{}", fault.pointer);
            reader.problem(at, "tool", fault.detail, "see the list of tools");
        }
    }
    Some(entries)
}

fn read_budget(reader: &mut Reader<'_>, members: Members<'_>) -> Option<u64> {
    let Value::Object(map) = members.given("budget")? else {
        reader.member_problem(members, "budget", "not_object", "`budget` is not an object");
        return None;
    };
    let pointer = members.pointer("budget");
    let members = Members::new(map, &pointer, &BUDGET);
    reader.only(members);
    reader.required(members, "tokens");
    reader.whole(members, "tokens", (1, i64::MAX as u64))
}

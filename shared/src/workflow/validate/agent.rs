//! The agent of a leaf: every fault of it, not only the first.

use serde_json::Value;

use super::limits::{at, check, decode};
use super::reader::{Members, Reader};
use crate::agent::OutputSpec;
use crate::tool::{self, ToolEntry};
use crate::workflow::spec::{
    LeafAgent, Lifecycle, MAX_ROUNDS_DEFAULT, MAX_ROUNDS_MAX, MAX_TOKENS_DEFAULT, MAX_TOKENS_MAX,
    NodeIx,
};

const KNOWN: &[&str] = &[
    "name",
    "system_prompt",
    "tools",
    "max_rounds",
    "max_tokens",
    "temperature",
    "model",
    "output_schema",
    "lifecycle",
    "metadata",
    "budget",
    "pool",
];

const SHAPE: &str = "write {\"name\": …, \"system_prompt\": …}";

impl Reader<'_> {
    pub(super) fn leaf_agent(&mut self, node: NodeIx, members: Members<'_>) -> Option<LeafAgent> {
        let pointer = members.pointer("spec");
        let decoded;
        let map = match members.map.get("spec") {
            None => {
                self.problem(members.at, "missing", "`spec` is missing", SHAPE);
                return None;
            }
            Some(Value::Object(map)) => map,
            Some(Value::String(text)) => {
                let value = decode(text, &pointer).and_then(|value| {
                    check(&value)?;
                    Ok(value)
                });
                decoded = match value {
                    Ok(value) => value,
                    Err(mut problem) => {
                        problem.pointer.clone_from(&pointer);
                        self.problems.push(problem);
                        return None;
                    }
                };
                let Some(map) = decoded.as_object() else {
                    self.problem(pointer, "not_object", "`spec` is not an object", SHAPE);
                    return None;
                };
                map
            }
            Some(_) => {
                self.problem(pointer, "not_object", "`spec` is not an object", SHAPE);
                return None;
            }
        };
        let members = Members { map, at: &pointer };
        self.agent_members(node, members)
    }

    fn agent_members(&mut self, node: NodeIx, members: Members<'_>) -> Option<LeafAgent> {
        self.only(members, KNOWN);
        let name = self.label(members, "name", "give the agent a name");
        let hint = "say who the agent is and what it does";
        let system_prompt = self.label(members, "system_prompt", hint);
        if let Some(prompt) = &system_prompt {
            self.template(node, prompt, &members.pointer("system_prompt"));
        }
        let tools = self.tools(members);
        let max_rounds = self.rounds(members);
        let max_tokens = self.whole(members, "max_tokens", (1, MAX_TOKENS_MAX.into()));
        let temperature = self.number(members, "temperature", (0.0, 2.0));
        let model = members.given("model").is_some().then(|| {
            self.label(
                members,
                "model",
                "write MODEL or PROVIDER/MODEL, or leave it out",
            )
        });
        let output_schema = self.output_schema(members);
        let words: Vec<_> = Lifecycle::ALL.iter().map(|one| one.as_str()).collect();
        let lifecycle = self.word(members, "lifecycle", &words);
        let metadata = self
            .object(members, "metadata")
            .cloned()
            .unwrap_or_default();
        let budget = self.leaf_budget(members);
        let pool = self.pool(members, tools.as_deref().unwrap_or_default());
        Some(LeafAgent {
            name: name?,
            system_prompt: system_prompt?,
            tools,
            max_rounds,
            max_tokens: max_tokens.map_or(MAX_TOKENS_DEFAULT, |tokens| tokens as u32),
            temperature: temperature.unwrap_or_default(),
            model: model.flatten(),
            output_schema,
            lifecycle: self.lifecycle(members, lifecycle),
            metadata,
            budget,
            pool,
        })
    }

    /// How long its session is kept. In version 1 the member was read and had no effect.
    fn lifecycle(&mut self, members: Members<'_>, written: Option<usize>) -> Lifecycle {
        let wanted = written
            .map(|place| Lifecycle::ALL[place])
            .unwrap_or_default();
        if self.version < 2 {
            return Lifecycle::default();
        }
        if wanted == Lifecycle::Detached && self.granted.is_some() {
            let message = "an agent's run leaves no sessions behind";
            let hint = "write \"linked\", or leave it out";
            self.problem(members.pointer("lifecycle"), "lifecycle", message, hint);
        }
        wanted
    }

    fn pool(&mut self, members: Members<'_>, tools: &[ToolEntry]) -> Option<String> {
        let hint = "name a pool of workers, or leave it out";
        members.given("pool")?;
        let pool = self.label(members, "pool", hint)?;
        if let Some(fault) = tool::pool_fault(&pool, tools) {
            let message = format!("`pool` {fault}");
            self.problem(members.pointer("pool"), "pool", message, hint);
        }
        Some(pool)
    }

    /// Rounds may be written as `8`, `8.0` or `"8"`.
    fn rounds(&mut self, members: Members<'_>) -> u32 {
        let Some(value) = members.map.get("max_rounds") else {
            return MAX_ROUNDS_DEFAULT;
        };
        let written = value.as_str().and_then(|text| text.trim().parse().ok());
        let number = written.or_else(|| value.as_f64());
        let fits = |number: &f64| {
            number.fract() == 0.0 && (1.0..=f64::from(MAX_ROUNDS_MAX)).contains(number)
        };
        if let Some(number) = number.filter(fits) {
            number as u32
        } else {
            let message = format!("`max_rounds` is not a whole number from 1 to {MAX_ROUNDS_MAX}");
            let hint = format!("leave it out for {MAX_ROUNDS_DEFAULT}");
            self.problem(members.pointer("max_rounds"), "not_in_range", message, hint);
            MAX_ROUNDS_DEFAULT
        }
    }

    fn tools(&mut self, members: Members<'_>) -> Option<Vec<ToolEntry>> {
        let value = members.given("tools")?;
        let pointer = members.pointer("tools");
        let Value::Array(list) = value else {
            let hint = "write a list of tool names, [] for none, or null to inherit";
            self.problem(pointer, "not_a_list", "`tools` is not a list", hint);
            return None;
        };
        let mut entries = Vec::new();
        for (index, one) in list.iter().enumerate() {
            match serde_json::from_value::<ToolEntry>(one.clone()) {
                Ok(entry) => {
                    self.granted(&entry, &format!("{pointer}/{index}"));
                    entries.push(entry);
                }
                Err(error) => {
                    let hint = "write a tool's name, or an object with `type`";
                    let at = format!("{pointer}/{index}");
                    self.problem(at, "tool", format!("this is no tool: {error}"), hint);
                }
            }
        }
        if entries.len() == list.len() {
            for fault in tool::check(&entries) {
                let at = format!("{pointer}{}", fault.pointer);
                self.problem(at, "tool", fault.detail, "see the list of tools");
            }
        }
        Some(entries)
    }

    /// The shape of an answer, compiled once so that it cannot fail later.
    pub(super) fn output_schema(&mut self, members: Members<'_>) -> Option<Value> {
        let value = members.given("output_schema")?;
        match OutputSpec::read(value) {
            Ok(_) => Some(value.clone()),
            Err(fault) => {
                let at = format!("{}{}", members.pointer("output_schema"), fault.pointer);
                let hint = "write {\"name\": …, \"schema\": {JSON Schema}}, or the schema alone";
                self.problem(at, "output_schema", fault.detail, hint);
                None
            }
        }
    }

    fn leaf_budget(&mut self, members: Members<'_>) -> Option<u64> {
        let Value::Object(map) = members.given("budget")? else {
            let hint = "write {\"tokens\": …}";
            let message = "`budget` is not an object";
            self.problem(members.pointer("budget"), "not_object", message, hint);
            return None;
        };
        let pointer = at(members.at, "budget");
        let members = Members { map, at: &pointer };
        self.only(members, &["tokens"]);
        if !members.map.contains_key("tokens") {
            self.problem(
                members.at,
                "missing",
                "`tokens` is missing",
                "write {\"tokens\": …}",
            );
        }
        self.whole(members, "tokens", (1, i64::MAX as u64))
    }
}

//! Workflows built in code.
//!
//! ```
//! use mainspring_client::flow::{self, agent, foreach, sequence};
//! use serde_json::json;
//!
//! let topics = json!({"type": "object", "required": ["topics"], "properties": {
//!     "topics": {"type": "array", "items": {"type": "string"}}}});
//! let plan = agent("plan").prompt("You plan.").output(topics);
//! let dig = foreach("dig", plan.member("topics"), "topic", |topic| agent("finding").prompt("You research.").input(topic));
//! let write = agent("write").prompt("You write.").input(format!("One page on: {dig}"));
//! let research = flow::Workflow::new("research", sequence([plan, dig, write])).max_tokens(200_000);
//! ```
//!
//! A node, or a [`member`](Node::member) of it, stands for its result: in texts as a template, elsewhere as a reference.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::span::Span;

/// A value that is known when the run gets there. In a text it is a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ref(String);

/// What the run is started with.
pub fn input() -> Ref {
    Ref("input".to_owned())
}

impl Ref {
    /// A member of the value.
    #[must_use]
    pub fn member(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{{{}}}}}", self.0)
    }
}

impl From<Ref> for Value {
    fn from(it: Ref) -> Self {
        it.to_string().into()
    }
}

impl From<&Node> for Ref {
    fn from(node: &Node) -> Self {
        node.result()
    }
}

/// A node of a workflow. What it may have depends on its kind; the server says what does not belong.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    id: String,
    json: Map<String, Value>,
}

impl Node {
    fn new(kind: &str, id: &str, members: Value) -> Self {
        let mut json = Map::from_iter([("type".to_owned(), kind.into())]);
        if !id.is_empty() {
            json.insert("id".to_owned(), id.into());
        }
        if let Value::Object(members) = members {
            json.extend(members);
        }
        let id = id.to_owned();
        Self { id, json }
    }

    /// Its result.
    pub fn result(&self) -> Ref {
        Ref(self.id.clone())
    }

    /// A member of its result.
    pub fn member(&self, name: &str) -> Ref {
        self.result().member(name)
    }

    /// Any member of the node, as the language of workflows has it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.json.insert(name.to_owned(), value.into());
        self
    }

    /// A published agent, for a leaf made by [`agent`].
    #[must_use]
    pub fn published(self, agent: &str) -> Self {
        self.with("agent", agent)
    }

    /// The prompt of a leaf made by [`agent`], which then needs no published one.
    #[must_use]
    pub fn prompt(mut self, prompt: &str) -> Self {
        let name = self.id.clone();
        let spec = self
            .json
            .entry("spec")
            .or_insert_with(|| json!({"name": name}));
        spec["system_prompt"] = prompt.into();
        self
    }

    /// What it is asked; the run's input if not set.
    #[must_use]
    pub fn input(self, input: impl fmt::Display) -> Self {
        self.with("input", input.to_string())
    }

    /// The JSON Schema of its result.
    #[must_use]
    pub fn output(self, schema: Value) -> Self {
        self.with("output_schema", schema)
    }

    /// It is skipped unless this holds: see [`when`].
    #[must_use]
    pub fn when(self, condition: Value) -> Self {
        self.with("when", condition)
    }

    /// Attempts in all.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        self.with("retry", json!({"max_attempts": attempts}))
    }

    /// The time limit of one attempt.
    #[must_use]
    pub fn timeout(self, timeout: impl Into<Span>) -> Self {
        self.with("timeout", timeout.into().to_string())
    }

    /// What runs in its place after all attempts have failed.
    #[must_use]
    pub fn fallback(self, other: Self) -> Self {
        self.with("fallback", other)
    }

    /// How many parts run at a time, of a node made by [`parallel`] or [`foreach`].
    #[must_use]
    pub fn max_concurrency(self, most: u32) -> Self {
        self.with("max_concurrency", most)
    }

    /// A failure of a part does not end the others.
    #[must_use]
    pub fn on_error_continue(self) -> Self {
        self.with("on_error", "continue")
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.result().fmt(f)
    }
}

impl From<Node> for Value {
    fn from(node: Node) -> Self {
        node.json.into()
    }
}

/// A leaf that asks an agent: a [`published`](Node::published) one, or one with this [`prompt`](Node::prompt).
pub fn agent(id: &str) -> Node {
    Node::new("agent", id, json!({"input": input().to_string()}))
}

/// A leaf that calls a tool. An argument that is a whole reference keeps the type of its value.
pub fn tool(id: &str, name: &str, arguments: Value) -> Node {
    Node::new("tool", id, json!({"tool": name})).with("arguments", arguments)
}

/// A leaf that asks a person: a no fails it, unless another node refers to its member `approved`.
pub fn approval(id: &str, message: impl fmt::Display) -> Node {
    Node::new("approval", id, json!({"message": message.to_string()}))
}

/// A pause.
pub fn wait(duration: impl Into<Span>) -> Node {
    Node::new("wait", "", json!({"duration": duration.into()}))
}

/// One after the other.
pub fn sequence(steps: impl IntoIterator<Item = Node>) -> Node {
    Node::new("sequence", "", json!({"steps": values(steps)}))
}

/// All at once.
pub fn parallel(branches: impl IntoIterator<Item = Node>) -> Node {
    Node::new("parallel", "", json!({"branches": values(branches)}))
}

/// The body for each item of what a node came to, at once; `name` is the item's in templates. The member `items` is the results.
pub fn foreach(
    id: &str,
    items: impl Into<Ref>,
    name: &str,
    body: impl FnOnce(Ref) -> Node,
) -> Node {
    let members = json!({
        "items_from": items.into().0,
        "as": name,
        "body": Value::from(body(Ref(name.to_owned()))),
        "parallel": true,
    });
    Node::new("foreach", id, members)
}

/// One of the cases, by the value's text.
pub fn branch<'a>(on: impl Into<Ref>, cases: impl IntoIterator<Item = (&'a str, Node)>) -> Node {
    let cases = cases
        .into_iter()
        .map(|(name, node)| (name.to_owned(), node.into()));
    let cases: Map<String, Value> = cases.collect();
    Node::new("branch", "", json!({"on": on.into().0, "cases": cases}))
}

/// The body until a condition on its nodes holds, at most so often; then it fails.
pub fn repeat(id: &str, body: Node, until: Value, max_iterations: u32) -> Node {
    let node = Node::new("loop", id, json!({"max_iterations": max_iterations}));
    node.with("body", body).with("until", until)
}

/// A workflow within the run, which sees its own input only.
pub fn nested(id: &str, workflow: &Workflow, input: impl fmt::Display) -> Node {
    Node::new(
        "workflow",
        id,
        json!({"spec": workflow.spec(), "input": input.to_string()}),
    )
}

/// A condition on a value: `op` is `eq`, `ne` or `in`.
pub fn when(value: impl Into<Ref>, op: &str, than: impl Into<Value>) -> Value {
    json!({"ref": value.into().0, "op": op, "value": than.into()})
}

/// A condition: the value is neither empty nor false.
pub fn holds(value: impl Into<Ref>) -> Value {
    json!({"ref": value.into().0, "op": "truthy"})
}

fn values(nodes: impl IntoIterator<Item = Node>) -> Vec<Value> {
    nodes.into_iter().map(Value::from).collect()
}

/// A whole workflow, to be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Workflow(Map<String, Value>);

impl Workflow {
    /// A workflow of this node.
    pub fn new(name: &str, root: Node) -> Self {
        let members = [
            ("name".to_owned(), name.into()),
            ("root".to_owned(), root.into()),
        ];
        Self(Map::from_iter(members))
    }

    /// A workflow as the API takes it.
    pub const fn of_spec(spec: Map<String, Value>) -> Self {
        Self(spec)
    }

    /// Tokens that it may take in all.
    #[must_use]
    pub fn max_tokens(mut self, most: u64) -> Self {
        self.0
            .insert("budget".to_owned(), json!({"max_tokens": most}));
        self
    }

    /// The time limit of the whole run.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Span>) -> Self {
        self.0.insert("timeout".to_owned(), json!(timeout.into()));
        self
    }

    /// The spec, as the API takes it.
    pub fn spec(&self) -> Map<String, Value> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_template_in_texts_and_a_name_elsewhere() {
        let plan = agent("plan").published("planner@2");
        let dig = foreach("dig", plan.member("topics"), "topic", |topic| {
            agent("finding").prompt("You research.").input(topic)
        });
        let write = agent("write")
            .prompt("Write.")
            .input(format!("On: {dig}"))
            .when(holds(&plan));
        let spec = Workflow::new("w", sequence([plan, dig, write]))
            .max_tokens(9)
            .spec();
        let expected = json!({
            "name": "w",
            "root": {"type": "sequence", "steps": [
                {"type": "agent", "id": "plan", "input": "{{input}}", "agent": "planner@2"},
                {"type": "foreach", "id": "dig", "items_from": "plan.topics", "as": "topic", "parallel": true, "body":
                    {"type": "agent", "id": "finding", "input": "{{topic}}",
                     "spec": {"name": "finding", "system_prompt": "You research."}}},
                {"type": "agent", "id": "write", "input": "On: {{dig}}", "when": {"ref": "plan", "op": "truthy"},
                 "spec": {"name": "write", "system_prompt": "Write."}},
            ]},
            "budget": {"max_tokens": 9},
        });
        assert_eq!(Value::from(spec), expected);
    }
}

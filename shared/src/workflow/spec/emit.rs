//! The canonical form: what is stored with a run. Reading it gives an equal tree.

use serde_json::{Map, Value, json};

use super::{
    Agent, Body, Budget, Condition, Envelope, Fan, Items, LeafAgent, NodeIx, Op, Pause, Policy,
    Spec,
};

impl Spec {
    /// The spec as JSON.
    pub fn to_value(&self) -> Value {
        let root = self.emit(self.root);
        self.envelope.emit(root)
    }

    fn emit(&self, ix: NodeIx) -> Value {
        let node = &self.nodes[ix];
        let mut out = Map::new();
        out.insert("type".into(), json!(node.body.kind().as_str()));
        if let Some(id) = &node.id {
            out.insert("id".into(), json!(id));
        }
        if let Some(when) = &node.when {
            out.insert("when".into(), when.emit());
        }
        match &node.body {
            Body::Agent(agent) => agent.emit(&mut out),
            Body::Sequence { steps } => {
                out.insert("steps".into(), self.list(steps));
            }
            Body::Parallel { branches, fan } => {
                out.insert("branches".into(), self.list(branches));
                fan.emit(&mut out);
            }
            Body::Foreach {
                var,
                items,
                body,
                parallel,
                fan,
            } => {
                out.insert("as".into(), json!(var));
                match items {
                    Items::Here(list) => out.insert("items".into(), json!(list)),
                    Items::From(from) => out.insert("items_from".into(), json!(from.to_string())),
                };
                out.insert("body".into(), self.emit(*body));
                out.insert("parallel".into(), json!(parallel));
                fan.emit(&mut out);
            }
            Body::Branch { on, cases, default } => {
                out.insert("on".into(), json!(on.to_string()));
                let cases = cases.iter().map(|(key, ix)| (key.clone(), self.emit(*ix)));
                out.insert("cases".into(), Value::Object(cases.collect()));
                if let Some(default) = default {
                    out.insert("default".into(), self.emit(*default));
                }
            }
            Body::Loop {
                var,
                body,
                until,
                max_iterations,
                exhausted_ok,
                continued,
            } => {
                out.insert("as".into(), json!(var));
                out.insert("body".into(), self.emit(*body));
                out.insert("until".into(), until.emit());
                out.insert("max_iterations".into(), json!(max_iterations));
                let word = if *exhausted_ok { "continue" } else { "fail" };
                out.insert("on_exhausted".into(), json!(word));
                if !continued.is_empty() {
                    let ids = continued.iter().map(|ix| &self.nodes[*ix].id);
                    out.insert("continue_nodes".into(), json!(ids.collect::<Vec<_>>()));
                }
            }
            Body::Wait(pause) => pause.emit(&mut out),
            Body::Approval { message, .. } => {
                out.insert("message".into(), json!(message));
            }
            Body::Tool {
                tool, arguments, ..
            } => {
                out.insert("tool".into(), json!(tool));
                out.insert("arguments".into(), json!(arguments));
            }
            Body::Workflow {
                envelope,
                input,
                root,
            } => {
                out.insert("spec".into(), envelope.emit(self.emit(*root)));
                if let Some(input) = input {
                    out.insert("input".into(), json!(input));
                }
            }
        }
        if let Some(policy) = node.body.policy() {
            self.emit_policy(policy, &mut out);
        }
        Value::Object(out)
    }

    fn list(&self, nodes: &[NodeIx]) -> Value {
        nodes.iter().map(|ix| self.emit(*ix)).collect()
    }

    fn emit_policy(&self, policy: &Policy, out: &mut Map<String, Value>) {
        if let Some(retry) = &policy.retry {
            let on: Vec<_> = retry.on.iter().map(|on| on.as_str()).collect();
            out.insert(
                "retry".into(),
                json!({"max_attempts": retry.max_attempts, "on": on,
                       "backoff": retry.backoff, "backoff_factor": retry.backoff_factor}),
            );
        }
        if let Some(timeout) = policy.timeout {
            out.insert("timeout".into(), json!(timeout));
        }
        if let Some(fallback) = policy.fallback {
            out.insert("fallback".into(), self.emit(fallback));
        }
        if policy.continue_on_error {
            out.insert("continue_on_error".into(), json!(true));
        }
    }
}

impl Envelope {
    fn emit(&self, root: Value) -> Value {
        let mut out = Map::new();
        out.insert("name".into(), json!(self.name));
        if !self.input.is_empty() {
            out.insert("input".into(), json!(self.input));
        }
        if let Some(Budget {
            max_tokens,
            stop_at_remaining_pct,
        }) = self.budget
        {
            let pct = stop_at_remaining_pct;
            out.insert(
                "budget".into(),
                json!({"max_tokens": max_tokens, "stop_at_remaining_pct": pct}),
            );
        }
        if !self.metadata.is_empty() {
            out.insert("metadata".into(), json!(self.metadata));
        }
        if let Some(timeout) = self.timeout {
            out.insert("timeout".into(), json!(timeout));
        }
        out.insert("root".into(), root);
        Value::Object(out)
    }
}

impl Agent {
    fn emit(&self, out: &mut Map<String, Value>) {
        out.insert("spec".into(), self.spec.emit());
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
}

impl LeafAgent {
    fn emit(&self) -> Value {
        let mut out = json!({
            "name": self.name,
            "system_prompt": self.system_prompt,
            "tools": self.tools,
            "max_rounds": self.max_rounds,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "model": self.model,
            "output_schema": self.output_schema,
            "lifecycle": self.lifecycle.as_str(),
            "metadata": self.metadata,
        });
        if let Some(tokens) = self.budget {
            out["budget"] = json!({ "tokens": tokens });
        }
        if let Some(pool) = &self.pool {
            out["pool"] = json!(pool);
        }
        out
    }
}

impl Fan {
    fn emit(self, out: &mut Map<String, Value>) {
        out.insert("max_concurrency".into(), json!(self.max_concurrency));
        let word = if self.halt { "halt" } else { "continue" };
        out.insert("on_error".into(), json!(word));
    }
}

impl Pause {
    fn emit(&self, out: &mut Map<String, Value>) {
        match self {
            Self::For(span) => out.insert("duration".into(), json!(span)),
            Self::At(time) => out.insert("until".into(), json!(time)),
            Self::Until(template) => out.insert("until".into(), json!(template)),
        };
    }
}

impl Condition {
    fn emit(&self) -> Value {
        let mut out = json!({"ref": self.on.to_string(), "op": self.op.as_str()});
        if matches!(self.op, Op::Eq | Op::Ne | Op::In) {
            out["value"] = self.value.clone();
        }
        out
    }
}

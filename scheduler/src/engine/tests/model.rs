//! A small interpreter of specs, independent of the engine: recursive, without time, order or
//! records. The engine must produce the results that it predicts.

use std::collections::BTreeMap;

use mainspring_shared::workflow::nodes::{Body, Branch, Foreach, Items, Loop, Parallel, is_case};
use mainspring_shared::workflow::spec::{Binding, Condition, NodeIx, Ref, RetryOn, Spec};
use serde_json::{Value, json};

/// How a leaf ends, given its ID, the iterations around it, its attempt and its input.
pub(super) type Leaf<'a> = dyn Fn(&str, i32, &str) -> Option<(String, Option<Value>)> + 'a;

/// What other nodes can see of a node.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    text: String,
    payload: Option<Value>,
    notice: bool,
}

fn notice(text: String) -> Shown {
    Shown {
        text,
        payload: None,
        notice: true,
    }
}

#[derive(Debug, Clone)]
pub(super) enum End {
    Good(String, Option<Value>),
    /// Failed; whether that is tolerated.
    Bad(bool),
    Skipped,
}

impl End {
    fn is_good(&self) -> bool {
        !matches!(self, Self::Bad(false))
    }
}

#[derive(Debug, Clone, Default)]
struct Env {
    values: BTreeMap<String, Value>,
    rendered: BTreeMap<String, Shown>,
}

pub(super) struct Model<'a> {
    pub(super) spec: &'a Spec,
    pub(super) leaf: &'a Leaf<'a>,
}

impl Model<'_> {
    pub(super) fn run(&self, input: &str) -> End {
        let mut env = Env::default();
        env.values.insert("input".into(), json!(input));
        self.node(self.spec.root, &mut env, "").0
    }

    fn render_output(&self, ix: NodeIx, end: &End, message: &str) -> Shown {
        let id = self.spec.node(ix).id.as_deref().unwrap_or_default();
        match end {
            End::Good(text, payload) => Shown {
                text: text.clone(),
                payload: payload.clone(),
                notice: false,
            },
            End::Bad(_) => notice(format!("[the node {id:?} failed: {message}]")),
            End::Skipped => notice(format!(
                "[the node {id:?} was skipped: its condition did not hold]"
            )),
        }
    }

    /// How a node ends, and what others can see of it.
    fn node(&self, ix: NodeIx, env: &mut Env, at: &str) -> (End, BTreeMap<String, Shown>) {
        let node = self.spec.node(ix);
        let mut seen = BTreeMap::new();
        let holds = |when: &Condition| when.holds(picked(env, &when.on).as_ref());
        let end = if node.when.as_ref().is_some_and(|when| !holds(when)) {
            End::Skipped
        } else {
            self.body(ix, env, at, &mut seen)
        };
        if let Some(id) = node.id.as_ref().filter(|_| node.body.is_referenceable()) {
            seen.insert(id.clone(), self.render_output(ix, &end, "away"));
        }
        (end, seen)
    }

    fn body(&self, ix: NodeIx, env: &mut Env, at: &str, seen: &mut BTreeMap<String, Shown>) -> End {
        match &self.spec.node(ix).body {
            Body::Agent(_) => self.leaf(ix, env, at),
            Body::Wait(_) => End::Good(String::new(), None),
            Body::Sequence(node) => {
                let mut last = End::Good(String::new(), None);
                for step in &node.steps {
                    let (end, more) = self.node(*step, env, at);
                    env.rendered.extend(more.clone());
                    seen.extend(more);
                    match end {
                        End::Bad(false) => return End::Bad(false),
                        End::Skipped => {}
                        End::Bad(true) => last = End::Good(String::new(), None),
                        good @ End::Good(..) => last = good,
                    }
                }
                last
            }
            Body::Parallel(node) => {
                let Parallel { branches, fan } = node.as_ref();
                let mut last = End::Good(String::new(), None);
                let mut bad = false;
                for branch in branches {
                    let (end, more) = self.node(*branch, &mut env.clone(), at);
                    seen.extend(more);
                    bad |= !end.is_good();
                    if let End::Good(..) = end {
                        last = end;
                    }
                }
                if bad && fan.halt {
                    End::Bad(false)
                } else {
                    last
                }
            }
            Body::Foreach(node) => self.foreach(node, env, ix, at),
            Body::Branch(node) => {
                let Branch { on, cases, default } = node.as_ref();
                let Some(value) = picked(env, on) else {
                    return End::Bad(false);
                };
                let chosen = cases.iter().find(|(key, _)| is_case(key, &value));
                let Some(child) = chosen.map(|(_, ix)| *ix).or(*default) else {
                    return End::Bad(false);
                };
                let (end, more) = self.node(child, env, at);
                seen.extend(more);
                only(end)
            }
            Body::Loop(node) => self.repeat(node, env, at),
            Body::Workflow(node) => {
                let mut inner = Env::default();
                let input = self.render(ix, env, node.input.as_deref().unwrap_or_default());
                inner.values.insert("input".into(), json!(input));
                only(self.node(node.root, &mut inner, at).0)
            }
            Body::Approval(_) | Body::Tool(_) => unreachable!("not among the random specs"),
        }
    }

    fn foreach(&self, node: &Foreach, env: &mut Env, ix: NodeIx, at: &str) -> End {
        let Foreach {
            var,
            items,
            body,
            fan,
            ..
        } = node;
        let list = match items {
            Items::Here(list) => list.clone(),
            Items::From(from) => match picked(env, from) {
                Some(Value::Array(list)) => list,
                _ => return End::Bad(false),
            },
        };
        let ends = (0..).zip(&list).map(|(index, item)| {
            let mut env = env.clone();
            env.values.insert(var.clone(), item.clone());
            env.values.insert(format!("{var}_index"), json!(index));
            self.node(*body, &mut env, &format!("{at}[{index}]")).0
        });
        let ends: Vec<End> = ends.collect();
        if fan.halt && ends.iter().any(|end| !end.is_good()) {
            return End::Bad(false);
        }
        if self.spec.node(ix).id.is_none() {
            let good = ends
                .into_iter()
                .rev()
                .find(|end| matches!(end, End::Good(..)));
            return good.unwrap_or(End::Good(String::new(), None));
        }
        aggregate(&ends)
    }

    fn repeat(&self, node: &Loop, env: &mut Env, at: &str) -> End {
        let Loop {
            var,
            body,
            until,
            max_iterations,
            exhausted_ok,
            ..
        } = node;
        let mut previous = notice(String::new());
        for round in 0..*max_iterations {
            let mut inner = env.clone();
            inner.values.insert(var.clone(), json!(round + 1));
            inner.rendered.insert("previous".into(), previous);
            let (end, more) = self.node(*body, &mut inner, &format!("{at}[{round}]"));
            if !end.is_good() {
                return End::Bad(false);
            }
            inner.rendered.extend(more);
            previous = self.render_output(*body, &end, "away");
            let converged = until.holds(picked(&inner, &until.on).as_ref());
            if converged || (round + 1 == *max_iterations && *exhausted_ok) {
                let last = previous.payload.clone();
                let last = last.unwrap_or_else(|| json!(previous.text));
                let payload =
                    json!({"converged": converged, "iterations": round + 1, "last": last});
                return End::Good(previous.text, Some(payload));
            }
        }
        End::Bad(false)
    }

    fn leaf(&self, ix: NodeIx, env: &mut Env, at: &str) -> End {
        let Body::Agent(agent) = &self.spec.node(ix).body else {
            unreachable!("a leaf")
        };
        let mut input = self.render(ix, env, &agent.input);
        let texts: Vec<_> = agent
            .inputs_from
            .iter()
            .map(|id| lookup(env, id).text.clone())
            .collect();
        if !texts.is_empty() {
            input = format!("{input}\n\n--- context ---\n{}", texts.join("\n\n"));
        }
        let id = self.spec.node(ix).id.as_deref().unwrap_or_default();
        let retries = agent
            .policy
            .retry
            .as_ref()
            .filter(|retry| retry.on.contains(&RetryOn::Failed));
        let attempts = retries.map_or(1, |retry| retry.max_attempts as i32);
        for attempt in 1..=attempts {
            if let Some((text, payload)) = (self.leaf)(&format!("{id}{at}"), attempt, &input) {
                return End::Good(text, payload);
            }
        }
        if let Some(fallback) = agent.policy.fallback {
            match self.node(fallback, &mut env.clone(), at).0 {
                End::Bad(false) => {}
                other => return only(other),
            }
        }
        End::Bad(agent.policy.continue_on_error)
    }

    /// The templates of random specs consist only of text, names and members.
    fn render(&self, ix: NodeIx, env: &Env, template: &str) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some((before, behind)) = rest.split_once("{{") {
            let (inside, behind) = behind.split_once("}}").expect("closed");
            out.push_str(before);
            let name = Ref::parse(inside);
            let rendered = match self.spec.resolve(ix, &name.name) {
                Ok(Binding::Node(_) | Binding::Previous(_)) => Some(lookup(env, &name.name)),
                _ => None,
            };
            match rendered {
                Some(rendered) if rendered.notice || name.key.is_none() => {
                    out.push_str(&rendered.text);
                }
                _ => match picked(env, &name).expect("the random specs read what is there") {
                    Value::String(text) => out.push_str(&text),
                    other => out.push_str(&other.to_string()),
                },
            }
            rest = behind;
        }
        out + rest
    }
}

fn lookup(env: &Env, name: &str) -> Shown {
    let missing = || notice(format!("[the node {name:?} was not run]"));
    env.rendered.get(name).cloned().unwrap_or_else(missing)
}

fn only(end: End) -> End {
    match end {
        End::Bad(false) => End::Bad(false),
        End::Good(text, payload) => End::Good(text, payload),
        End::Bad(true) | End::Skipped => End::Good(String::new(), None),
    }
}

fn picked(env: &Env, on: &Ref) -> Option<Value> {
    if let Some(value) = env.values.get(&on.name) {
        return match &on.key {
            None => Some(value.clone()),
            Some(key) => value.get(key).cloned(),
        };
    }
    let rendered = env
        .rendered
        .get(&on.name)
        .filter(|rendered| !rendered.notice)?;
    match &on.key {
        None => Some(json!(rendered.text)),
        Some(key) => rendered.payload.as_ref()?.get(key).cloned(),
    }
}

fn aggregate(ends: &[End]) -> End {
    let (mut texts, mut items, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (index, end) in ends.iter().enumerate() {
        match end {
            End::Good(text, payload) => {
                texts.push(text.clone());
                items.push(payload.clone().unwrap_or_else(|| json!(text)));
            }
            End::Bad(_) => {
                texts.push(format!("[item {index} failed: away]"));
                items.push(Value::Null);
                errors.push(json!({"index": index, "code": "llm.unavailable", "message": "away"}));
            }
            End::Skipped => items.push(Value::Null),
        }
    }
    let mut payload = json!({ "items": items });
    if !errors.is_empty() {
        payload["errors"] = json!(errors);
    }
    End::Good(texts.join("\n\n"), Some(payload))
}

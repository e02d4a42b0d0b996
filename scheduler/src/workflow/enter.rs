//! Reaching a node: containers open their children, leaves get ready.

use std::sync::Arc;

use mainspring_shared::budget::Spent;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::stored::Extra;
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::path;
use mainspring_shared::workflow::run::{Attempt, NodeRecord, NodeState};
use mainspring_shared::workflow::spec::{
    Body, ITEMS_MAX, Items, LEAVES_MAX, NodeIx, Pause, is_case,
};
use mainspring_shared::workflow::template::render;
use serde_json::{Value, json};

use super::Run;
use super::leaf::CONTINUED;
use super::tree::{SlotIx, is_leaf};

impl Run {
    pub(super) fn enter_root(&mut self) {
        let root = match self.root() {
            Some(root) => root,
            None => self.create(None, 0, self.spec.root, path::ROOT.to_owned()),
        };
        self.arrive(root);
    }

    /// Reaches a container's child, for the first time or again.
    pub(super) fn enter(&mut self, parent: SlotIx, key: u32) {
        self.slots[parent].open += 1;
        let known = self.slots[parent].children.get(&key).copied();
        let slot = if let Some(slot) = known {
            slot
        } else {
            let ix = self.child_ix(self.slots[parent].ix, key);
            let ix = ix.expect("a container enters only children that its spec has");
            let path = self.child_path(parent, key, ix);
            self.create(Some(parent), key, ix, path)
        };
        self.arrive(slot);
    }

    fn create(&mut self, parent: Option<SlotIx>, key: u32, ix: NodeIx, path: String) -> SlotIx {
        let node = self.spec.node(ix);
        let record = NodeRecord {
            path,
            n: self.n_next,
            kind: node.body.kind(),
            id: node.id.clone(),
            state: NodeState::Blocked,
            tolerated: false,
            attempt: 1,
            session: None,
            send: None,
            frozen: None,
            text: None,
            payload: None,
            error: None,
            usage: Usage::default(),
            kept: Spent::default(),
            reserved: Spent::default(),
            due_at: None,
            amended: false,
            steered: Vec::new(),
            earlier: Vec::new(),
            started_at: self.now,
            settled_at: None,
            extra: Extra::default(),
        };
        self.n_next += 1;
        self.push(record, ix, parent, key)
    }

    /// Begins a node that waited.
    fn arrive(&mut self, slot: SlotIx) {
        self.looks += 1;
        self.dirty.insert(slot);
        self.renew(slot);
        let ix = self.slots[slot].ix;
        if let Some(when) = &self.spec.node(ix).when {
            let value = self.value_of(slot, &when.on);
            if !when.holds(value.ok().as_ref()) {
                self.settle(slot, NodeState::Skipped, None);
                return;
            }
        }
        if is_leaf(self.slots[slot].record.kind) {
            if self.reached + self.unreached > LEAVES_MAX {
                let detail = format!("the run has more than {LEAVES_MAX} leaves");
                let failure = Failure::new(Code::WorkflowTooLarge, detail);
                self.settle(slot, NodeState::Failed, Some(failure));
                return;
            }
            self.slots[slot].record.state = NodeState::Ready;
            self.ready.insert((self.slots[slot].record.n, slot));
            return;
        }
        self.slots[slot].record.state = NodeState::Running;
        self.expand(slot);
    }

    /// Clears what an earlier time left behind; a leaf that had been started begins an attempt.
    fn renew(&mut self, slot: SlotIx) {
        let own = &mut self.slots[slot];
        own.shown = None;
        let record = &mut own.record;
        let replaced = record.earlier.last().map(|last| last.attempt) == Some(record.attempt);
        if record.session.is_some() || record.amended || replaced {
            if !replaced {
                record.earlier.push(Attempt {
                    attempt: record.attempt,
                    session_id: record.session.take(),
                    send_id: record.send.take(),
                    error: record.error.take(),
                });
            }
            record.attempt += 1;
            // Its `retry` begins anew.
            let mut frozen = record.frozen.take().unwrap_or_else(|| json!({}));
            frozen["first"] = json!(record.attempt);
            if let Some(frozen) = frozen.as_object_mut() {
                frozen.remove(CONTINUED);
            }
            record.frozen = Some(frozen);
        }
        record.amended = false;
        record.error = None;
        record.text = None;
        record.payload = None;
        record.tolerated = false;
        record.settled_at = None;
        record.due_at = None;
    }

    /// Opens a container, or goes on with one that was open before.
    fn expand(&mut self, slot: SlotIx) {
        let body = self.body(slot);
        match body {
            Body::Sequence { .. } => self.slots[slot].cursor = 0,
            Body::Foreach { .. } => {
                if self.slots[slot].record.frozen.is_none()
                    && let Err(failure) = self.freeze_items(slot)
                {
                    self.settle(slot, NodeState::Failed, Some(failure));
                    return;
                }
            }
            Body::Branch { .. } => {
                if self.slots[slot].record.frozen.is_none()
                    && let Err(failure) = self.freeze_case(slot)
                {
                    self.settle(slot, NodeState::Failed, Some(failure));
                    return;
                }
            }
            Body::Workflow { .. } => {
                if let Err(failure) = self.open_workflow(slot) {
                    self.settle(slot, NodeState::Failed, Some(failure));
                    return;
                }
            }
            Body::Wait(pause) => {
                let pause = pause.clone();
                self.pause(slot, &pause);
                return;
            }
            Body::Parallel { .. } | Body::Loop { .. } => {}
            Body::Agent(_) | Body::Approval { .. } | Body::Tool { .. } => {
                unreachable!("leaves are not expanded")
            }
        }
        self.recount(slot);
        self.go_on(slot);
    }

    fn freeze_items(&mut self, slot: SlotIx) -> Result<(), Failure> {
        let Body::Foreach { items, body, .. } = self.body(slot) else {
            return Ok(());
        };
        let body = *body;
        let items = match items {
            Items::Here(list) => list.clone(),
            Items::From(from) => match self.list_of(slot, from)? {
                Value::Array(list) => list,
                other => {
                    let detail = format!("{from} is {}, not a list", kind_of(&other));
                    return Err(Failure::new(Code::WorkflowRefUnresolved, detail));
                }
            },
        };
        let leaves = items.len() as u64 * self.weight(body);
        if items.len() > ITEMS_MAX || self.reached + self.unreached + leaves > LEAVES_MAX {
            let detail = format!(
                "{} items of {} leaves each: a list has at most {ITEMS_MAX} items, a run {LEAVES_MAX} leaves",
                items.len(),
                self.weight(body)
            );
            return Err(Failure::new(Code::WorkflowTooLarge, detail));
        }
        self.slots[slot].record.frozen = Some(json!({ "items": items }));
        self.slots[slot].items = Some(Arc::new(items));
        Ok(())
    }

    fn freeze_case(&mut self, slot: SlotIx) -> Result<(), Failure> {
        let Body::Branch { on, cases, default } = self.body(slot) else {
            return Ok(());
        };
        let value = self.value_of(slot, on)?;
        let exact = mainspring_shared::workflow::spec::text_of(&value);
        let fits = cases
            .iter()
            .position(|(key, _)| *key == exact)
            .or_else(|| cases.iter().position(|(key, _)| is_case(key, &value)));
        let frozen = match (fits, default) {
            (Some(place), _) => json!({ "case": cases[place].0 }),
            (None, Some(_)) => json!({ "case": null }),
            (None, None) => {
                let shown: String = exact.chars().take(100).collect();
                let known: Vec<_> = cases.iter().map(|(key, _)| key.as_str()).collect();
                let detail = format!(
                    "{on} is {shown:?}; there are cases for {}",
                    known.join(", ")
                );
                return Err(Failure::new(Code::WorkflowBranchUnmatched, detail));
            }
        };
        self.slots[slot].record.frozen = Some(frozen);
        Ok(())
    }

    fn open_workflow(&mut self, slot: SlotIx) -> Result<(), Failure> {
        let Body::Workflow {
            envelope, input, ..
        } = self.body(slot)
        else {
            return Ok(());
        };
        let timeout = envelope.timeout;
        if self.slots[slot].record.frozen.is_none() {
            let input = match input {
                Some(template) => render(template, &self.names(slot))?,
                None => envelope.input.clone(),
            };
            self.slots[slot].record.frozen = Some(json!({ "input": input }));
        }
        if let Some(timeout) = timeout {
            self.set_due(slot, self.now.after(timeout.0));
        }
        Ok(())
    }

    fn pause(&mut self, slot: SlotIx, pause: &Pause) {
        let until = match pause {
            Pause::For(span) => Ok(self.now.after(span.0)),
            Pause::At(time) => Ok(*time),
            Pause::Until(template) => render(template, &self.names(slot)).and_then(|text| {
                let time = serde_json::from_value::<Timestamp>(Value::String(text.trim().into()));
                time.map_err(|_| {
                    let shown: String = text.chars().take(100).collect();
                    Failure::new(Code::WorkflowTemplate, format!("{shown:?} is no time"))
                })
            }),
        };
        match until {
            Ok(until) if until <= self.now => self.settle(slot, NodeState::Completed, None),
            Ok(until) => {
                self.slots[slot].record.state = NodeState::Waiting;
                self.set_due(slot, until);
            }
            Err(failure) => self.settle(slot, NodeState::Failed, Some(failure)),
        }
    }

    pub(super) fn set_due(&mut self, slot: SlotIx, at: Timestamp) {
        self.clear_due(slot);
        self.slots[slot].record.due_at = Some(at);
        self.due.insert((at, slot));
        self.dirty.insert(slot);
    }

    pub(super) fn clear_due(&mut self, slot: SlotIx) {
        if let Some(at) = self.slots[slot].record.due_at.take() {
            self.due.remove(&(at, slot));
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

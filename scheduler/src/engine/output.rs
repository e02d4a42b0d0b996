//! Outputs of nodes, as seen by references, templates and the run's own result. A container's
//! output is computed from its children on demand.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::workflow::run::NodeState;
use mainspring_shared::workflow::spec::{Binding, NodeIx, Ref};
use mainspring_shared::workflow::template::{
    Named, Names, NodeText, RENDERING_WORK, Work, render, render_value,
};
use serde_json::{Value, json};

use super::Run;
use super::tree::SlotIx;

/// Maximum size in bytes of a run's own result; its nodes have the complete outputs.
const RESULT_BYTES_MAX: usize = 1 << 20;

/// After how much work of templates an advance starts no more leaves. The next one goes on.
pub(crate) const ADVANCE_WORK: u64 = RENDERING_WORK;

/// The work of all templates of one advance: half a second. What is beyond it fails, which only the
/// nodes that are no leaves can reach, since leaves wait for the next advance.
const ADVANCE_WORK_MAX: u64 = 8 * RENDERING_WORK;

/// A node's text and value.
pub(super) type Output = (Option<String>, Option<Value>);

/// The names visible to one node.
pub(super) struct NodeNames<'a> {
    run: &'a Run,
    slot: SlotIx,
}

impl Names for NodeNames<'_> {
    fn named(&self, name: &str) -> Result<Named<'_>, Failure> {
        let ix = self.run.slots[self.slot].ix;
        let binding = self.run.spec.resolve(ix, name).map_err(|_| unknown(name))?;
        self.run.bound(self.slot, binding)
    }
}

fn unknown(name: &str) -> Failure {
    Failure::new(
        Code::WorkflowRefUnresolved,
        format!("{name:?} is not defined here"),
    )
}

impl Run {
    pub(super) fn names(&self, slot: SlotIx) -> NodeNames<'_> {
        NodeNames { run: self, slot }
    }

    /// Renders a template, as seen from a node. What it costs counts as work of this advance.
    pub(super) fn render(&self, slot: SlotIx, template: &str) -> Result<String, Failure> {
        render(template, &self.names(slot), &self.work())
    }

    /// Renders every text in a value, as seen from a node.
    pub(super) fn render_value(&self, slot: SlotIx, value: &Value) -> Result<Value, Failure> {
        render_value(value, &self.names(slot), &self.work())
    }

    /// The work of one rendering, as far as this advance has it left.
    fn work(&self) -> Work<'_> {
        let left = ADVANCE_WORK_MAX.saturating_sub(self.worked());
        Work::counted(&self.worked, left)
    }

    /// The work of the templates of this advance so far.
    pub fn worked(&self) -> u64 {
        self.worked.load(Ordering::Relaxed)
    }

    /// The value of a name binding, as seen from a node.
    fn bound(&self, from: SlotIx, binding: Binding) -> Result<Named<'_>, Failure> {
        let missing = || {
            Failure::new(
                Code::Internal,
                "a name is bound to a node that is not there",
            )
        };
        let value = match binding {
            Binding::Input(None) => Cow::Borrowed(&self.record.input),
            Binding::Input(Some(ix)) => {
                let slot = self.around(from, ix).ok_or_else(missing)?.0;
                let frozen = self.slots[slot].record.frozen.as_ref();
                Cow::Borrowed(
                    frozen
                        .and_then(|frozen| frozen.get("input"))
                        .unwrap_or(&Value::Null),
                )
            }
            Binding::Item(ix) => {
                let (slot, key) = self.around(from, ix).ok_or_else(missing)?;
                let items = self.slots[slot].items.as_ref().ok_or_else(missing)?;
                Cow::Borrowed(items.get(key as usize).ok_or_else(missing)?)
            }
            Binding::Index(ix) => Cow::Owned(json!(self.around(from, ix).ok_or_else(missing)?.1)),
            Binding::Round(ix) => {
                Cow::Owned(json!(self.around(from, ix).ok_or_else(missing)?.1 + 1))
            }
            Binding::Previous(ix) => {
                let (slot, key) = self.around(from, ix).ok_or_else(missing)?;
                let before = key.checked_sub(1);
                let before = before.and_then(|key| self.slots[slot].children.get(&key));
                return Ok(Named::Node(match before {
                    Some(child) => self.rendered(*child),
                    // Before the first round, every member is empty.
                    None => Arc::new(NodeText::notice(String::new())),
                }));
            }
            Binding::Node(ix) => return Ok(Named::Node(self.seen(from, ix))),
        };
        Ok(Named::Value(value))
    }

    /// The enclosing node at `ix` in the spec, and the key of its child that leads to this node.
    fn around(&self, from: SlotIx, ix: NodeIx) -> Option<(SlotIx, u32)> {
        let mut slot = from;
        loop {
            let key = self.slots[slot].key;
            slot = self.slots[slot].parent?;
            if self.slots[slot].ix == ix {
                return Some((slot, key));
            }
        }
    }

    /// The result of the node at `ix` that is in the same iterations as this one.
    fn seen(&self, from: SlotIx, ix: NodeIx) -> Arc<NodeText> {
        let slots: BTreeMap<NodeIx, SlotIx> =
            std::iter::successors(Some(from), |slot| self.slots[*slot].parent)
                .map(|slot| (self.slots[slot].ix, slot))
                .collect();
        let mut keys = Vec::new();
        let mut place = ix;
        let start = loop {
            if let Some(slot) = slots.get(&place) {
                break Some(*slot);
            }
            let Some((parent, key)) = self.spec.node(place).parent else {
                break None;
            };
            keys.push(key);
            place = parent;
        };
        let down = |slot: Option<SlotIx>, key: &u32| {
            slot.and_then(|slot| self.slots[slot].children.get(key).copied())
        };
        match keys.iter().rev().fold(start, down) {
            Some(slot) => self.rendered(slot),
            None => Arc::new(NodeText::notice(self.notice_of_missing(ix))),
        }
    }

    fn notice_of_missing(&self, ix: NodeIx) -> String {
        let id = self.spec.node(ix).id.as_deref().unwrap_or_default();
        format!("[the node {id:?} was not run]")
    }

    /// What other nodes see of a node: its output, or a notice instead.
    pub(super) fn rendered(&self, slot: SlotIx) -> Arc<NodeText> {
        if let Some(rendered) = self.slots[slot].rendered.get() {
            return rendered.clone();
        }
        let rendered = Arc::new(self.render_output(slot));
        // A leaf that settled changes only with its slot, which then forgets it. Kept when it is
        // first read: any number of nodes may read it.
        if self.leaf(slot).is_some() && self.state(slot).is_settled() {
            return self.slots[slot].rendered.get_or_init(|| rendered).clone();
        }
        rendered
    }

    /// Caches the output of a settled container if it is expensive to compute.
    pub(super) fn cache_rendered(&mut self, slot: SlotIx) {
        let own = &self.slots[slot];
        let many = self.node_of(slot).caches_output();
        if many && own.record.id.is_some() && own.record.state == NodeState::Completed {
            self.visits += own.children.len() as u64;
            self.slots[slot].rendered = Arc::new(self.render_output(slot)).into();
        }
    }

    fn render_output(&self, slot: SlotIx) -> NodeText {
        let record = &self.slots[slot].record;
        let name = record
            .id
            .as_ref()
            .map_or_else(|| record.path.clone(), |id| format!("{id:?}"));
        let why = record
            .error
            .as_ref()
            .map_or("", |error| error.message.as_str());
        match record.state {
            NodeState::Completed => {
                let (text, payload) = self.output(slot);
                NodeText::new(text.unwrap_or_default(), payload)
            }
            NodeState::Failed => NodeText::notice(format!("[the node {name} failed: {why}]")),
            NodeState::Cancelled => {
                NodeText::notice(format!("[the node {name} was cancelled: {why}]"))
            }
            NodeState::Skipped => NodeText::notice(format!(
                "[the node {name} was skipped: its condition did not hold]"
            )),
            NodeState::Blocked
            | NodeState::Ready
            | NodeState::Queued
            | NodeState::Running
            | NodeState::Waiting => NodeText::notice(format!("[the node {name} was not run]")),
        }
    }

    /// A node's text and value.
    pub(super) fn output(&self, slot: SlotIx) -> Output {
        self.node_of(slot).output(self, slot)
    }

    /// The output of a child if it has completed, else nothing.
    pub(super) fn output_of(&self, child: Option<SlotIx>) -> Output {
        match child {
            Some(child) if self.state(child) == NodeState::Completed => self.output(child),
            _ => (None, None),
        }
    }

    /// The last child whose state fits.
    pub(super) fn last(&self, slot: SlotIx, fits: impl Fn(NodeState) -> bool) -> Option<SlotIx> {
        let width = self.width(slot);
        let mut children = self.slots[slot].children.range(..width).rev();
        children
            .find(|(_, child)| fits(self.state(**child)))
            .map(|(_, child)| *child)
    }

    /// The value of a reference, as seen from a node.
    pub(super) fn value_of(&self, slot: SlotIx, on: &Ref) -> Result<Value, Failure> {
        let ix = self.slots[slot].ix;
        let binding = self
            .spec
            .resolve(ix, &on.name)
            .map_err(|_| unknown(&on.name))?;
        picked(&self.bound(slot, binding)?, on)
    }

    /// The value of a reference in a loop's condition after this round.
    pub(super) fn until_value(
        &self,
        slot: SlotIx,
        round: SlotIx,
        on: &Ref,
    ) -> Result<Value, Failure> {
        let ix = self.slots[slot].ix;
        let binding = self
            .spec
            .resolve_until(ix, &on.name)
            .map_err(|_| unknown(&on.name))?;
        picked(&self.bound(round, binding)?, on)
    }

    /// The list that a fan-out iterates over. A reference to a node without a member may mean a
    /// list as the node's whole value.
    pub(super) fn list_of(&self, slot: SlotIx, from: &Ref) -> Result<Value, Failure> {
        let ix = self.slots[slot].ix;
        let binding = self
            .spec
            .resolve(ix, &from.name)
            .map_err(|_| unknown(&from.name))?;
        match (self.bound(slot, binding)?, &from.key) {
            (Named::Node(node), None) if node.payload.as_ref().is_some_and(Value::is_array) => {
                Ok(node.payload.clone().unwrap_or_default())
            }
            (named, _) => picked(&named, from),
        }
    }

    /// Appends the texts of other nodes to an input.
    pub(super) fn append_context(&self, slot: SlotIx, from: &[String], input: &mut String) {
        let texts = from.iter().filter_map(|id| {
            let binding = self.spec.resolve(self.slots[slot].ix, id).ok()?;
            match self.bound(slot, binding).ok()? {
                Named::Node(node) => Some(node.text.clone()),
                Named::Value(value) => Some(mainspring_shared::workflow::spec::text_of(&value)),
            }
        });
        let texts: Vec<_> = texts.collect();
        if !texts.is_empty() {
            input.push_str("\n\n--- context ---\n");
            input.push_str(&texts.join("\n\n"));
        }
    }

    /// The run's own result: its root's output, truncated. The nodes have the complete output.
    pub(super) fn result(&self, root: SlotIx) -> Value {
        let (text, payload) = self.output(root);
        let mut text = text.unwrap_or_default();
        if text.len() > RESULT_BYTES_MAX {
            let end = (0..=RESULT_BYTES_MAX)
                .rev()
                .find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
            text.push_str("\n[… the rest is left out; the nodes have the whole …]");
        }
        let fits = |payload: &Value| payload.to_string().len() <= RESULT_BYTES_MAX;
        let (payload, cut) = match payload {
            Some(payload) if !fits(&payload) => (None, true),
            payload => (payload, false),
        };
        let mut result = json!({"text": text, "payload": payload});
        if cut {
            result["payload_left_out"] = json!(true);
        }
        result
    }
}

/// The value of a node as others see it: its own value, else its text.
pub(super) fn value_of(rendered: &NodeText) -> Value {
    rendered
        .payload
        .clone()
        .unwrap_or_else(|| Value::String(rendered.text.clone()))
}

/// The whole value, or the member that a reference names.
fn picked(named: &Named<'_>, on: &Ref) -> Result<Value, Failure> {
    let unresolved = |detail: String| Err(Failure::new(Code::WorkflowRefUnresolved, detail));
    let payload = match named {
        Named::Node(node) => {
            if let Some(notice) = &node.notice {
                return unresolved(format!("{on} has no value: {notice}"));
            }
            node.payload.as_ref()
        }
        Named::Value(value) => Some(&**value),
    };
    let Some(key) = &on.key else {
        return Ok(match named {
            Named::Node(node) => Value::String(node.text.clone()),
            Named::Value(value) => value.clone().into_owned(),
        });
    };
    match payload {
        Some(Value::Object(map)) => map.get(key).cloned().map_or_else(
            || {
                let known: Vec<_> = map.keys().take(20).map(String::as_str).collect();
                unresolved(format!("{on}: no key {key:?}, only {}", known.join(", ")))
            },
            Ok,
        ),
        Some(_) => unresolved(format!("{on}: the value of {:?} has no members", on.name)),
        None => unresolved(format!("{on}: {:?} returned no value", on.name)),
    }
}

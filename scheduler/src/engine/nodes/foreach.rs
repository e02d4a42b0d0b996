//! Runs one body for each item of a list. The list is frozen when the node is entered.

use std::sync::Arc;

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::workflow::nodes::{Fan, Foreach, Items};
use mainspring_shared::workflow::path::{self, Step};
use mainspring_shared::workflow::run::NodeState;
use mainspring_shared::workflow::spec::{ITEMS_MAX, LEAVES_MAX, NodeIx};
use serde_json::{Value, json};

use super::Node;
use crate::engine::Run;
use crate::engine::output::Output;
use crate::engine::tree::{Slot, SlotIx};

impl Node for Foreach {
    fn open(&self, run: &mut Run, slot: SlotIx) -> Result<(), Failure> {
        if run.slots[slot].record.frozen.is_some() {
            return Ok(());
        }
        let items = match &self.items {
            Items::Here(list) => list.clone(),
            Items::From(from) => match run.list_of(slot, from)? {
                Value::Array(list) => list,
                other => {
                    let path = &run.slots[slot].record.path;
                    let detail = format!(
                        "the foreach {path:?} takes its items from `{from}`, which is {}, not a list",
                        kind_of(&other)
                    );
                    return Err(Failure::new(Code::WorkflowRefUnresolved, detail));
                }
            },
        };
        let each = run.weight(self.body);
        let leaves = run.leaves.known() + items.len() as u64 * each;
        if items.len() > ITEMS_MAX || leaves > LEAVES_MAX {
            let detail = format!(
                "{} items of {each} leaves each: a list has at most {ITEMS_MAX} items, a run {LEAVES_MAX} leaves",
                items.len(),
            );
            return Err(Failure::new(Code::WorkflowTooLarge, detail));
        }
        run.slots[slot].record.frozen = Some(json!({ "items": items }));
        run.slots[slot].items = Some(Arc::new(items));
        Ok(())
    }

    fn proceed(&self, run: &mut Run, slot: SlotIx) {
        let most = if self.parallel {
            self.fan.max_concurrency
        } else {
            1
        };
        run.fill(slot, most);
    }

    fn output(&self, run: &Run, slot: SlotIx) -> Output {
        if run.slots[slot].record.id.is_some() {
            aggregate(run, slot)
        } else {
            run.output_of(run.last(slot, |state| state == NodeState::Completed))
        }
    }

    fn caches_output(&self) -> bool {
        true
    }

    fn child(&self, _key: u32) -> Option<NodeIx> {
        Some(self.body)
    }

    fn step<'a>(&'a self, key: u32, id: Option<&'a str>) -> Step<'a> {
        Step::Round(key, id)
    }

    fn key_of(&self, path: &str, _is_at: &dyn Fn(u32) -> bool) -> Option<u32> {
        path::round(path)
    }

    fn width(&self, slot: &Slot) -> u32 {
        slot.items.as_ref().map_or(0, |items| items.len() as u32)
    }

    fn fan(&self) -> Option<Fan> {
        Some(self.fan)
    }

    fn item_body(&self) -> Option<NodeIx> {
        Some(self.body)
    }
}

/// The results in the order of the items: null, plus an entry in `errors`, for an item that failed;
/// null for an item that was skipped.
fn aggregate(run: &Run, slot: SlotIx) -> Output {
    let (mut texts, mut items, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for key in 0..run.width(slot) {
        let child = run.slots[slot].children.get(&key).copied();
        let state = child.map(|child| run.state(child));
        match (child, state) {
            (Some(child), Some(NodeState::Completed)) => {
                let (text, payload) = run.output(child);
                let text = text.unwrap_or_default();
                items.push(payload.unwrap_or_else(|| Value::String(text.clone())));
                texts.push(text);
            }
            (Some(child), Some(NodeState::Failed | NodeState::Cancelled)) => {
                let (_, error) = run.failure_of(child);
                texts.push(format!("[item {key} failed: {}]", error.message));
                items.push(Value::Null);
                errors.push(json!({"index": key, "code": error.code, "message": error.message}));
            }
            _ => items.push(Value::Null),
        }
    }
    let mut payload = json!({ "items": items });
    if !errors.is_empty() {
        payload["errors"] = Value::Array(errors);
    }
    (Some(texts.join("\n\n")), Some(payload))
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

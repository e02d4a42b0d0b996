//! Runs one of several children, chosen by a value. The choice is frozen when the node is entered.

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::workflow::nodes::{Branch, is_case};
use mainspring_shared::workflow::path::Step;
use mainspring_shared::workflow::spec::{NodeIx, text_of};
use serde_json::{Value, json};

use super::Node;
use crate::engine::Run;
use crate::engine::output::Output;
use crate::engine::tree::{Slot, SlotIx};

impl Node for Branch {
    fn open(&self, run: &mut Run, slot: SlotIx) -> Result<(), Failure> {
        if run.slots[slot].record.frozen.is_some() {
            return Ok(());
        }
        let value = run.value_of(slot, &self.on)?;
        let exact = text_of(&value);
        let mut keys = self.cases.iter().map(|(key, _)| key);
        let fits = keys
            .clone()
            .find(|key| **key == exact)
            .or_else(|| keys.find(|key| is_case(key, &value)));
        if fits.is_none() && self.default.is_none() {
            let rendered: String = exact.chars().take(100).collect();
            let known: Vec<_> = self.cases.iter().map(|(key, _)| key.as_str()).collect();
            let known = known.join(", ");
            let detail = format!("{} is {rendered:?}; there are cases for {known}", self.on);
            return Err(Failure::new(Code::WorkflowBranchUnmatched, detail));
        }
        run.slots[slot].record.frozen = Some(json!({ "case": fits }));
        Ok(())
    }

    fn proceed(&self, run: &mut Run, slot: SlotIx) {
        if let Some(key) = chosen(self, run, slot) {
            run.run_only_child(slot, key);
        }
    }

    fn output(&self, run: &Run, slot: SlotIx) -> Output {
        let key = chosen(self, run, slot);
        run.output_of(key.and_then(|key| run.slots[slot].children.get(&key).copied()))
    }

    fn child(&self, key: u32) -> Option<NodeIx> {
        match self.cases.get(key as usize) {
            Some((_, ix)) => Some(*ix),
            None => self.default.filter(|_| key as usize == self.cases.len()),
        }
    }

    fn step<'a>(&'a self, key: u32, _id: Option<&'a str>) -> Step<'a> {
        match self.cases.get(key as usize) {
            Some((case, _)) => Step::Case(case),
            None => Step::Default,
        }
    }

    fn key_of(&self, _path: &str, is_at: &dyn Fn(u32) -> bool) -> Option<u32> {
        (0..=self.cases.len() as u32).find(|key| is_at(*key))
    }

    fn width(&self, _slot: &Slot) -> u32 {
        self.cases.len() as u32 + 1
    }
}

/// The key of the chosen child.
fn chosen(branch: &Branch, run: &Run, slot: SlotIx) -> Option<u32> {
    let frozen = run.slots[slot].record.frozen.as_ref()?;
    let key = match frozen.get("case").and_then(Value::as_str) {
        Some(chosen) => branch.cases.iter().position(|(key, _)| key == chosen)?,
        None => branch.cases.len(),
    };
    Some(key as u32)
}

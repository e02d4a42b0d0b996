//! What an evaluation may cost.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::Value as Shown;
use minijinja::value::ValueKind;
use serde_json::Value;

use super::value::NodeText;

/// What one rendering may cost: enough to go through 2 MiB a dozen times, and less than a tenth of
/// a second.
pub const RENDERING_WORK: u64 = 64 << 20;

/// What one step of an evaluation costs, whatever it does.
pub(super) const STEP: u64 = 64;

/// The work that an evaluation has left. A unit is about a nanosecond: a byte that is read or
/// copied costs one, whoever does it. Everything that takes longer for a larger value is charged
/// before it is done.
#[derive(Debug)]
pub struct Work<'a> {
    left: Cell<u64>,
    /// Counts the work of several evaluations.
    whole: Option<&'a AtomicU64>,
}

/// There is no work left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spent;

impl Work<'static> {
    /// The work of one rendering, or of several that belong together.
    pub fn of_rendering() -> Self {
        Self {
            left: Cell::new(RENDERING_WORK),
            whole: None,
        }
    }
}

impl<'a> Work<'a> {
    /// The work of one rendering, at most `left`, that is also counted in `whole`.
    pub fn counted(whole: &'a AtomicU64, left: u64) -> Self {
        Self {
            left: Cell::new(left.min(RENDERING_WORK)),
            whole: Some(whole),
        }
    }

    /// The units that are left.
    pub fn left(&self) -> u64 {
        self.left.get()
    }

    pub(super) fn charge(&self, units: u64) -> Result<(), Spent> {
        let left = self.left.get();
        if let Some(whole) = self.whole {
            whole.fetch_add(units.min(left), Ordering::Relaxed);
        }
        self.left.set(left.saturating_sub(units));
        if units > left { Err(Spent) } else { Ok(()) }
    }

    pub(super) fn bytes(&self, bytes: usize) -> Result<(), Spent> {
        self.charge(bytes as u64)
    }

    /// Charges once for everything that a value consists of.
    pub(super) fn all_of(&self, value: &Shown) -> Result<(), Spent> {
        self.charge(STEP)?;
        if let Some(text) = value.as_str() {
            return self.bytes(text.len());
        }
        if let Some(node) = value.downcast_object_ref::<NodeText>() {
            return self.bytes(node.text.len());
        }
        let kind = value.kind();
        if let ValueKind::Seq | ValueKind::Iterable = kind {
            let mut items = value.try_iter().into_iter().flatten();
            items.try_for_each(|one| self.all_of(&one))
        } else if let ValueKind::Map = kind {
            let mut keys = value.try_iter().into_iter().flatten();
            keys.try_for_each(|key| {
                self.all_of(&key)?;
                let member = value.get_item(&key).unwrap_or_default();
                self.all_of(&member)
            })
        } else {
            Ok(())
        }
    }

    /// The same for a value in JSON.
    pub(super) fn all_of_json(&self, value: &Value) -> Result<(), Spent> {
        self.charge(STEP)?;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
            Value::String(text) => self.bytes(text.len()),
            Value::Array(list) => list.iter().try_for_each(|one| self.all_of_json(one)),
            Value::Object(map) => map.iter().try_for_each(|(key, one)| {
                self.bytes(key.len())?;
                self.all_of_json(one)
            }),
        }
    }
}

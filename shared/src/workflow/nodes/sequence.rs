//! Runs children in order.

use serde_json::{Map, Value};

use super::Node;
use crate::workflow::schema::{Object, nodes, object};
use crate::workflow::spec::{NodeIx, Spec};
use crate::workflow::validate::reader::Reader;
use crate::workflow::validate::tree::NodeAt;

/// A node that runs its children in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// The children, at least one.
    pub steps: Vec<NodeIx>,
}

impl Node for Sequence {
    fn object() -> Object {
        object("Its steps in order.", &["steps"]).with("steps", nodes("At least one."))
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let steps = reader.nodes_of(at, "steps")?;
        Some(Self { steps })
    }

    fn write(&self, spec: &Spec, out: &mut Map<String, Value>) {
        out.insert("steps".into(), spec.write_all(&self.steps));
    }

    fn children(&self) -> Vec<NodeIx> {
        self.steps.clone()
    }

    fn has_result(&self) -> bool {
        false
    }

    fn hides_children(&self) -> bool {
        false
    }

    fn is_ordered(&self) -> bool {
        true
    }
}

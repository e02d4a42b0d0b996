//! Checks that the targets of references exist and have settled when they are read.

use super::reader::{Reader, Use, UseKind};
use crate::words::nearest;
use crate::workflow::spec::{Binding, Spec, Unresolved};

impl Reader<'_> {
    pub(super) fn references(&mut self, spec: &Spec) {
        for one in std::mem::take(&mut self.uses) {
            let found = match one.kind {
                UseKind::Until => spec.resolve_until(one.node, &one.name),
                UseKind::Template | UseKind::Ref => spec.resolve(one.node, &one.name),
                UseKind::Context => match spec.resolve(one.node, &one.name) {
                    Ok(Binding::Node(node)) => Ok(Binding::Node(node)),
                    Ok(_) => Err(Unresolved::NoResult),
                    Err(reason) => Err(reason),
                },
            };
            match found {
                Ok(_) => {}
                // The node exists but could not be read, which was already reported.
                Err(Unresolved::Unknown | Unresolved::NoResult)
                    if self.lost.contains(&one.name) => {}
                Err(reason) => self.unresolved(spec, &one, reason),
            }
        }
    }

    fn unresolved(&mut self, spec: &Spec, one: &Use, reason: Unresolved) {
        let name = &one.name;
        let known = spec.known(one.node);
        let reachable = if known.is_empty() {
            "no node has settled before this one".to_owned()
        } else {
            format!("nodes settled before this one: {}", known.join(", "))
        };
        let (rule, message, hint) = match reason {
            Unresolved::Unknown => {
                let near = nearest(name, known.iter().copied());
                let message = format!("{name:?} is not defined here");
                let hint = near.map_or(reachable, |near| format!("write {near:?}"));
                ("unknown_reference", message, hint)
            }
            Unresolved::Inside => {
                let message = format!("{name:?} is inside a body, which only its own nodes see");
                let hint = format!("refer to its enclosing node by id; {reachable}");
                ("reference_inside_body", message, hint)
            }
            Unresolved::NoResult => {
                let message = format!("{name:?} has no result to refer to");
                let hint = format!("refer to an agent, a foreach or another leaf; {reachable}");
                ("reference_without_result", message, hint)
            }
            Unresolved::NotBefore => {
                let message = format!("{name:?} has not settled when this node is reached");
                let hint = format!("put both into a sequence, {name:?} first; {reachable}");
                ("reference_not_before", message, hint)
            }
        };
        self.problem(one.pointer.as_str(), rule, message, hint);
    }
}

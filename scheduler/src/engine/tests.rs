mod asks;
mod budgets;
mod cost;
mod fixture;
mod free_slots;
mod kinds;
mod model;
mod random;
mod sessions;
mod versions;
mod work;

use mainspring_shared::workflow::nodes::{Body, NodeKind};

use super::Run;

impl Run {
    fn body_at(&self, path: &str) -> Option<&Body> {
        self.by_path.get(path).map(|slot| self.body(*slot))
    }
}

const fn is_leaf(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Agent | NodeKind::Approval | NodeKind::Tool)
}

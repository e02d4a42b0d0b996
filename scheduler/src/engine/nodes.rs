//! What each kind of node does in a run: a file per kind, of the same name as the one that defines
//! the kind's members in the language.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Failure;
use mainspring_shared::workflow::nodes::{Body, Fan};
use mainspring_shared::workflow::path::{self, Step};
use mainspring_shared::workflow::run::{GoesOn, LeafEnd, NodeState};
use mainspring_shared::workflow::spec::NodeIx;
use serde_json::{Map, Value};

use super::Run;
use super::leaf::Outcome;
use super::output::Output;
use super::tree::{Slot, SlotIx};

/// What the engine asks of a kind of node. Every answer depends on the run's records alone, so that
/// an advance that is repeated after a crash decides the same.
pub(super) trait Node {
    /// Enters the node: opens a container, makes a leaf ready, begins a pause.
    fn enter(&self, run: &mut Run, slot: SlotIx) {
        match self.open(run, slot) {
            Ok(()) => {
                run.recount(slot);
                run.proceed(slot);
            }
            Err(failure) => run.settle(slot, NodeState::Failed, Some(failure)),
        }
    }

    /// Fixes what a container needs before its first child is entered.
    fn open(&self, _run: &mut Run, _slot: SlotIx) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes the next step, on entry and whenever a child has settled: enters children, or settles.
    fn proceed(&self, run: &mut Run, slot: SlotIx);

    /// Handles `due_at`. The node may have settled or closed at the same instant.
    fn due(&self, _run: &mut Run, _slot: SlotIx) {}

    /// Its text and value, once it has completed.
    fn output(&self, run: &Run, slot: SlotIx) -> Output;

    /// Whether its output is computed from many children, and worth caching.
    fn caches_output(&self) -> bool {
        false
    }

    /// Its children, where the spec lists them.
    fn steps(&self) -> &[NodeIx] {
        &[]
    }

    /// The spec's node for a child.
    fn child(&self, key: u32) -> Option<NodeIx> {
        self.steps().get(key as usize).copied()
    }

    /// The segment of a child's path.
    fn step<'a>(&'a self, key: u32, id: Option<&'a str>) -> Step<'a> {
        Step::At(key, id)
    }

    /// The key of a child, from its path; `is_at` tells whether a key has that path.
    fn key_of(&self, path: &str, _is_at: &dyn Fn(u32) -> bool) -> Option<u32> {
        path::index(path)
    }

    /// How many children it has in the end.
    fn width(&self, _slot: &Slot) -> u32 {
        self.steps().len() as u32
    }

    /// How its children run, where they run at once.
    fn fan(&self) -> Option<Fan> {
        None
    }

    /// The body that a fan-out runs once for each item.
    fn item_body(&self) -> Option<NodeIx> {
        None
    }

    /// The same node as a leaf.
    fn leaf(&self) -> Option<&dyn Leaf> {
        None
    }
}

/// What the engine asks of a kind of node that starts a send.
pub(super) trait Leaf {
    /// The agent of its session.
    fn agent(&self, run: &Run, slot: SlotIx) -> Result<AgentSpec, Failure>;

    /// The message of its first send; frozen from then on.
    fn input(&self, run: &Run, slot: SlotIx) -> Result<String, Failure>;

    /// Stores the answer of a send that succeeded, and judges it.
    fn judge(&self, run: &mut Run, slot: SlotIx, end: LeafEnd) -> Outcome;

    /// The tokens that it asks for, and those that one call may need; none for a leaf that uses none.
    fn wanted(&self) -> Option<(Option<u64>, u32)> {
        None
    }

    /// Whether another send follows in the same session, after one that used up its rounds.
    fn continues(&self, _run: &Run, _slot: SlotIx, _todo_left: bool) -> bool {
        false
    }

    /// The session that the next send goes to instead of a new one.
    fn goes_on(&self, _run: &Run, _slot: SlotIx, _input: &str) -> Option<GoesOn> {
        None
    }

    /// The metadata of its session, besides that of the workflows around it.
    fn metadata(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Whether its session has no parent.
    fn is_detached(&self) -> bool {
        false
    }

    /// Whether its session is deleted once it has succeeded.
    fn is_ephemeral(&self) -> bool {
        false
    }

    /// The node that replaces it when it failed for good.
    fn fallback(&self) -> Option<NodeIx>;
}

impl<L: Leaf> Node for L {
    fn enter(&self, run: &mut Run, slot: SlotIx) {
        run.enter_leaf(slot);
    }

    fn proceed(&self, run: &mut Run, slot: SlotIx) {
        run.fallback_ended(slot);
    }

    fn due(&self, run: &mut Run, slot: SlotIx) {
        if run.state(slot) == NodeState::Waiting {
            run.make_ready(slot);
        }
    }

    fn output(&self, run: &Run, slot: SlotIx) -> Output {
        let own = &run.slots[slot];
        match own.children.get(&0) {
            Some(fallback) if own.record.text.is_none() => run.output_of(Some(*fallback)),
            _ => (own.record.text.clone(), own.record.payload.clone()),
        }
    }

    fn child(&self, key: u32) -> Option<NodeIx> {
        self.fallback().filter(|_| key == 0)
    }

    fn step<'a>(&'a self, _key: u32, _id: Option<&'a str>) -> Step<'a> {
        Step::Fallback
    }

    fn key_of(&self, _path: &str, _is_at: &dyn Fn(u32) -> bool) -> Option<u32> {
        Some(0)
    }

    fn width(&self, _slot: &Slot) -> u32 {
        u32::from(self.fallback().is_some())
    }

    fn leaf(&self) -> Option<&dyn Leaf> {
        Some(self)
    }
}

macro_rules! engine {
    ($($(#[$doc:meta])* $file:ident: $Kind:ident = $name:literal,)*) => {
        $(mod $file;)*

        /// What a node of this kind does.
        pub(super) fn behaviour(body: &Body) -> &dyn Node {
            match body { $(Body::$Kind(node) => node.as_ref(),)* }
        }
    };
}

mainspring_shared::node_kinds!(engine);

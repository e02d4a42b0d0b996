//! How each kind of node behaves in a run. There is one file per kind, named like the file that
//! defines the kind's members in the language.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Failure;
use mainspring_shared::workflow::nodes::{Body, Fan};
use mainspring_shared::workflow::path::{self, Step};
use mainspring_shared::workflow::run::{LeafEnd, NodeState, ResumeIn};
use mainspring_shared::workflow::spec::NodeIx;
use serde_json::{Map, Value};

use super::Run;
use super::leaf::Outcome;
use super::output::Output;
use super::tree::{Slot, SlotIx};

/// What the engine asks of a kind of node. Every answer depends only on the run's records, so that
/// an advance repeated after a crash makes the same decisions.
pub(super) trait Node {
    /// Enters the node: opens a container, makes a leaf ready, or begins a pause.
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

    /// Takes the next step, on entry and whenever a child has settled: enters children, or settles
    /// the node.
    fn proceed(&self, run: &mut Run, slot: SlotIx);

    /// Handles `due_at` having passed. The node may have settled or started closing at the same
    /// instant.
    fn due(&self, _run: &mut Run, _slot: SlotIx) {}

    /// Its text and value once it has completed.
    fn output(&self, run: &Run, slot: SlotIx) -> Output;

    /// Whether its output is computed from many children and therefore worth caching.
    fn caches_output(&self) -> bool {
        false
    }

    /// Its children, if the spec lists them.
    fn steps(&self) -> &[NodeIx] {
        &[]
    }

    /// The spec's node of the child with this key.
    fn child(&self, key: u32) -> Option<NodeIx> {
        self.steps().get(key as usize).copied()
    }

    /// The path segment of the child with this key.
    fn step<'a>(&'a self, key: u32, id: Option<&'a str>) -> Step<'a> {
        Step::At(key, id)
    }

    /// The key of the child with this path; `is_at` tells whether a key belongs to that path.
    fn key_of(&self, path: &str, _is_at: &dyn Fn(u32) -> bool) -> Option<u32> {
        path::index(path)
    }

    /// The final number of children.
    fn width(&self, _slot: &Slot) -> u32 {
        self.steps().len() as u32
    }

    /// How its children run, if they run concurrently.
    fn fan(&self) -> Option<Fan> {
        None
    }

    /// The body that a fan-out runs once per item.
    fn item_body(&self) -> Option<NodeIx> {
        None
    }

    /// The node as a leaf, if it is one.
    fn leaf(&self) -> Option<&dyn Leaf> {
        None
    }
}

/// What the engine asks of a kind of node that starts a send.
pub(super) trait Leaf {
    /// The agent of its session.
    fn agent(&self, run: &Run, slot: SlotIx) -> Result<AgentSpec, Failure>;

    /// The message of its first send, which is frozen from then on.
    fn input(&self, run: &Run, slot: SlotIx) -> Result<String, Failure>;

    /// Stores the answer of a successful send, and judges it.
    fn judge(&self, run: &mut Run, slot: SlotIx, end: LeafEnd) -> Outcome;

    /// The tokens that it asks for, and the tokens that one call may need; none for a leaf that
    /// uses no tokens.
    fn wanted(&self) -> Option<(Option<u64>, u32)> {
        None
    }

    /// Whether another send follows in the same session after a send that used up its rounds.
    fn continues(&self, _run: &Run, _slot: SlotIx, _todo_left: bool) -> bool {
        false
    }

    /// The session that the next send goes to instead of a new one.
    fn resume_in(&self, _run: &Run, _slot: SlotIx, _input: &str) -> Option<ResumeIn> {
        None
    }

    /// The metadata of its session, in addition to that of the workflows around it.
    fn metadata(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Whether its session has no parent.
    fn is_detached(&self) -> bool {
        false
    }

    /// Whether its session is deleted once the leaf has succeeded.
    fn is_ephemeral(&self) -> bool {
        false
    }

    /// The node that runs in its place when it has failed for good.
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

        /// The behaviour of this kind of node.
        pub(super) fn behaviour(body: &Body) -> &dyn Node {
            match body { $(Body::$Kind(node) => node.as_ref(),)* }
        }
    };
}

mainspring_shared::node_kinds!(engine);

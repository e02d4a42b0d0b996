//! Steps that involve runs.

use mainspring_shared::workflow::nodes::NodeKind;
use mainspring_shared::workflow::run::{NodeState, RunStatus};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{Agent, agent, moment, request};

/// One step that involves runs.
#[derive(Debug, Clone)]
pub(in super::super) enum RunOp {
    Create(Vec<Plan>),
    Ask(Vec<(u8, Asked)>),
    Claim(Look),
    /// Advances runs of one owner without claiming their news first.
    Advance(Vec<Advance>),
    /// Claims runs, and advances each run returned, as schedulers do.
    Turn(Look, Vec<Advance>),
    /// Ends leaves in flight: completed by a worker that could hold them, or cancelled.
    EndLeaves(u8, Vec<(u8, bool)>),
    /// Releases runs that this boot may own.
    Release(u8, Vec<u8>),
    Forget(Vec<u8>),
}

/// A run to create.
#[derive(Debug, Clone)]
pub(in super::super) struct Plan {
    /// The session that it belongs to.
    pub(in super::super) session: Option<u8>,
    /// Whether it belongs to a session with a call that waits for a run, if there is one.
    pub(in super::super) called: Option<u8>,
    pub(in super::super) request: Option<(u8, u8)>,
    /// Whether it needs a spec language that few schedulers support.
    pub(in super::super) later: bool,
}

/// A request to a run.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Asked {
    Cancel,
    Retry,
    CancelNode(u8),
    RetryNode(u8),
    AmendNode(u8),
    Steered(u8),
}

/// A claim of runs.
#[derive(Debug, Clone)]
pub(in super::super) struct Look {
    /// Usually a boot that owns runs.
    pub(in super::super) boot: u8,
    pub(in super::super) limit: u32,
    pub(in super::super) ends_max: u32,
    pub(in super::super) leaves_max: Option<u32>,
    /// Whether it supports the latest language.
    pub(in super::super) later: bool,
    pub(in super::super) aside: Vec<u8>,
}

/// An advance of a run.
#[derive(Debug, Clone)]
pub(in super::super) struct Advance {
    pub(in super::super) run: u8,
    /// How the owner is mistaken about it, if it is.
    pub(in super::super) stale: Option<Stale>,
    /// The status afterwards; the run keeps running if it cannot be final.
    pub(in super::super) status: RunStatus,
    pub(in super::super) nodes: Vec<(u8, NodeKind, NodeState)>,
    pub(in super::super) start: Vec<Leaf>,
    /// How many of the known ends, and of the requests, are taken into account.
    pub(in super::super) noted: (u8, u8),
    pub(in super::super) alarm: Option<i64>,
    pub(in super::super) result: u8,
    pub(in super::super) report: Report,
    pub(in super::super) release: bool,
    pub(in super::super) leaves_max: Option<u32>,
}

/// How an owner is mistaken.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Stale {
    /// The run belongs to another boot.
    Boot(u8),
    /// It has been advanced since.
    Behind,
    /// It has not been advanced that far.
    Ahead,
}

/// A leaf to start.
#[derive(Debug, Clone)]
pub(in super::super) struct Leaf {
    pub(in super::super) agent: Agent,
    /// An existing session, usually that of an earlier leaf.
    pub(in super::super) existing: Option<u8>,
    pub(in super::super) deadline: Option<i64>,
}

/// Who is told of the end of a run that belongs to a session.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Report {
    /// The call that waits for it, if any.
    pub(in super::super) call: bool,
    /// A message for the session, and whether it wakes the session.
    pub(in super::super) words: Option<bool>,
}

/// The paths of nodes.
pub(in super::super) const PATHS: [&str; 5] = ["/0", "/0/a", "/0/b", "/1", "/1[0]"];

/// The runs at the start of every sequence: one that belongs to a session, and one that does not.
pub(in super::super) fn opening() -> RunOp {
    let plan = |session| Plan {
        session,
        called: None,
        request: None,
        later: false,
    };
    RunOp::Create(vec![plan(Some(0)), plan(None)])
}

/// Any step that involves runs.
pub(super) fn any() -> impl Strategy<Value = RunOp> {
    let byte = || proptest::num::u8::ANY;
    let few = || vec(byte(), 1..3);
    let asks = vec((byte(), asked()), 1..3);
    let leaves = vec((byte(), proptest::bool::ANY), 1..4);
    let turn = (look(), vec(advance(), 1..4));
    prop_oneof![
        3 => vec(plan(), 1..3).prop_map(RunOp::Create),
        5 => asks.prop_map(RunOp::Ask),
        3 => look().prop_map(RunOp::Claim),
        5 => vec(advance(), 1..4).prop_map(RunOp::Advance),
        14 => turn.prop_map(|(look, advances)| RunOp::Turn(look, advances)),
        6 => (byte(), leaves).prop_map(|(boot, leaves)| RunOp::EndLeaves(boot, leaves)),
        1 => (byte(), few()).prop_map(|(boot, runs)| RunOp::Release(boot, runs)),
        1 => few().prop_map(RunOp::Forget),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let byte = || proptest::num::u8::ANY;
    let fields = (
        option::weighted(0.5, byte()),
        option::weighted(0.5, byte()),
        request(),
        prop::bool::weighted(0.1),
    );
    fields.prop_map(|(session, called, request, later)| Plan {
        session,
        called,
        request,
        later,
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let byte = || proptest::num::u8::ANY;
    prop_oneof![
        3 => Just(Asked::Cancel),
        2 => Just(Asked::Retry),
        1 => byte().prop_map(Asked::CancelNode),
        1 => byte().prop_map(Asked::RetryNode),
        1 => byte().prop_map(Asked::AmendNode),
        1 => byte().prop_map(Asked::Steered),
    ]
}

fn look() -> impl Strategy<Value = Look> {
    let byte = || proptest::num::u8::ANY;
    let fields = (
        byte(),
        1u32..4,
        1u32..6,
        option::weighted(0.3, 0u32..5),
        prop::bool::weighted(0.2),
        vec(byte(), 0..2),
    );
    fields.prop_map(|(boot, limit, ends_max, leaves_max, later, aside)| Look {
        boot,
        limit,
        ends_max,
        leaves_max,
        later,
        aside,
    })
}

fn leaf() -> impl Strategy<Value = Leaf> {
    let fields = (
        agent(),
        option::weighted(0.3, proptest::num::u8::ANY),
        option::weighted(0.2, moment()),
    );
    fields.prop_map(|(agent, existing, deadline)| Leaf {
        agent,
        existing,
        deadline,
    })
}

fn status() -> impl Strategy<Value = RunStatus> {
    prop_oneof![
        4 => Just(RunStatus::Running),
        2 => Just(RunStatus::Waiting),
        2 => Just(RunStatus::Completed),
        1 => Just(RunStatus::Failed),
        1 => Just(RunStatus::Cancelled),
    ]
}

fn stale() -> impl Strategy<Value = Stale> {
    prop_oneof![
        2 => proptest::num::u8::ANY.prop_map(Stale::Boot),
        1 => Just(Stale::Behind),
        1 => Just(Stale::Ahead),
    ]
}

fn advance() -> impl Strategy<Value = Advance> {
    let byte = || proptest::num::u8::ANY;
    let node = (
        byte(),
        proptest::sample::select(NodeKind::ALL),
        proptest::sample::select(NodeState::ALL),
    );
    let report = (
        prop::bool::weighted(0.8),
        option::weighted(0.8, prop::bool::weighted(0.6)),
    );
    let report = report.prop_map(|(call, words)| Report { call, words });
    let fields = (
        byte(),
        option::weighted(0.1, stale()),
        status(),
        vec(node, 0..3),
        vec(leaf(), 0..3),
        (byte(), byte()),
        option::weighted(0.5, moment()),
        byte(),
        report,
        prop::bool::weighted(0.2),
        option::weighted(0.15, 0u32..5),
    );
    fields.prop_map(
        |(run, stale, status, nodes, start, noted, alarm, result, report, release, leaves_max)| {
            Advance {
                run,
                stale,
                status,
                nodes,
                start,
                noted,
                alarm,
                result,
                report,
                release,
                leaves_max,
            }
        },
    )
}

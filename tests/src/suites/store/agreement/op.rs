//! The steps that a sequence is made of. Their numbers are folded into what exists when a step
//! runs, so every part of a sequence is a sequence too.

use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::Then;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// One step.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// Time passes, in milliseconds.
    Pass(i64),
    Register,
    Renew(u8),
    Stop(u8),
    Create(Agent),
    /// Sends, and how many of a session may wait.
    Accept(Vec<Offer>, i64),
    Claim(u8, Vec<Claim>),
    Append(Vec<u8>),
    Complete(Vec<(u8, Outcome, Then)>),
    Park(Vec<(u8, WaitingOn, Option<i64>)>),
    Release(Vec<u8>),
    Cancel(Vec<u8>),
    Resume(u8),
    Delete(u8),
    Update(u8, Change),
    SweepAlarms(u32),
    SweepReady {
        older_than_ms: i64,
        limit: u32,
        gpu: bool,
    },
    Retention(i64),
    Read,
}

/// A session's agent.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    pub(super) gpu: bool,
    pub(super) last_messages: Option<u32>,
}

/// A send to accept.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) session: u8,
    /// Creates its session with this agent.
    pub(super) new: Option<Agent>,
    pub(super) delay: Option<i64>,
    pub(super) deadline: Option<i64>,
    pub(super) low: bool,
    pub(super) reject: bool,
    /// An idempotency key and a body.
    pub(super) request: Option<(u8, u8)>,
}

/// A session to claim, with where the cached part of its window begins and how long it is.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) session: u8,
    pub(super) cached: Option<(u8, u8)>,
}

/// How a send ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Answer,
    Failure,
}

/// A change of a session.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Agent(Agent),
    Metadata(u8),
    Closed(bool),
}

/// Any step; ordinary ones are more likely than rare ones.
pub(super) fn any() -> impl Strategy<Value = Op> {
    let few = || vec(proptest::num::u8::ANY, 1..4);
    let one = || proptest::num::u8::ANY;
    let end = prop_oneof![4 => Just(Outcome::Answer), 1 => Just(Outcome::Failure)];
    let then = prop_oneof![2 => Just(Then::Continue), 1 => Just(Then::Release)];
    let wait = proptest::sample::select(WaitingOn::ALL);
    let on = prop_oneof![2 => wait, 1 => Just(WaitingOn::Retry), 1 => Just(WaitingOn::Recovery)];
    let sweep = (moment(), 1u32..4, prop::bool::weighted(0.2));
    prop_oneof![
        8 => moment().prop_map(Op::Pass),
        1 => Just(Op::Register),
        3 => one().prop_map(Op::Renew),
        1 => one().prop_map(Op::Stop),
        1 => agent().prop_map(Op::Create),
        12 => (vec(offer(), 1..5), 2i64..6).prop_map(|(offers, max)| Op::Accept(offers, max)),
        14 => (one(), vec(claim(), 1..4)).prop_map(|(boot, claims)| Op::Claim(boot, claims)),
        6 => few().prop_map(Op::Append),
        8 => vec((one(), end, then), 1..4).prop_map(Op::Complete),
        6 => vec((one(), on, option::of(moment())), 1..3).prop_map(Op::Park),
        3 => few().prop_map(Op::Release),
        6 => few().prop_map(Op::Cancel),
        3 => one().prop_map(Op::Resume),
        1 => one().prop_map(Op::Delete),
        2 => (one(), change()).prop_map(|(session, change)| Op::Update(session, change)),
        8 => (1u32..5).prop_map(Op::SweepAlarms),
        3 => sweep.prop_map(|(older_than_ms, limit, gpu)| Op::SweepReady {
            older_than_ms, limit, gpu,
        }),
        1 => moment().prop_map(Op::Retention),
        2 => Just(Op::Read),
    ]
}

/// A length of time: around the length of leases, delays and deadlines, and none.
fn moment() -> impl Strategy<Value = i64> {
    proptest::sample::select(&[0, 1, 20, 300, 300, 2_000, 2_000, 9_999, 10_001, 700_000][..])
}

fn agent() -> impl Strategy<Value = Agent> {
    let agent = (prop::bool::weighted(0.2), option::of(1u32..6));
    agent.prop_map(|(gpu, last_messages)| Agent { gpu, last_messages })
}

fn offer() -> impl Strategy<Value = Offer> {
    let fields = (
        proptest::num::u8::ANY,
        option::weighted(0.2, agent()),
        option::weighted(0.25, moment()),
        option::weighted(0.3, moment()),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.15),
        option::weighted(0.3, (0u8..4, prop_oneof![5 => Just(0u8), 1 => Just(1)])),
    );
    fields.prop_map(
        |(session, new, delay, deadline, low, reject, request)| Offer {
            session,
            new,
            delay,
            deadline,
            low,
            reject,
            request,
        },
    )
}

fn claim() -> impl Strategy<Value = Claim> {
    let byte = proptest::num::u8::ANY;
    let fields = (byte, option::weighted(0.7, (byte, byte)));
    fields.prop_map(|(session, cached)| Claim { session, cached })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        agent().prop_map(Change::Agent),
        proptest::num::u8::ANY.prop_map(Change::Metadata),
        prop::bool::weighted(0.4).prop_map(Change::Closed),
    ]
}

//! The steps of a sequence. Indexes in them are taken modulo what exists when a step runs, so any
//! subsequence is a valid sequence too.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::AfterSend;
use mainspring_shared::timer::{CatchUp, Merge};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(super) mod money;
pub(super) mod runs;
pub(super) mod seats;
pub(super) mod webhooks;

pub(super) use money::MoneyOp;
pub(super) use runs::{Advance, Asked, Leaf, Look, PATHS, Plan, RunOp, Stale};
pub(super) use seats::SeatOp;
pub(super) use webhooks::{Ending, HookOp, Take};

/// One step.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// Lets this many milliseconds pass.
    Pass(i64),
    Register,
    Renew(u8),
    Stop(u8),
    Create(Agent),
    /// Accepts sends, with the number that may wait in a session.
    Accept(Vec<Offer>, i64),
    Claim(u8, Vec<Claim>),
    /// A claim, a round whose calls wait, and the park, one after another as a worker does it.
    Suspend(u8, Claim, Work, Wait),
    /// A send for a call, and whether it is cancelled at once.
    Child(Offer, bool),
    Append(Vec<Work>),
    Complete(Vec<End>),
    Park(Vec<Wait>),
    Release(Vec<u8>),
    Cancel(Vec<u8>),
    Deliver(Vec<Words>),
    Post(Vec<Posted>),
    /// Reports the ends of children: of these sends or of all, and how many at most.
    Report(Option<Vec<u8>>, u32),
    Resume(u8),
    Delete(u8),
    /// Erases a page of a deleted session, at most this many rows of each kind.
    Erase(u8, u32),
    /// Prunes old messages: how many to keep, and how many to delete at once.
    Prune(u8, u32, u32),
    /// Adds what was said elsewhere, in the send of this number.
    Copies(u8, u8),
    Update(u8, Patch),
    SweepAlarms(u32),
    SweepReady {
        older_than_ms: i64,
        limit: u32,
        gpu: bool,
    },
    Retention(i64),
    Timer(Timing),
    /// Pauses, resumes or cancels a timer.
    ChangeTimer(u8, u8),
    /// Fires due timers, at most this many.
    Fire(u32),
    SweepTimers(i64),
    WriteList(Noted),
    /// Creates a session with the transcript of another one.
    Copy(u8, Agent),
    Run(RunOp),
    Hook(HookOp),
    Money(MoneyOp),
    Seat(SeatOp),
    Read,
}

/// A timer to create.
#[derive(Debug, Clone)]
pub(super) struct Timing {
    pub(super) session: u8,
    pub(super) ms: i64,
    pub(super) recurring: bool,
    pub(super) catch_up: CatchUp,
    pub(super) on_busy: Merge,
    pub(super) armed_max: Option<u32>,
    pub(super) most: Option<u32>,
    pub(super) request: Option<(u8, u8)>,
}

/// A change to a list.
#[derive(Debug, Clone)]
pub(super) struct Noted {
    pub(super) session: u8,
    pub(super) todo: bool,
    pub(super) call: u8,
    pub(super) change: u8,
    pub(super) entry: u8,
}

/// A session's agent.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    pub(super) gpu: bool,
    pub(super) last_messages: Option<u32>,
    /// The published agent; if absent, it is defined inline.
    pub(super) published: Option<u8>,
}

/// A send to accept.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) session: u8,
    /// If present, the send creates its session with this agent.
    pub(super) new: Option<Agent>,
    pub(super) delay: Option<i64>,
    pub(super) deadline: Option<i64>,
    pub(super) low: bool,
    pub(super) reject: bool,
    /// The call that it is for: with `new` in a new child of the calling session, otherwise in an
    /// existing child.
    pub(super) call: Option<u8>,
    /// An idempotency key and a body.
    pub(super) request: Option<(u8, u8)>,
    /// The worker that keeps its session.
    pub(super) keeper: Option<u8>,
}

/// A session to claim, with the start and length of the cached part of its window.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) session: u8,
    pub(super) cached: Option<(u8, u8)>,
}

/// What a worker appends to a send before it continues.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) held: u8,
    /// The initial states of the calls of a new round.
    pub(super) begins: Vec<Begin>,
    /// The next steps of the open calls, in order.
    pub(super) changes: Vec<Change>,
    /// Whether answers are stored together with what follows, or calls together with their answers.
    pub(super) rides: bool,
    /// Whether it reads the inbox and stores the items as messages.
    pub(super) reads: bool,
}

/// The initial state of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Begin {
    Started,
    Requested,
    Waits(WaitingOn, Option<i64>),
    Asks(i64),
    Settled,
}

/// The next step of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Nothing,
    Started,
    Waits(WaitingOn, Option<i64>),
    Settled,
}

/// The end of a send.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) held: u8,
    pub(super) outcome: Outcome,
    pub(super) then: AfterSend,
    pub(super) unless: i32,
    pub(super) reads: bool,
}

/// A park.
#[derive(Debug, Clone)]
pub(super) struct Wait {
    pub(super) held: u8,
    pub(super) on: WaitingOn,
    pub(super) after: Option<i64>,
    pub(super) unless: i32,
}

/// A message for a session that may be busy.
#[derive(Debug, Clone)]
pub(super) struct Words {
    pub(super) session: u8,
    pub(super) mode: OnBusy,
    /// An earlier item, delivered again.
    pub(super) repeats: Option<u8>,
    pub(super) items_max: i64,
    pub(super) request: Option<(u8, u8)>,
}

/// A result posted from outside.
#[derive(Debug, Clone)]
pub(super) struct Posted {
    pub(super) call: u8,
    /// On behalf of the calling session, its parent, or another session.
    pub(super) name: Name,
    pub(super) approves: bool,
}

/// On whose behalf a result is posted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name {
    Asking,
    Parent,
    Any(u8),
}

/// How a send ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Answer,
    Failure,
}

/// A change to a session.
#[derive(Debug, Clone)]
pub(super) enum Patch {
    Agent(Agent),
    Metadata(u8),
    Closed(bool),
}

/// The start of every sequence: two sessions with two sends each.
pub(super) fn opening() -> Op {
    let offer = |session, agent| Offer {
        session,
        new: agent,
        delay: None,
        deadline: None,
        low: false,
        reject: false,
        call: None,
        request: None,
        keeper: None,
    };
    let agent = Agent {
        gpu: false,
        last_messages: None,
        published: Some(0),
    };
    let new = || Some(agent.clone());
    let offers = vec![
        offer(0, new()),
        offer(0, None),
        offer(0, new()),
        offer(1, None),
    ];
    Op::Accept(offers, 9)
}

/// Any step; ordinary ones are more likely than rare ones.
pub(super) fn any() -> impl Strategy<Value = Op> {
    let few = || vec(proptest::num::u8::ANY, 1..4);
    let one = || proptest::num::u8::ANY;
    let sweep = (moment(), 1u32..4, prop::bool::weighted(0.2));
    prop_oneof![
        8 => moment().prop_map(Op::Pass),
        1 => Just(Op::Register),
        3 => one().prop_map(Op::Renew),
        1 => one().prop_map(Op::Stop),
        1 => agent().prop_map(Op::Create),
        12 => (vec(offer(), 1..5), 2i64..6).prop_map(|(offers, max)| Op::Accept(offers, max)),
        14 => (one(), vec(claim(), 1..4)).prop_map(|(boot, claims)| Op::Claim(boot, claims)),
        8 => suspend(),
        5 => child(),
        12 => vec(work(), 1..4).prop_map(Op::Append),
        7 => vec(end(), 1..4).prop_map(Op::Complete),
        8 => vec(wait(), 1..3).prop_map(Op::Park),
        3 => few().prop_map(Op::Release),
        6 => few().prop_map(Op::Cancel),
        7 => vec(words(), 1..4).prop_map(Op::Deliver),
        8 => vec(posted(), 1..4).prop_map(Op::Post),
        4 => (option::weighted(0.4, few()), 1u32..4)
            .prop_map(|(sends, limit)| Op::Report(sends, limit)),
        3 => one().prop_map(Op::Resume),
        1 => one().prop_map(Op::Delete),
        3 => (one(), 1u32..20).prop_map(|(session, limit)| Op::Erase(session, limit)),
        2 => (one(), 1u32..6, 1u32..4)
            .prop_map(|(session, keep, limit)| Op::Prune(session, keep, limit)),
        2 => (one(), 0u8..9).prop_map(|(session, n)| Op::Copies(session, n)),
        2 => (one(), patch()).prop_map(|(session, patch)| Op::Update(session, patch)),
        8 => (1u32..5).prop_map(Op::SweepAlarms),
        3 => sweep.prop_map(|(older_than_ms, limit, gpu)| Op::SweepReady {
            older_than_ms, limit, gpu,
        }),
        1 => moment().prop_map(Op::Retention),
        5 => timing().prop_map(Op::Timer),
        2 => (one(), one()).prop_map(|(timer, change)| Op::ChangeTimer(timer, change)),
        6 => (1u32..4).prop_map(Op::Fire),
        1 => moment().prop_map(Op::SweepTimers),
        3 => noted().prop_map(Op::WriteList),
        1 => (one(), agent()).prop_map(|(session, agent)| Op::Copy(session, agent)),
        40 => runs::any().prop_map(Op::Run),
        10 => webhooks::any().prop_map(Op::Hook),
        8 => money::any().prop_map(Op::Money),
        6 => seats::any().prop_map(Op::Seat),
        2 => Just(Op::Read),
    ]
}

/// A duration: about as long as leases, delays and deadlines, or zero.
fn moment() -> impl Strategy<Value = i64> {
    proptest::sample::select(&[0, 1, 20, 300, 300, 2_000, 2_000, 9_999, 10_001, 700_000][..])
}

/// Valid schedules: a fixed rate is at least one second.
fn timing() -> impl Strategy<Value = Timing> {
    let fields = (
        proptest::num::u8::ANY,
        proptest::sample::select(&[1_000, 2_000, 9_999, 20_000][..]),
        prop::bool::weighted(0.6),
        prop_oneof![2 => Just(CatchUp::Once), 1 => Just(CatchUp::Skip)],
        prop_oneof![3 => Just(Merge::Coalesce), 2 => Just(Merge::Enqueue)],
        option::weighted(0.3, Just(2)),
        option::weighted(0.3, 1u32..4),
        request(),
    );
    fields.prop_map(
        |(session, ms, recurring, catch_up, on_busy, armed_max, most, request)| Timing {
            session,
            ms,
            recurring,
            catch_up,
            on_busy,
            armed_max,
            most,
            request,
        },
    )
}

fn noted() -> impl Strategy<Value = Noted> {
    let byte = || proptest::num::u8::ANY;
    let fields = (byte(), proptest::bool::ANY, byte(), byte(), byte());
    fields.prop_map(|(session, todo, call, change, entry)| Noted {
        session,
        todo,
        call,
        change,
        entry,
    })
}

fn agent() -> impl Strategy<Value = Agent> {
    let agent = (
        prop::bool::weighted(0.2),
        option::of(1u32..6),
        option::of(seats::published()),
    );
    agent.prop_map(|(gpu, last_messages, published)| Agent {
        gpu,
        last_messages,
        published,
    })
}

fn offer() -> impl Strategy<Value = Offer> {
    let fields = (
        proptest::num::u8::ANY,
        option::weighted(0.2, agent()),
        option::weighted(0.25, moment()),
        option::weighted(0.3, moment()),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.15),
        option::weighted(0.25, proptest::num::u8::ANY),
        request(),
        option::weighted(0.4, proptest::num::u8::ANY),
    );
    fields.prop_map(
        |(session, new, delay, deadline, low, reject, call, request, keeper)| Offer {
            session,
            new,
            delay,
            deadline,
            low,
            reject,
            call,
            request,
            keeper,
        },
    )
}

fn claim() -> impl Strategy<Value = Claim> {
    let byte = proptest::num::u8::ANY;
    let fields = (byte, option::weighted(0.7, (byte, byte)));
    fields.prop_map(|(session, cached)| Claim { session, cached })
}

fn patch() -> impl Strategy<Value = Patch> {
    prop_oneof![
        agent().prop_map(Patch::Agent),
        proptest::num::u8::ANY.prop_map(Patch::Metadata),
        prop::bool::weighted(0.4).prop_map(Patch::Closed),
    ]
}

/// What a call or a send waits for; external parties are more likely.
fn on() -> impl Strategy<Value = WaitingOn> {
    prop_oneof![
        2 => proptest::sample::select(WaitingOn::ALL),
        3 => Just(WaitingOn::Tool),
        2 => Just(WaitingOn::Agent),
        1 => Just(WaitingOn::Human),
    ]
}

fn begin() -> impl Strategy<Value = Begin> {
    prop_oneof![
        2 => Just(Begin::Started),
        1 => Just(Begin::Requested),
        4 => (on(), option::of(moment())).prop_map(|(on, deadline)| Begin::Waits(on, deadline)),
        1 => moment().prop_map(Begin::Asks),
        2 => Just(Begin::Settled),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => Just(Change::Nothing),
        1 => Just(Change::Started),
        1 => (on(), option::of(moment())).prop_map(|(on, deadline)| Change::Waits(on, deadline)),
        4 => Just(Change::Settled),
    ]
}

fn work() -> impl Strategy<Value = Work> {
    let fields = (
        proptest::num::u8::ANY,
        vec(begin(), 0..3),
        vec(change(), 1..4),
        proptest::bool::ANY,
        proptest::bool::ANY,
    );
    fields.prop_map(|(held, begins, changes, rides, reads)| Work {
        held,
        begins,
        changes,
        rides,
        reads,
    })
}

fn suspend() -> impl Strategy<Value = Op> {
    let on = || proptest::sample::select(&OUTSIDE[..]);
    let waits = (on(), option::of(moment())).prop_map(|(on, within)| Begin::Waits(on, within));
    let one = prop_oneof![5 => waits, 1 => begin()];
    let begins = vec(one, 1..3);
    let fields = (
        proptest::num::u8::ANY,
        claim(),
        begins,
        on(),
        work(),
        wait(),
    );
    fields.prop_map(|(boot, claim, begins, on, work, wait)| {
        let work = Work {
            begins,
            changes: vec![Change::Settled],
            ..work
        };
        Op::Suspend(boot, claim, work, Wait { on, ..wait })
    })
}

fn child() -> impl Strategy<Value = Op> {
    let fields = (
        proptest::num::u8::ANY,
        agent(),
        offer(),
        proptest::bool::ANY,
    );
    fields.prop_map(|(call, agent, offer, cancel)| {
        let offer = Offer {
            new: Some(agent),
            call: Some(call),
            ..offer
        };
        Op::Child(offer, cancel)
    })
}

/// The signals that keep a send from ending or parking; often the ones that workers pass.
fn unless() -> impl Strategy<Value = i32> {
    prop_oneof![1 => Just(0), 1 => Just(6), 1 => Just(12), 1 => 0i32..16]
}

fn end() -> impl Strategy<Value = End> {
    let outcome = prop_oneof![4 => Just(Outcome::Answer), 1 => Just(Outcome::Failure)];
    let then = prop_oneof![2 => Just(AfterSend::Continue), 1 => Just(AfterSend::Release)];
    let byte = proptest::num::u8::ANY;
    let fields = (byte, outcome, then, unless(), proptest::bool::ANY);
    fields.prop_map(|(held, outcome, then, unless, reads)| End {
        held,
        outcome,
        then,
        unless,
        reads,
    })
}

fn wait() -> impl Strategy<Value = Wait> {
    let on = prop_oneof![4 => on(), 1 => Just(WaitingOn::Retry), 1 => Just(WaitingOn::Recovery)];
    let fields = (
        proptest::num::u8::ANY,
        on,
        option::of(moment()),
        prop_oneof![2 => Just(0), 1 => unless()],
    );
    fields.prop_map(|(held, on, after, unless)| Wait {
        held,
        on,
        after,
        unless,
    })
}

/// What a send that waits for its calls can wait for.
const OUTSIDE: [WaitingOn; 4] = [
    WaitingOn::Tool,
    WaitingOn::Human,
    WaitingOn::Agent,
    WaitingOn::Run,
];

/// How a message reaches a busy session.
const MODES: [OnBusy; 3] = [OnBusy::Coalesce, OnBusy::Steer, OnBusy::Interrupt];

fn words() -> impl Strategy<Value = Words> {
    let fields = (
        proptest::num::u8::ANY,
        proptest::sample::select(&MODES[..]),
        option::weighted(0.15, proptest::num::u8::ANY),
        prop_oneof![1 => Just(1i64), 3 => Just(9)],
        request(),
    );
    fields.prop_map(|(session, mode, repeats, items_max, request)| Words {
        session,
        mode,
        repeats,
        items_max,
        request,
    })
}

fn posted() -> impl Strategy<Value = Posted> {
    let name = prop_oneof![
        4 => Just(Name::Asking),
        2 => Just(Name::Parent),
        1 => proptest::num::u8::ANY.prop_map(Name::Any),
    ];
    let fields = (proptest::num::u8::ANY, name, prop::bool::weighted(0.25));
    fields.prop_map(|(call, name, approves)| Posted {
        call,
        name,
        approves,
    })
}

/// An idempotency key and a body.
fn request() -> impl Strategy<Value = Option<(u8, u8)>> {
    option::weighted(0.3, (0u8..4, prop_oneof![5 => Just(0u8), 1 => Just(1)]))
}

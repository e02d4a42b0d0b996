//! What a seed stands for: a workload and its faults, as data, so that parts can be left out.

use mainspring_shared::agent::OnBusy;
use serde_json::{Value, json};

use super::chance::Chance;

/// How long clients send requests and faults start, in virtual milliseconds.
const BUSY_MS: u64 = 25_000;

/// The course of a world.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The seed of IDs, delays and every other random value.
    pub seed: u64,
    /// Number of workers.
    pub workers: usize,
    /// Number of schedulers.
    pub schedulers: usize,
    /// Number of sessions, which the clients share.
    pub sessions: usize,
    /// Sends that a worker may run at once.
    pub concurrency: u32,
    /// Whether the model has a price and the tenant a limit of money, far beyond what it spends.
    pub priced: bool,
    /// The clients' operations.
    pub ops: Vec<Op>,
    /// The faults.
    pub faults: Vec<Fault>,
}

/// One operation of a client, which waits for the answer before its next one.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// The client.
    pub client: usize,
    /// The pause before it.
    pub pause_ms: u64,
    /// The operation.
    pub what: What,
}

/// What a client does. Indexes of sends, timers and runs are taken modulo those that exist.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// Creates a send.
    Send {
        /// The session.
        session: usize,
        /// What the model does with it.
        words: Value,
        /// What to do if the session is busy.
        mode: OnBusy,
        /// Delay from acceptance until it may take its place in the session.
        delay_ms: Option<u64>,
        /// Deadline, counted from acceptance.
        deadline_ms: Option<u64>,
    },
    /// Cancels a send.
    Cancel(usize),
    /// Reads a send.
    Read(usize),
    /// Reads a transcript.
    Transcript(usize),
    /// Creates a timer for a session.
    Timer {
        /// The session.
        session: usize,
        /// Delay until it first fires.
        after_ms: u64,
        /// Interval between later occurrences.
        every_s: Option<u64>,
        /// Number of occurrences.
        times: u64,
    },
    /// Cancels a timer.
    CancelTimer(usize),
    /// Starts a run with leaves, in sequence or in parallel.
    Run {
        /// Number of leaves.
        leaves: u64,
        /// Whether they run in parallel.
        at_once: bool,
    },
    /// Cancels a run.
    CancelRun(usize),
}

/// A fault, and when it strikes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// At a store call, whichever process makes it.
    Call {
        /// The method.
        method: &'static str,
        /// The number of the call, from 0.
        nth: usize,
        /// What happens.
        harm: Harm,
    },
    /// At a point in time.
    At {
        /// When it starts.
        ms: u64,
        /// How long it lasts.
        for_ms: u64,
        /// What happens.
        trouble: Trouble,
    },
    /// At a named point in the code.
    Point {
        /// The point.
        name: &'static str,
        /// Which pass through the point, from 0.
        nth: usize,
    },
}

/// What happens at a store call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Harm {
    /// The call is not made, and the caller is told that the database is unavailable.
    Before,
    /// The call is made, but the caller is told that the database is unavailable.
    After,
    /// The database refuses this call and this many more of the method: nothing is written.
    Refused(usize),
    /// A row cannot be read, at this call and this many more of the method: nothing is written.
    Unreadable(usize),
    /// The call is made this many milliseconds later.
    LateBefore(u64),
    /// The answer arrives this many milliseconds later.
    LateAfter(u64),
    /// The process dies before the call, and restarts this many milliseconds later.
    DiesBefore(u64),
    /// The process dies after the call, and restarts this many milliseconds later.
    DiesAfter(u64),
    /// The process is stopped for this many milliseconds before the call.
    StopsBefore(u64),
    /// The process is stopped for this many milliseconds after the call.
    StopsAfter(u64),
}

/// What happens for a while. Indexes of processes are taken modulo those that exist.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// No process can reach the database.
    Outage,
    /// One process cannot reach the database.
    Partition(usize),
    /// A process dies and restarts.
    Death(usize),
    /// A process is stopped and resumed.
    Pause(usize),
    /// A process is asked to stop, and then restarted.
    Drain(usize),
    /// The queue is unavailable, and reports it.
    QueueAway,
    /// The queue silently loses what it is given.
    RingsLost,
    /// The queue delivers jobs several times, to any worker.
    RingsRepeated,
    /// The queue delivers jobs late and reordered.
    RingsLate,
    /// The bus is unavailable, and reports it once it is back.
    BusAway,
    /// A process's wall clock is wrong by this many seconds.
    Skew(usize, i64),
    /// The database's clock jumps ahead by this many milliseconds.
    Jump(u64),
}

/// Methods at whose calls faults may strike, with about the most calls of each to expect while it
/// matters.
const METHODS: [(&str, u64); 30] = [
    ("accept_sends", 16),
    ("accept_sends", 16),
    ("cancel_sends", 4),
    ("deliver_items", 5),
    ("post_results", 6),
    ("claim_sessions", 24),
    ("claim_sessions", 24),
    ("append_rounds", 20),
    ("append_rounds", 20),
    ("append_rounds", 20),
    ("complete_sends", 16),
    ("complete_sends", 16),
    ("park_sends", 10),
    ("park_sends", 10),
    ("release_sessions", 4),
    ("report_children", 12),
    ("fire_timers", 120),
    ("sweep_alarms", 120),
    ("claim_runs", 120),
    ("advance_runs", 12),
    ("renew_boot", 24),
    ("register_boot", 4),
    ("create_timers", 3),
    ("read_round", 6),
    ("get_sends", 20),
    ("reserve_money", 20),
    ("settle_money", 20),
    ("sweep_money", 30),
    ("owned_sessions", 30),
    ("stop_boot", 3),
];

/// Named points in the code, with about the most passes through each to expect while it matters.
pub const POINTS: [(&str, u64); 9] = [
    ("group.small", 40),
    ("group.unanswered", 60),
    ("live.full", 20),
    ("cache.full", 12),
    ("ring.full", 10),
    ("admit.lost", 16),
    ("dispatch.lost", 8),
    ("dispatch.unheard", 8),
    ("block.closed", 16),
];

impl Plan {
    /// The plan that a seed stands for.
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let chance = &mut chance;
        let sessions = chance.between(1, 3) as usize;
        let clients = chance.between(1, 3) as usize;
        let count = chance.between(3, 14);
        let ops = (0..count).map(|_| Op {
            client: chance.index(clients),
            pause_ms: match chance.below(4) {
                0 => 0,
                1 => chance.below(50),
                _ => chance.below(BUSY_MS / 8),
            },
            what: what(chance, sessions),
        });
        let ops = ops.collect();
        let workers = chance.between(1, 3) as usize;
        let schedulers = chance.between(1, 2) as usize;
        // One world in ten is free of faults, so nothing that goes wrong there can be blamed on one.
        let troubled = !chance.one_in(10);
        let count = if troubled { chance.between(1, 6) } else { 0 };
        let mut deaths = 0;
        let mut faults = Vec::new();
        for _ in 0..count {
            let fault = fault(chance, workers + schedulers);
            // Fewer than it takes for a send to be given up.
            deaths += usize::from(fault.is_deadly());
            if deaths < 5 || !fault.is_deadly() {
                faults.push(fault);
            }
        }
        Self {
            seed,
            workers,
            schedulers,
            sessions,
            concurrency: chance.pick(&[1, 2, 8]),
            priced: chance.one_in(2),
            ops,
            faults,
        }
    }

    /// When the last timed fault is over.
    pub(super) fn healed_ms(&self) -> u64 {
        let ends = self.faults.iter().map(|fault| match fault {
            Fault::At { ms, for_ms, .. } => ms + for_ms,
            Fault::Call { .. } | Fault::Point { .. } => 0,
        });
        ends.max().unwrap_or_default()
    }
}

impl Fault {
    /// Whether it may cost a worker its lease.
    fn is_deadly(self) -> bool {
        match self {
            Self::Call { harm, .. } => matches!(
                harm,
                Harm::DiesBefore(_)
                    | Harm::DiesAfter(_)
                    | Harm::StopsBefore(_)
                    | Harm::StopsAfter(_)
                    | Harm::LateBefore(_)
                    | Harm::LateAfter(_)
            ),
            Self::At { trouble, .. } => !matches!(
                trouble,
                Trouble::QueueAway
                    | Trouble::RingsLost
                    | Trouble::RingsRepeated
                    | Trouble::RingsLate
                    | Trouble::BusAway
                    | Trouble::Skew(..)
            ),
            Self::Point { .. } => false,
        }
    }
}

fn what(chance: &mut Chance, sessions: usize) -> What {
    let session = chance.index(sessions);
    match chance.below(24) {
        0..=13 => {
            let modes = [
                OnBusy::Enqueue,
                OnBusy::Enqueue,
                OnBusy::Enqueue,
                OnBusy::Enqueue,
                OnBusy::Coalesce,
                OnBusy::Steer,
                OnBusy::Steer,
                OnBusy::Interrupt,
                OnBusy::Reject,
            ];
            What::Send {
                session,
                words: words(chance, 2),
                mode: chance.pick(&modes),
                delay_ms: chance.one_in(8).then(|| chance.between(1, 6_000)),
                deadline_ms: chance.one_in(8).then(|| chance.between(200, 20_000)),
            }
        }
        14..=16 => What::Cancel(chance.index(64)),
        17 => What::Read(chance.index(64)),
        18 => What::Transcript(session),
        19 | 20 => {
            let repeats = chance.one_in(2);
            What::Timer {
                session,
                after_ms: chance.below(8_000),
                every_s: repeats.then(|| chance.between(1, 5)),
                times: if repeats { chance.between(1, 4) } else { 1 },
            }
        }
        21 => What::CancelTimer(chance.index(8)),
        22 => What::Run {
            leaves: chance.between(1, 4),
            at_once: chance.one_in(2),
        },
        _ => What::CancelRun(chance.index(4)),
    }
}

/// What the model does with a text: how long it thinks in each round, how often it fails first, and
/// the calls of each round but the last.
fn words(chance: &mut Chance, depth: u64) -> Value {
    let mut rounds = Vec::new();
    if !chance.one_in(3) {
        for _ in 0..chance.between(1, 2) {
            let calls = chance.between(1, 3);
            rounds.push((0..calls).map(|_| call(chance, depth)).collect::<Vec<_>>());
        }
    }
    let ms = match chance.below(6) {
        0 => chance.between(2_000, 9_000),
        1 | 2 => chance.below(20),
        _ => chance.between(20, 900),
    };
    json!({
        "ms": ms,
        "fail": if chance.one_in(10) { chance.between(1, 2) } else { 0 },
        "rounds": rounds,
    })
}

fn call(chance: &mut Chance, depth: u64) -> Value {
    let work = |chance: &mut Chance| {
        let ms = match chance.below(4) {
            0 => chance.between(1_000, 6_000),
            _ => chance.below(200),
        };
        json!({ "n": chance.below(1_000), "ms": ms })
    };
    match chance.below(14) {
        0..=2 => json!(["look", work(chance)]),
        3 | 4 => json!(["put", work(chance)]),
        5..=7 => json!(["act", work(chance)]),
        8 => json!(["alone", work(chance)]),
        9 => json!(["slow", work(chance)]),
        10 | 11 => json!(["ask_person", { "question": format!("q{}?", chance.below(1_000)) }]),
        _ if depth > 0 => {
            let task = format!("c{} {}", chance.below(1_000_000), words(chance, depth - 1));
            let background = chance.one_in(3);
            json!(["spawn_agent", { "task": task, "background": background }])
        }
        _ => json!(["look", work(chance)]),
    }
}

fn fault(chance: &mut Chance, processes: usize) -> Fault {
    if chance.one_in(6) {
        let (name, most) = chance.pick(&POINTS);
        let nth = chance.index(most as usize);
        return Fault::Point { name, nth };
    }
    if chance.one_in(2) {
        let (method, most) = chance.pick(&METHODS);
        let nth = chance.index(most as usize);
        return Fault::Call {
            method,
            nth,
            harm: harm(chance),
        };
    }
    let who = chance.index(processes);
    let trouble = match chance.below(16) {
        0 | 1 => Trouble::Outage,
        2 | 3 => Trouble::Partition(who),
        4..=6 => Trouble::Death(who),
        7 | 8 => Trouble::Pause(who),
        9 => Trouble::Drain(who),
        10 => Trouble::QueueAway,
        11 => Trouble::RingsLost,
        12 => Trouble::RingsRepeated,
        13 => Trouble::RingsLate,
        14 => Trouble::BusAway,
        _ if chance.one_in(2) => Trouble::Jump(chance.between(1_000, 30_000)),
        _ => Trouble::Skew(who, chance.pick(&[-86_400, -3_600, -5, 5, 3_600, 86_400])),
    };
    Fault::At {
        ms: chance.below(BUSY_MS),
        for_ms: while_ms(chance),
        trouble,
    }
}

/// Shorter than any timeout, about as long as a lease, or longer.
fn while_ms(chance: &mut Chance) -> u64 {
    match chance.below(3) {
        0 => chance.between(1, 900),
        1 => chance.between(1_000, 9_500),
        _ => chance.between(10_500, 25_000),
    }
}

fn harm(chance: &mut Chance) -> Harm {
    match chance.below(20) {
        0..=2 => Harm::Before,
        3..=7 => Harm::After,
        8 => Harm::Refused(chance.index(3)),
        9 => Harm::Unreadable(chance.index(3)),
        10 => Harm::LateBefore(while_ms(chance)),
        11 => Harm::LateAfter(while_ms(chance)),
        12 | 13 => Harm::DiesBefore(while_ms(chance)),
        14..=16 => Harm::DiesAfter(while_ms(chance)),
        17 => Harm::StopsBefore(while_ms(chance)),
        _ => Harm::StopsAfter(while_ms(chance)),
    }
}

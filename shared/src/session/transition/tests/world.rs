//! Small worlds, checked exhaustively: two workers, two schedulers and one session with at most two
//! sends; every interleaving of claims, renewals, lease expiries, takeovers, writes whose answers
//! or commits are lost, cancels, deliveries and alarms, using the same functions as the stores.

mod act;
mod check;

use std::collections::BTreeSet;

use super::*;
use act::{Act, acts};
use check::{Plant, broken};

/// The state of a worker's current boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    Alive,
    /// Its lease expired, and nobody has noticed.
    Late,
    /// It was declared dead.
    Dead,
}

/// A write under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Write {
    Append,
    Complete,
    Park,
}

/// What a worker believes about the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belief {
    Nothing,
    /// It claimed and got no answer, so it knows only the token it drew.
    Unheard(LeaseToken),
    Holds(Held),
}

/// A lease as its worker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    lease: Lease,
    send: SendId,
    /// Items that it has read but not stored as messages.
    heard: u8,
    /// The write that it repeats because it got no answer, and the items that this delivers.
    repeats: Option<(Write, u8)>,
}

#[derive(Debug, Clone, Copy)]
struct Worker {
    boot: BootId,
    life: Life,
    belief: Belief,
    /// A grant with its send, which the worker has not heard of yet.
    told: Option<Held>,
    /// Boots that it may still start after the current one.
    lives: u8,
}

/// How often each kind of event may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Budget {
    accepts: u8,
    claims: u8,
    rounds: u8,
    parks: u8,
    /// Lease expiries.
    ends: u8,
    /// Lost answers and commits.
    losses: u8,
    /// Per scheduler.
    cancels: [u8; 2],
    items: [u8; 2],
    /// Accepts that grant the session to its keeper.
    grants: u8,
}

/// The history, as far as invariants need it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Past {
    steps: i64,
    /// The highest epoch of any step.
    epoch: i64,
    /// Per send.
    rounds: [u8; 2],
    ends: [u8; 2],
    items_sent: u8,
    items_delivered: u8,
    /// Items still pending when a send completed that should have been told of them.
    items_missed: u8,
    steps_after_end: u8,
    steps_of_old_epochs: u8,
    cancels_ignored: u8,
}

#[derive(Debug, Clone)]
struct World {
    scene: Scene,
    workers: [Worker; 2],
    pending_items: u8,
    budget: Budget,
    past: Past,
}

const BUDGET: Budget = Budget {
    accepts: 2,
    claims: 3,
    rounds: 1,
    parks: 1,
    ends: 1,
    losses: 1,
    cancels: [1, 1],
    items: [1, 0],
    grants: 0,
};

impl World {
    fn new(budget: Budget) -> Self {
        let worker = |n: u128| Worker {
            boot: BootId(Uuid::from_u128(n)),
            life: Life::Alive,
            belief: Belief::Nothing,
            told: None,
            lives: 1,
        };
        Self {
            scene: Scene::idle(),
            workers: [worker(1), worker(2)],
            pending_items: 0,
            budget,
            past: Past::default(),
        }
    }

    /// Stores a change as every store does, and updates the history.
    fn commit(&mut self, change: &Change) {
        let index = |id: SendId| usize::from(id == send_id(102));
        if let Some(step) = &change.step {
            let past = &mut self.past;
            let send = index(step.send_id);
            past.steps_after_end += u8::from(past.ends[send] > 0);
            past.steps_of_old_epochs += u8::from(step.epoch != 0 && step.epoch < past.epoch);
            past.epoch = past.epoch.max(step.epoch);
            past.steps += 1;
            past.rounds[send] += u8::from(step.kind == StepKind::Round);
            past.ends[send] += u8::from(step.kind == StepKind::Finished);
        }
        if let (Some(end), Some(send)) = (&change.end, &change.send) {
            let ignored = send.cancel_requested && end.status != SendStatus::Cancelled;
            self.past.cancels_ignored += u8::from(ignored);
        }
        self.scene = self.scene.after(change);
    }

    /// The worker whose current boot this is.
    fn worker_of(&self, boot: BootId) -> Option<usize> {
        self.workers.iter().position(|worker| worker.boot == boot)
    }

    fn owner_life(&self) -> Option<Life> {
        let owner = self.scene.hot.owner?;
        let worker = self.worker_of(owner);
        Some(worker.map_or(Life::Dead, |worker| self.workers[worker].life))
    }

    fn declare_dead(&mut self, boot: BootId) {
        if let Some(worker) = self.worker_of(boot) {
            self.workers[worker].life = Life::Dead;
        }
    }

    /// The end of the owner's lease, if still valid; asking declares a late owner dead.
    fn lease_until(&mut self) -> Option<Timestamp> {
        let life = self.owner_life()?;
        if life == Life::Late {
            self.scene
                .hot
                .owner
                .into_iter()
                .for_each(|owner| self.declare_dead(owner));
        }
        (life == Life::Alive).then_some(LEASE_UNTIL)
    }

    /// Everything that distinguishes this world from another.
    fn key(&self) -> Vec<i64> {
        let mut key = Vec::with_capacity(96);
        let id = |id: Option<Uuid>| id.map_or(0, |id| id.as_u128() as i64);
        let time = |at: Option<Timestamp>| at.map_or(-1, |at| at.0);
        let hot = &self.scene.hot;
        key.extend([
            id(hot.owner.map(|id| id.0)),
            id(hot.token.map(|id| id.0)),
            hot.epoch,
            hot.writes,
            hot.next_position,
            hot.next_step,
            hot.pending,
            i64::from(hot.signals),
            time(hot.ready_since),
        ]);
        for send in &self.scene.sends {
            key.extend([
                send.status as i64,
                send.waiting_on.map_or(-1, |on| on as i64),
                time(send.alarm_at),
                i64::from(send.rounds),
                i64::from(send.crashes),
                i64::from(send.cancel_requested),
            ]);
        }
        for worker in &self.workers {
            key.extend([
                id(Some(worker.boot.0)),
                worker.life as i64,
                i64::from(worker.lives),
            ]);
            key.push(
                worker
                    .told
                    .map_or(-1, |told| id(Some(told.send.0)) * 64 + told.lease.epoch),
            );
            match worker.belief {
                Belief::Nothing => key.push(-1),
                Belief::Unheard(token) => key.extend([-2, id(Some(token.0))]),
                Belief::Holds(held) => key.extend([
                    held.lease.epoch,
                    held.lease.write,
                    id(Some(held.lease.token.0)),
                    id(Some(held.send.0)),
                    i64::from(held.heard),
                    held.repeats
                        .map_or(-1, |(write, items)| write as i64 * 8 + i64::from(items)),
                ]),
            }
        }
        let left = self.budget;
        let spent = [
            left.accepts,
            left.claims,
            left.rounds,
            left.parks,
            left.ends,
            left.losses,
        ];
        key.extend(spent.map(i64::from));
        key.extend(left.cancels.map(i64::from));
        key.extend(left.items.map(i64::from));
        key.push(i64::from(left.grants));
        let past = self.past;
        key.extend(past.rounds.map(i64::from));
        key.extend(past.ends.map(i64::from));
        key.extend([past.epoch, past.steps]);
        let items = [self.pending_items, past.items_sent, past.items_delivered];
        key.extend(items.map(i64::from));
        key
    }
}

/// The result of a search.
#[derive(Debug)]
struct Found {
    worlds: usize,
    /// The first violated invariant, and the history that led to it.
    violation: Option<(&'static str, Vec<Act>)>,
    /// Worlds in which every send was accepted and is final.
    done: usize,
}

/// Visits every reachable world breadth first, so that a violation is found through one of its
/// shortest histories.
fn explore(budget: Budget, plant: Plant) -> Found {
    let start = World::new(budget);
    let mut seen = BTreeSet::from([start.key()]);
    // Each world with the index of its predecessor.
    let mut history: Vec<(usize, Option<Act>)> = vec![(0, None)];
    let mut layer = vec![(0, start)];
    let mut done = 0;
    while !layer.is_empty() {
        let mut next = Vec::new();
        for (from, world) in layer {
            for act in acts(&world) {
                let mut after = world.clone();
                after.act(act, plant);
                let is_broken = broken(&after);
                if is_broken.is_none() && !seen.insert(after.key()) {
                    continue;
                }
                history.push((from, Some(act)));
                let place = history.len() - 1;
                if let Some(name) = is_broken {
                    return Found {
                        worlds: history.len(),
                        violation: Some((name, path(&history, place))),
                        done,
                    };
                }
                let sends = &after.scene.sends;
                let is_done = after.budget.accepts == 0;
                done += usize::from(is_done && sends.iter().all(|send| send.status.is_final()));
                next.push((place, after));
            }
        }
        layer = next;
    }
    Found {
        worlds: history.len(),
        violation: None,
        done,
    }
}

fn path(history: &[(usize, Option<Act>)], mut place: usize) -> Vec<Act> {
    let mut path = Vec::new();
    while let (from, Some(act)) = history[place] {
        path.push(act);
        place = from;
    }
    path.reverse();
    path
}

#[test]
fn every_small_world_keeps_every_invariant() {
    // Three million worlds take minutes in an unoptimized build.
    let budgets = match std::env::var_os("MAINSPRING_TEST_WORLDS") {
        Some(_) => vec![
            BUDGET,
            Budget {
                grants: 2,
                ..BUDGET
            },
        ],
        None => vec![
            Budget {
                claims: 2,
                cancels: [1, 0],
                ..BUDGET
            },
            Budget {
                accepts: 1,
                claims: 2,
                ..BUDGET
            },
            Budget {
                grants: 2,
                claims: 1,
                cancels: [1, 0],
                ..BUDGET
            },
        ],
    };
    for budget in budgets {
        let found = explore(budget, Plant::Nothing);
        assert_eq!(found.violation, None);
        // The search proves something only if it gets far.
        assert!(found.worlds > 50_000, "{} worlds", found.worlds);
        assert!(found.done > 1_000, "{} histories ended", found.done);
    }
}

#[test]
fn each_planted_violation_is_found_by_the_invariant_that_forbids_it() {
    for (plant, name) in Plant::ALL {
        let found = explore(BUDGET, plant);
        let violation = found.violation.map(|(name, path)| (name, path.len()));
        assert_eq!(
            violation.map(|(name, _)| name),
            Some(name),
            "{plant:?} after {violation:?}"
        );
    }
}

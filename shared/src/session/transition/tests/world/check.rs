//! What must hold in every world, and defects to plant.

use super::*;
use crate::session::SIGNAL_CANCEL;

type Invariant = (&'static str, fn(&World) -> bool);

const INVARIANTS: [Invariant; 12] = [
    ("one send is active", |world| {
        let active = world.scene.sends.iter().filter(|send| send.is_active());
        active.count() <= 1
    }),
    ("pending counts the queued sends", |world| {
        let queued = world.scene.sends.iter();
        let queued = queued
            .filter(|send| send.status == SendStatus::Queued)
            .count();
        i64::try_from(queued) == Ok(world.scene.hot.pending)
    }),
    ("ready exactly with work to do", |world| {
        let hot = &world.scene.hot;
        match world.scene.head() {
            None => hot.ready_since.is_none(),
            Some(head) if head.status == SendStatus::Waiting => true,
            Some(_) => hot.ready_since.is_some(),
        }
    }),
    ("an owner runs a send", |world| {
        let hot = &world.scene.hot;
        let runs = world.scene.head_status() == Some(SendStatus::Running);
        (hot.owner.is_some() == hot.token.is_some()) && (hot.owner.is_none() || runs)
    }),
    ("no dead boot owns the session", |world| {
        world.owner_life() != Some(Life::Dead)
    }),
    ("a live worker keeps its session", |world| {
        world.workers.iter().all(|worker| match worker.belief {
            // The write awaiting an answer may have ended its grant.
            Belief::Holds(held) if worker.life == Life::Alive && held.repeats.is_none() => {
                world.scene.hot.is_held_by(held.lease)
            }
            Belief::Holds(_) | Belief::Unheard(_) | Belief::Nothing => true,
        })
    }),
    ("steps are numbered without gaps", |world| {
        world.scene.hot.next_step == world.past.steps + 1
    }),
    ("epochs never decrease", |world| {
        world.past.steps_of_old_epochs == 0 && world.past.epoch <= world.scene.hot.epoch
    }),
    ("a send ends once and is silent then", |world| {
        let ends = world.past.ends.iter().zip(&world.scene.sends);
        let once = |(ends, send): (&u8, &SendState)| *ends == u8::from(send.status.is_final());
        world.past.steps_after_end == 0 && ends.into_iter().all(once)
    }),
    ("a round is stored once", |world| {
        let rounds = world.past.rounds.iter().zip(&world.scene.sends);
        rounds
            .into_iter()
            .all(|(stored, send)| i32::from(*stored) == send.rounds)
    }),
    ("a cancel is never forgotten", |world| {
        let raised = world.scene.hot.signals & SIGNAL_CANCEL != 0;
        let runs = |send: &SendState| send.cancel_requested && send.status == SendStatus::Running;
        world.past.cancels_ignored == 0 && (raised || !world.scene.sends.iter().any(runs))
    }),
    ("an answer follows every item before it", |world| {
        let past = world.past;
        past.items_missed == 0 && past.items_sent == past.items_delivered + world.pending_items
    }),
];

/// The first invariant that a world violates.
pub(super) fn broken(world: &World) -> Option<&'static str> {
    let broken = INVARIANTS.iter().find(|(_, holds)| !holds(world));
    broken.map(|(name, _)| *name)
}

/// A defect planted on purpose, to check that the search finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plant {
    Nothing,
    /// The fence does not count writes.
    CountsNoWrites,
    /// A claim ignores whether the owner is alive, and declares nobody dead.
    StealsFromLiving,
    /// A write under a lease clears every signal.
    LowersCancels,
    /// Inbox signals are not raised.
    RaisesNoInbox,
    /// Ending a send leaves the session at rest.
    EndsAtRest,
    /// A park keeps the lease.
    ParksWithLease,
    /// Starting a send does not decrement the pending count.
    KeepsPending,
    /// A step does not advance the step number.
    NumbersNoSteps,
}

impl Plant {
    /// Each defect with the invariant that detects it.
    pub(super) const ALL: [(Self, &'static str); 8] = [
        (Self::CountsNoWrites, "a round is stored once"),
        (Self::StealsFromLiving, "a live worker keeps its session"),
        (Self::LowersCancels, "a cancel is never forgotten"),
        (
            Self::RaisesNoInbox,
            "an answer follows every item before it",
        ),
        (Self::EndsAtRest, "ready exactly with work to do"),
        (Self::ParksWithLease, "an owner runs a send"),
        (Self::KeepsPending, "pending counts the queued sends"),
        (Self::NumbersNoSteps, "steps are numbered without gaps"),
    ];

    /// The change that a store with this defect would make.
    pub(super) fn bend(self, before: &Scene, mut change: Change) -> Change {
        let old = &before.hot;
        let kind = change.step.as_ref().map(|step| step.kind);
        match self {
            Self::Nothing | Self::CountsNoWrites | Self::StealsFromLiving => {}
            Self::LowersCancels => {
                if kind == Some(StepKind::Round) {
                    change.hot.signals = 0;
                }
            }
            Self::RaisesNoInbox => change.hot.signals &= !SIGNAL_INBOX,
            Self::EndsAtRest => {
                if change.end.is_some() && change.hot.owner.is_none() {
                    change.hot.ready_since = None;
                }
            }
            Self::ParksWithLease => {
                if kind == Some(StepKind::Waiting) {
                    change.hot.owner = old.owner;
                    change.hot.token = old.token;
                }
            }
            Self::KeepsPending => change.hot.pending = change.hot.pending.max(old.pending),
            Self::NumbersNoSteps => {
                if kind == Some(StepKind::Waiting) {
                    change.hot.next_step = old.next_step;
                }
            }
        }
        change
    }
}

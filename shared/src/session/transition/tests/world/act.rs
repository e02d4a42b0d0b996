//! The events of a world.

use super::*;
use crate::agent::OnBusy;
use crate::inbox::ItemKind;
use crate::send::StopReason;
use crate::session::SIGNAL_INTERRUPT;
use crate::step::RoundRef;
use crate::store::{AfterSend, ParkUntil, ReleaseLoss};
use crate::usage::Usage;

/// What happens to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    /// It was committed, but its worker does not know.
    AnswerLost,
    /// It was not committed, but its worker does not know.
    CommitLost,
}

/// An event. Its numbers are workers, schedulers and sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Accept(usize),
    /// A send is accepted and granted to the worker that keeps its session.
    Grant(usize, usize),
    /// A worker is told of the send that it was granted, however late; or never.
    Hear(usize),
    Lose(usize),
    Claim(usize, Fate),
    Write(usize, Write, Fate),
    Release(usize),
    /// A worker gives back what it owns but is not working on.
    GiveBack(usize),
    /// A worker's lease expires.
    LeaseEnds(usize),
    Renew(usize),
    Cancel(usize, usize),
    Deliver(usize),
    /// The alarm of a send is served.
    Alarm(usize, usize),
}

const BOTH: [usize; 2] = [0, 1];

/// The possible next events.
pub(super) fn acts(world: &World) -> Vec<Act> {
    let mut acts = Vec::new();
    let left = world.budget;
    let fates: &[Fate] = if left.losses > 0 {
        &[Fate::Answered, Fate::AnswerLost, Fate::CommitLost]
    } else {
        &[Fate::Answered]
    };
    for n in BOTH {
        let worker = &world.workers[n];
        match worker.belief {
            Belief::Nothing if left.claims > 0 => {
                let fates = fates.iter().filter(|fate| **fate != Fate::CommitLost);
                acts.extend(fates.map(|fate| Act::Claim(n, *fate)));
            }
            Belief::Holds(held) => {
                let writes = if let Some((write, _)) = held.repeats {
                    vec![write]
                } else {
                    acts.push(Act::Release(n));
                    let mut writes = vec![Write::Complete];
                    writes.extend((left.rounds > 0).then_some(Write::Append));
                    writes.extend((left.parks > 0).then_some(Write::Park));
                    writes
                };
                for write in writes {
                    acts.extend(fates.iter().map(|fate| Act::Write(n, write, *fate)));
                }
            }
            Belief::Nothing | Belief::Unheard(_) => {}
        }
        if worker.told.is_some() {
            acts.push(Act::Lose(n));
            if matches!(worker.belief, Belief::Nothing) {
                acts.push(Act::Hear(n));
            }
        }
        let holds = matches!(worker.belief, Belief::Holds(_));
        if world.scene.hot.owner == Some(worker.boot) && !holds {
            acts.push(Act::GiveBack(n));
        }
        if worker.life == Life::Alive && left.ends > 0 {
            acts.push(Act::LeaseEnds(n));
        }
        if worker.life == Life::Late || (worker.life == Life::Dead && worker.lives > 0) {
            acts.push(Act::Renew(n));
        }
    }
    for scheduler in BOTH {
        if left.accepts > 0 {
            acts.push(Act::Accept(scheduler));
            let keepers = BOTH.into_iter().filter(|n| {
                let worker = &world.workers[*n];
                left.grants > 0 && worker.life == Life::Alive && worker.told.is_none()
            });
            acts.extend(keepers.map(|keeper| Act::Grant(scheduler, keeper)));
        }
        if left.items[scheduler] > 0 {
            acts.push(Act::Deliver(scheduler));
        }
        for (send, state) in world.scene.sends.iter().enumerate() {
            if left.cancels[scheduler] > 0 {
                acts.push(Act::Cancel(scheduler, send));
            }
            if state.alarm_at.is_some() {
                acts.push(Act::Alarm(scheduler, send));
            }
        }
    }
    acts
}

impl World {
    pub(super) fn act(&mut self, act: Act, plant: Plant) {
        match act {
            Act::Accept(scheduler) => {
                self.budget.accepts -= 1;
                let options = SendOptions::default();
                let offer = Offer {
                    boot: scheduler_boot(scheduler),
                    ..self.scene.offer(&options)
                };
                let change = accept(&self.scene.hot, self.scene.head_status(), offer, NOW);
                self.commit(&plant.bend(&self.scene, change));
            }
            Act::Grant(scheduler, keeper) => self.grant(scheduler, keeper, plant),
            Act::Hear(n) => {
                let boot = self.workers[n].boot;
                let told = self.workers[n].told.take();
                // One for an earlier boot goes nowhere.
                if let Some(held) = told.filter(|held| held.lease.boot == boot) {
                    self.workers[n].belief = Belief::Holds(held);
                }
            }
            Act::Lose(n) => self.workers[n].told = None,
            Act::Claim(n, fate) => self.claim(n, fate, plant),
            Act::Write(n, write, fate) => self.write(n, write, fate, plant),
            Act::Release(n) => {
                if let Belief::Holds(held) = self.workers[n].belief {
                    self.give_back(held.lease, ReleaseLoss::Nothing, plant);
                }
                self.workers[n].belief = Belief::Nothing;
            }
            Act::GiveBack(n) => {
                let (boot, token) = (self.workers[n].boot, self.scene.hot.token);
                if let Some(token) = token {
                    let (epoch, write) = (0, 0);
                    let lease = Lease {
                        boot,
                        token,
                        epoch,
                        write,
                    };
                    self.give_back(lease, ReleaseLoss::ModelCall, plant);
                }
                self.workers[n].belief = Belief::Nothing;
                // A grant that is old enough to be given back is too old to be heard.
                self.workers[n].told = None;
            }
            Act::LeaseEnds(n) => {
                self.budget.ends -= 1;
                self.workers[n].life = Life::Late;
            }
            Act::Renew(n) => self.renew(n),
            Act::Cancel(scheduler, send) => {
                self.budget.cancels[scheduler] -= 1;
                let send = self.scene.sends[send];
                let runs = send.status == SendStatus::Running;
                let lease = if runs { self.lease_until() } else { None };
                let (head, boot) = (self.scene.head_status(), scheduler_boot(scheduler));
                let change = cancel(&self.scene.hot, &send, head, lease, boot, NOW);
                if let Some(change) = change {
                    self.commit(&plant.bend(&self.scene, change));
                }
            }
            Act::Deliver(scheduler) => self.deliver(scheduler, plant),
            Act::Alarm(scheduler, send) => {
                let send = self.scene.sends[send];
                let runs = send.status == SendStatus::Running;
                let lease = if runs { self.lease_until() } else { None };
                let (head, boot) = (self.scene.head_status(), scheduler_boot(scheduler));
                let change = expire(&self.scene.hot, &send, head, lease, boot, NOW);
                self.commit(&plant.bend(&self.scene, change));
            }
        }
    }

    fn give_back(&mut self, lease: Lease, lost: ReleaseLoss, plant: Plant) {
        let head = self.scene.head();
        if let Some(change) = release(&self.scene.hot, head.as_ref(), lease, lost) {
            self.commit(&plant.bend(&self.scene, change));
        }
    }

    fn grant(&mut self, scheduler: usize, keeper: usize, plant: Plant) {
        self.budget.accepts -= 1;
        self.budget.grants -= 1;
        let options = SendOptions::default();
        let offer = Offer {
            boot: scheduler_boot(scheduler),
            ..self.scene.offer(&options)
        };
        let accepted = accept(&self.scene.hot, self.scene.head_status(), offer, NOW);
        let Some(granted) = grant_accepted(&accepted, self.workers[keeper].boot, NOW) else {
            self.commit(&plant.bend(&self.scene, accepted));
            return;
        };
        let send = granted.change.send.map(|send| send.id);
        self.commit(&plant.bend(&self.scene, granted.change));
        self.workers[keeper].told = send.map(|send| Held {
            lease: granted.lease,
            send,
            heard: self.pending_items,
            repeats: None,
        });
    }

    /// A boot that was declared dead drops its work and continues under a new ID.
    fn renew(&mut self, n: usize) {
        let worker = &mut self.workers[n];
        if worker.life == Life::Dead {
            worker.boot = BootId(Uuid::from_u128(worker.boot.0.as_u128() + 2));
            worker.belief = Belief::Nothing;
            worker.lives -= 1;
        }
        worker.life = Life::Alive;
    }

    fn deliver(&mut self, scheduler: usize, plant: Plant) {
        self.budget.items[scheduler] -= 1;
        let head = self.scene.head();
        let facts = DeliveryFacts {
            head: head.as_ref(),
            last_queued: None,
            pending_items: i64::from(self.pending_items),
        };
        let kind = ItemKind::Message;
        if let Delivery::Stored(stored) =
            deliver(&self.scene.hot, facts, OnBusy::Steer, kind, 10, NOW)
        {
            self.commit(&plant.bend(&self.scene, stored.change));
            self.pending_items += 1;
            self.past.items_sent += 1;
        }
    }

    fn claim(&mut self, n: usize, fate: Fate, plant: Plant) {
        let boot = self.workers[n].boot;
        let token = LeaseToken(Uuid::from_u128(1_000 + u128::from(self.budget.claims)));
        self.budget.claims -= 1;
        let claimer = Claimer {
            crashes_below: 9,
            ..claimer(boot, token)
        };
        let facts = ClaimFacts {
            owner_lives: self.owner_life() == Some(Life::Alive) && plant != Plant::StealsFromLiving,
            claimer_dead: self.workers[n].life == Life::Dead,
        };
        if refuse_claim(&self.scene.hot, claimer, facts).is_some() {
            return;
        }
        let head = self.scene.head();
        let claim = claim(&self.scene.hot, head.as_ref(), claimer, NOW);
        if let Some(dead) = claim.dead
            && plant != Plant::StealsFromLiving
        {
            self.declare_dead(dead);
        }
        self.commit(&plant.bend(&self.scene, claim.change));
        if fate == Fate::AnswerLost {
            self.budget.losses -= 1;
            self.workers[n].belief = Belief::Unheard(token);
        } else if let (Granted::Lease(lease, _), Some(head)) = (claim.granted, head) {
            self.workers[n].belief = Belief::Holds(Held {
                lease,
                send: head.id,
                // A worker reads the inbox before its first round.
                heard: self.pending_items,
                repeats: None,
            });
        }
    }

    fn write(&mut self, n: usize, write: Write, fate: Fate, plant: Plant) {
        let Belief::Holds(mut held) = self.workers[n].belief else {
            return;
        };
        let items = held.repeats.map_or(held.heard, |(_, items)| items);
        if held.repeats.is_none() {
            self.budget.rounds -= u8::from(write == Write::Append);
            self.budget.parks -= u8::from(write == Write::Park);
        }
        if fate != Fate::Answered {
            self.budget.losses -= 1;
        }
        let mut belief = Belief::Nothing;
        if fate != Fate::CommitLost {
            belief = match write {
                Write::Append => self.append(held, items, plant),
                Write::Complete => self.complete(held, items, plant),
                Write::Park => self.park(held, plant),
            };
        }
        if fate != Fate::Answered {
            held.repeats = Some((write, items));
            belief = Belief::Holds(held);
        }
        self.workers[n].belief = belief;
    }

    /// A lease as a worker sends it. With `CountsNoWrites`, the store does not count writes.
    fn sent(&self, lease: Lease, plant: Plant) -> Lease {
        let write = if plant == Plant::CountsNoWrites {
            self.scene.hot.writes
        } else {
            lease.write
        };
        Lease { write, ..lease }
    }

    fn state_of(&self, id: SendId) -> SendState {
        let found = self.scene.sends.iter().find(|send| send.id == id);
        *found.expect("a worker's send was accepted")
    }

    fn append(&mut self, held: Held, items: u8, plant: Plant) -> Belief {
        let send = self.state_of(held.send);
        let lease = self.sent(held.lease, plant);
        let round = RoundRef {
            index: send.rounds,
            model: String::new(),
            usage: Usage::default(),
            digest: None,
            folded: None,
            aged_to: None,
            recalled: None,
        };
        let refs = StepRefs {
            round: Some(round),
            ..StepRefs::default()
        };
        // A worker counts its own rounds, so a repeat carries the same count.
        let totals = totals(1, 0);
        let change = append(&self.scene.hot, &send, lease, refs, &totals, NOW);
        let mut next = held.lease;
        next.write += 1;
        let heard = match change {
            Some(change) => {
                let signals = self.scene.hot.signals;
                self.commit(&plant.bend(&self.scene, change));
                self.deliver_items(items);
                signals & SIGNAL_INBOX != 0
            }
            // A repeat is answered like the first write, with all pending items.
            None if is_repeat(&self.scene.hot, held.lease) => true,
            None => return Belief::Nothing,
        };
        Belief::Holds(Held {
            lease: next,
            heard: if heard { self.pending_items } else { 0 },
            repeats: None,
            ..held
        })
    }

    fn complete(&mut self, held: Held, items: u8, plant: Plant) -> Belief {
        let send = self.state_of(held.send);
        let completion = Completion {
            result: SendResult::completed(StopReason::End, String::new()),
            round: None,
            totals: &totals(send.rounds, 0),
            unless: SIGNAL_INBOX | SIGNAL_INTERRUPT,
            then: AfterSend::Continue,
        };
        let lease = self.sent(held.lease, plant);
        let mut next = held.lease;
        next.write += 1;
        let change = match complete(&self.scene.hot, &send, lease, completion, NOW) {
            Complete::LeaseLost => return Belief::Nothing,
            Complete::Undelivered(change) => {
                self.commit(&plant.bend(&self.scene, change));
                let heard = self.pending_items;
                let (lease, repeats) = (next, None);
                return Belief::Holds(Held {
                    lease,
                    heard,
                    repeats,
                    ..held
                });
            }
            Complete::Ended(change) => {
                self.end(&change, items, plant);
                return Belief::Nothing;
            }
            Complete::Continues(change) => change,
        };
        self.end(&change, items, plant);
        let head = self.scene.head();
        let change = start_next(&self.scene.hot, head.as_ref(), NOW);
        let started = change.send;
        self.commit(&plant.bend(&self.scene, change));
        started.map_or(Belief::Nothing, |send| {
            Belief::Holds(Held {
                lease: next,
                send: send.id,
                heard: self.pending_items,
                repeats: None,
            })
        })
    }

    fn end(&mut self, change: &Change, items: u8, plant: Plant) {
        self.commit(&plant.bend(&self.scene, change.clone()));
        self.deliver_items(items);
        let answered = change.end.as_ref().map(|end| end.status) == Some(SendStatus::Completed);
        self.past.items_missed += if answered { self.pending_items } else { 0 };
    }

    fn park(&mut self, held: Held, plant: Plant) -> Belief {
        let send = self.state_of(held.send);
        let parking = Parking {
            on: WaitingOn::Retry,
            until: ParkUntil::After(Duration::from_secs(1)),
            unless: SIGNAL_INBOX | SIGNAL_INTERRUPT,
            totals: &totals(send.rounds, 0),
        };
        let lease = self.sent(held.lease, plant);
        match park(&self.scene.hot, &send, lease, parking, NOW) {
            Park::LeaseLost => Belief::Nothing,
            Park::Woken(change) => {
                self.commit(&plant.bend(&self.scene, change));
                let mut lease = held.lease;
                lease.write += 1;
                let (heard, repeats) = (self.pending_items, None);
                Belief::Holds(Held {
                    lease,
                    heard,
                    repeats,
                    ..held
                })
            }
            Park::Cancelled(change) | Park::Parked(change) => {
                self.commit(&plant.bend(&self.scene, change));
                Belief::Nothing
            }
        }
    }

    /// Removes the items that a write turned into messages from the pending ones; those of an
    /// earlier write are already gone.
    fn deliver_items(&mut self, items: u8) {
        let items = items.min(self.pending_items);
        self.pending_items -= items;
        self.past.items_delivered += items;
    }
}

fn scheduler_boot(scheduler: usize) -> BootId {
    BootId(Uuid::from_u128(90 + scheduler as u128))
}

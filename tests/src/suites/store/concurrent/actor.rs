//! The actors that make calls: each knows only the answers it got.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::SessionKey;
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AfterSend, AppendOutcome, AppendRound, ClaimOutcome, Claimed, CompleteOutcome, CompleteSend,
    DeliverItem, Delivery, Inspect, ParkOutcome, ParkSend, ParkUntil, ReadInbox, ReleaseLoss,
    ReleaseSession,
};

use super::call::{Call, Outcome};
use crate::suites::store::prelude::{
    boot, cold_claim, costs, delivery, ending_of, item, millis, round, round_ref, send, sending,
    totals, usage_row, waiting,
};

/// An action. An actor without a session claims one instead of writing to it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Claim(u8),
    /// A round, and whether it includes the inbox.
    Append(bool),
    Complete {
        then: AfterSend,
        unless: i32,
        reads: bool,
    },
    Park {
        on: WaitingOn,
        unless: i32,
    },
    /// A wait before a retry, which is over when the concurrent calls are made.
    Retry,
    Release,
    /// Cancels one of the first sends, or the one it holds.
    Cancel(u8),
    Deliver(u8, OnBusy),
    Accept(u8),
    Sweep,
}

/// How long the waits of a beginning last, in milliseconds: they are over when the concurrent calls
/// are made.
pub(super) const WAIT: i64 = 200;

/// An actor that makes calls.
#[derive(Debug)]
pub(super) struct Actor {
    /// The number from which IDs are counted.
    base: u128,
    /// Its number, from 1, which is also that of its process.
    n: u128,
    /// Calls made so far. IDs combine both numbers, so that they do not depend on the order of calls.
    made: u128,
    sessions: u128,
    held: Option<Claimed>,
}

/// Inserts the inbox items of a session as messages before the last `back` messages.
fn say(items: &[InboxItem], index: i32, back: usize, to: &mut Vec<NewMessage>) -> Vec<Delivery> {
    let begin = to.len() - back;
    let said = items
        .iter()
        .map(|item| NewMessage::user(item.content.clone(), index));
    to.splice(begin..begin, said);
    let places = (begin as u32..).zip(items);
    places
        .map(|(place, item)| delivery(&item.id, place))
        .collect()
}

impl Actor {
    pub(super) fn new(base: u128, n: u128, sessions: u128) -> Self {
        Self {
            base,
            n,
            made: 0,
            sessions,
            held: None,
        }
    }

    /// The call for an action, given what is stored at the moment.
    pub(super) async fn call(&mut self, store: &dyn Inspect, act: Act) -> Call {
        self.made += 1;
        let (base, worker) = (self.base, boot(self.base + self.n));
        let id = base + self.n * 100 + self.made;
        let session = |pick: u8| base + 1 + u128::from(pick) % self.sessions;
        match (act, &self.held) {
            (Act::Append(reads), Some(held)) => {
                let items = inbox(store, held.key, reads).await;
                Call::Append(Box::new(next_round(held, &items)))
            }
            (
                Act::Complete {
                    then,
                    unless,
                    reads,
                },
                Some(held),
            ) => {
                let items = inbox(store, held.key, reads).await;
                let item = CompleteSend {
                    unless,
                    ..end(held, then, &items)
                };
                Call::Complete(Box::new(item))
            }
            (Act::Park { on, unless }, Some(held)) => {
                let item = ParkSend {
                    unless,
                    ..wait(held, on, ParkUntil::Asked)
                };
                Call::Park(Box::new(item))
            }
            (Act::Retry, Some(held)) => {
                let until = ParkUntil::After(millis(WAIT));
                Call::Park(Box::new(wait(held, WaitingOn::Retry, until)))
            }
            (Act::Release, Some(held)) => Call::Release(ReleaseSession {
                key: held.key,
                lease: held.lease,
                lost: ReleaseLoss::Nothing,
            }),
            (Act::Cancel(pick), held) => {
                let held = held.as_ref().filter(|_| pick.is_multiple_of(3));
                let first = base + 1 + u128::from(pick) % (self.sessions + 1);
                Call::Cancel(held.map_or(send(first), |held| held.send.record.id))
            }
            (Act::Deliver(pick, mode), _) => {
                let item = item(&format!("item-{id}"), session(pick), mode);
                Call::Deliver(Box::new(DeliverItem {
                    items_max: 3,
                    ..item
                }))
            }
            (Act::Accept(pick), _) => Call::Accept(Box::new(sending(id, session(pick)))),
            (Act::Sweep, _) => Call::Sweep,
            (Act::Claim(pick), _) => Call::Claim(worker, cold_claim(session(pick), id)),
            _ => Call::Claim(worker, cold_claim(session(0), id)),
        }
    }

    /// Takes note of an answer.
    pub(super) fn heard(&mut self, outcome: Outcome) {
        let Some(held) = &mut self.held else {
            if let Outcome::Claim(ClaimOutcome::Claimed(claimed)) = outcome {
                self.held = Some(*claimed);
            }
            return;
        };
        let keeps = match outcome {
            Outcome::Claim(ClaimOutcome::Claimed(claimed)) => {
                *held = *claimed;
                true
            }
            Outcome::Append(AppendOutcome::Appended { .. }) => {
                held.send.record.rounds += 1;
                held.lease.write += 1;
                true
            }
            Outcome::Complete(CompleteOutcome::Completed(completed)) => match completed.next {
                Some((next, _)) => {
                    held.send = next;
                    held.lease.write += 1;
                    true
                }
                None => false,
            },
            Outcome::Complete(CompleteOutcome::Undelivered)
            | Outcome::Park(ParkOutcome::Woken { .. }) => {
                held.lease.write += 1;
                true
            }
            Outcome::Append(AppendOutcome::LeaseLost)
            | Outcome::Complete(CompleteOutcome::LeaseLost)
            | Outcome::Park(
                ParkOutcome::Parked { .. } | ParkOutcome::Cancelled { .. } | ParkOutcome::LeaseLost,
            )
            | Outcome::Release(_) => false,
            _ => true,
        };
        if !keeps {
            self.held = None;
        }
    }
}

/// The pending inbox items of a session.
async fn inbox(store: &dyn Inspect, key: SessionKey, reads: bool) -> Vec<InboxItem> {
    if !reads {
        return Vec::new();
    }
    let query = ReadInbox {
        key,
        pending: true,
        after: 0,
        limit: 2,
    };
    store.read_inbox(query).await.expect("the store answers")
}

fn next_round(held: &Claimed, items: &[InboxItem]) -> AppendRound {
    let index = held.send.record.rounds;
    let mut item = round(held, index);
    item.deliveries = say(items, index, 2, &mut item.messages);
    item
}

fn end(held: &Claimed, then: AfterSend, items: &[InboxItem]) -> CompleteSend {
    let index = held.send.record.rounds;
    let mut item = ending_of(held, &held.send.record, then);
    if index > 0 {
        // The input is part of the first round.
        item.messages.remove(0);
    }
    for message in &mut item.messages {
        message.round = index;
    }
    item.deliveries = say(items, index, 1, &mut item.messages);
    item.usage = vec![usage_row(index, 1)];
    item.round = Some(round_ref(index));
    item.totals = totals(index + 1);
    item
}

fn wait(held: &Claimed, on: WaitingOn, until: ParkUntil) -> ParkSend {
    let mut item = waiting(held, on, until);
    let rounds = held.send.record.rounds;
    item.totals.rounds = rounds;
    item.totals.usage = costs(u64::from(rounds.unsigned_abs()));
    item
}

//! What workers store under their leases.

use mainspring_shared::budget::{Held as SendHeld, Spent};
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::LeaseToken;
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendResult, StopReason};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AppendOutcome, AppendRound, CallBegin, CallStep, CompleteOutcome, CompleteSend, Delivery,
    Inspect, NewCall, ParkOutcome, ParkSend, ParkUntil, ReadInbox, SendTotals, UsageRow,
};
use mainspring_shared::tool::{CallRecord, CallResult, answers, call_id, cancelled_call};

use super::super::super::prelude::arguments;
use super::super::make::{begin, call_step};
use super::super::op::{End, Outcome, Wait, Work};
use super::{Held, World, small};

/// What a worker reads before it writes.
struct Found {
    /// The calls without an answer in the transcript.
    open: Vec<CallRecord>,
    /// The inbox.
    items: Vec<InboxItem>,
}

/// Adds the inbox items as messages, and returns their deliveries.
fn say(items: &[InboxItem], round: i32, messages: &mut Vec<NewMessage>) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    for item in items {
        deliveries.push(small::delivery(&item.id, messages.len() as u32));
        messages.push(NewMessage::user(item.content.clone(), round));
    }
    deliveries
}

/// The calls of a new round.
fn new_calls(held: &Held, work: &Work) -> Vec<NewCall> {
    let round = held.send.rounds;
    let begins = work.begins.iter().copied().map(begin);
    let calls = (0..).zip(begins).map(|(place, begins)| {
        let call_id = call_id(held.send.id, round, place);
        NewCall {
            arguments: arguments(&call_id),
            call_id,
            round,
            place: place as i32,
            name: "look".to_owned(),
            repeat: mainspring_shared::tool::Repeat::Keyed,
            begins,
        }
    });
    calls.collect()
}

impl World<'_> {
    /// Reads from the model: a worker that lost its lease is mistaken about it, and is refused.
    async fn found(&self, held: &Held, reads: bool) -> Found {
        let known = self.known().await;
        let mut sessions = known.sessions.into_iter();
        let session = sessions.find(|session| session.key == held.key);
        let last = session.and_then(|session| session.messages.into_iter().last());
        let asks = last.filter(|last| last.send_id == held.send.id && !last.tool_calls.is_empty());
        let open = match asks {
            Some(asks) => {
                let calls = self.model.read_round(held.key, held.send.id, asks.round);
                calls.await.unwrap_or_default()
            }
            None => Vec::new(),
        };
        let query = ReadInbox {
            key: held.key,
            pending: true,
            after: 0,
            limit: if reads { 2 } else { 0 },
        };
        let items = self.model.read_inbox(query).await.unwrap_or_default();
        Found { open, items }
    }

    fn paid(&mut self, held: &Held) -> (Vec<UsageRow>, i32) {
        let attempt = self.attempt(held.send.id);
        (vec![small::usage_row(held.send.rounds, attempt)], attempt)
    }

    /// A send's totals after `more` further responses.
    async fn totals(&self, held: &Held, rounds: i32, more: usize) -> SendTotals {
        let known = self.known().await;
        let rows = known.sessions.iter().flat_map(|session| &session.usage);
        let stored = rows.filter(|(send, ..)| *send == held.send.id).count();
        SendTotals {
            usage: small::costs((stored + more) as u64),
            ..small::totals(rounds)
        }
    }

    async fn begun(&self, held: &Held) -> SendTotals {
        let attempts = self.attempts.get(&held.send.id).copied().unwrap_or(0);
        let spent = Spent {
            tokens: attempts.unsigned_abs().into(),
            ..Spent::default()
        };
        SendTotals {
            attempts,
            session: (attempts > 1).then_some(spent),
            held: SendHeld([("call_1".to_owned(), spent)].into()),
            ..self.totals(held, held.send.rounds, 0).await
        }
    }

    /// The next steps of the open calls, their answers, and as much of the next round as is possible.
    async fn work(&mut self, held: &Held, work: &Work) -> AppendRound {
        let Found { mut open, items } = self.found(held, work.reads).await;
        let mut item = AppendRound {
            fold: None,
            key: held.key,
            lease: held.lease,
            send_id: held.send.id,
            messages: Vec::new(),
            calls: Vec::new(),
            changes: Vec::new(),
            deliveries: Vec::new(),
            usage: Vec::new(),
            round: None,
            totals: self.begun(held).await,
        };
        let unsettled = open.iter_mut().filter(|call| call.result.is_none());
        for (call, change) in unsettled.zip(work.changes.iter().cycle()) {
            let Some(step) = call_step(*change) else {
                continue;
            };
            if let CallStep::Settled(result) = &step {
                call.result = Some(result.clone());
            }
            item.changes
                .push(small::change(call.call_id.as_str(), step));
        }
        let was_open = !open.is_empty();
        let Some(answered) = answers(&open) else {
            return item;
        };
        item.messages = answered;
        let round = held.send.rounds;
        if was_open && !work.rides {
            item.deliveries = say(&items, round - 1, &mut item.messages);
            return item;
        }
        if round == 0 {
            let input = NewMessage::user(held.send.input.clone(), 0);
            item.messages.push(input);
        }
        item.deliveries = say(&items, round, &mut item.messages);
        item.calls = new_calls(held, work);
        let ids: Vec<_> = item
            .calls
            .iter()
            .map(|call| call.call_id.as_str())
            .collect();
        item.messages.push(small::answer("so", round, &ids));
        let is_settled = |call: &NewCall| matches!(call.begins, CallBegin::Settled(_));
        if work.rides && item.calls.iter().all(is_settled) {
            for (back, id) in (1..).zip(&ids) {
                item.messages.push(small::tool_result(id, round, back));
            }
        }
        let (usage, attempts) = self.paid(held);
        (item.usage, item.round) = (usage, Some(small::round_ref(round)));
        item.totals = SendTotals {
            attempts,
            ..self.totals(held, round + 1, item.usage.len()).await
        };
        item
    }

    /// Counts a write of the lease's holder.
    fn wrote(&mut self, token: LeaseToken) {
        let grants = self.held.iter_mut();
        for grant in grants.filter(|grant| grant.lease.token == token) {
            grant.lease.write += 1;
        }
    }

    pub(super) async fn append(&mut self, picks: Vec<Work>) -> Result<(), String> {
        let picked = self.pick(picks, |work| work.held);
        let mut items = Vec::new();
        for (held, work) in &picked {
            items.push(self.work(held, work).await);
        }
        let outcomes = both!(self, |store| store
            .at(self.at())
            .append_rounds(items.clone()));
        for (item, outcome) in items.iter().zip(outcomes) {
            if outcome == AppendOutcome::LeaseLost {
                self.leave(item.lease.token);
                continue;
            }
            let grants = self.held.iter_mut();
            for grant in grants.filter(|g| g.lease.token == item.lease.token) {
                grant.send.rounds = item.totals.rounds;
                grant.lease.write += 1;
            }
        }
        Ok(())
    }

    /// The end of a send; its open calls end with it.
    async fn end(&mut self, held: &Held, end: &End) -> CompleteSend {
        let Found { mut open, items } = self.found(held, end.reads).await;
        let mut changes = Vec::new();
        for call in open.iter_mut().filter(|call| call.result.is_none()) {
            let result: CallResult = cancelled_call();
            call.result = Some(result.clone());
            let step = CallStep::Settled(result);
            changes.push(small::change(call.call_id.as_str(), step));
        }
        let mut messages = answers(&open).unwrap_or_default();
        let index = held.send.rounds;
        let (usage, attempts) = self.paid(held);
        let rounds = index + i32::from(matches!(end.outcome, Outcome::Answer));
        let totals = self.totals(held, rounds, usage.len()).await;
        let mut item = CompleteSend {
            key: held.key,
            lease: held.lease,
            send_id: held.send.id,
            messages: Vec::new(),
            changes,
            deliveries: Vec::new(),
            usage,
            round: None,
            totals: SendTotals { attempts, ..totals },
            projections: Vec::new(),
            result: SendResult::completed(StopReason::End, "so".to_owned()),
            unless: end.unless,
            then: end.then,
        };
        match end.outcome {
            Outcome::Answer => {
                if index == 0 {
                    messages.push(NewMessage::user(held.send.input.clone(), 0));
                }
                item.deliveries = say(&items, index, &mut messages);
                messages.push(small::answer("so", index, &[]));
                item.round = Some(small::round_ref(index));
            }
            Outcome::Failure => {
                let failure = Failure::new(Code::LlmUnavailable, "the provider is away");
                item.result = SendResult::failed(StopReason::ProviderError, failure);
            }
        }
        item.messages = messages;
        item
    }

    pub(super) async fn complete(&mut self, picks: Vec<End>) -> Result<(), String> {
        let picked = self.pick(picks, |end| end.held);
        let mut items = Vec::new();
        for (held, end) in &picked {
            items.push(self.end(held, end).await);
        }
        let outcomes = both!(self, |store| store
            .at(self.at())
            .complete_sends(items.clone()));
        for ((held, _), outcome) in picked.iter().zip(outcomes) {
            let next = match outcome {
                CompleteOutcome::Completed(completed) => completed.next,
                CompleteOutcome::Undelivered => {
                    self.wrote(held.lease.token);
                    continue;
                }
                CompleteOutcome::LeaseLost | CompleteOutcome::Locked => None,
            };
            let Some((next, _)) = next else {
                self.leave(held.lease.token);
                continue;
            };
            let grants = self.held.iter_mut();
            for grant in grants.filter(|g| g.lease.token == held.lease.token) {
                grant.send = next.record.clone();
                grant.lease.write += 1;
            }
        }
        Ok(())
    }

    pub(super) async fn park(&mut self, picks: Vec<Wait>) -> Result<(), String> {
        let picked = self.pick(picks, |wait| wait.held);
        let mut items = Vec::new();
        for (held, wait) in &picked {
            let (usage, attempts) = self.paid(held);
            let totals = self.totals(held, held.send.rounds, usage.len()).await;
            let until = wait.after.map(|ms| ParkUntil::After(small::millis(ms)));
            items.push(ParkSend {
                key: held.key,
                lease: held.lease,
                send_id: held.send.id,
                on: wait.on,
                until: until.unwrap_or(ParkUntil::Asked),
                unless: wait.unless,
                usage,
                totals: SendTotals { attempts, ..totals },
            });
        }
        let outcomes = both!(self, |store| store.at(self.at()).park_sends(items.clone()));
        for (item, outcome) in items.iter().zip(outcomes) {
            if matches!(outcome, ParkOutcome::Woken { .. }) {
                self.wrote(item.lease.token);
            } else {
                self.leave(item.lease.token);
            }
        }
        Ok(())
    }
}

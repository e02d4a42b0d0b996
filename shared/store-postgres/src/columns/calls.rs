//! Tool calls, changes of calls, and deliveries.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{CallBegin, CallChange, CallStep, Delivery, NewCall};
use mainspring_shared::tool::{Approval, Asked, CallResult};

use super::{json, text};
use crate::retry::PgQuery;

/// The sum of a transaction's changes of a call, since a statement can change a row only once.
#[derive(Debug, Default)]
struct Sum<'a> {
    starts: i32,
    waits_on: Option<WaitingOn>,
    /// Whether it began to wait; then `deadline` replaces the old one.
    waited: bool,
    deadline: Option<Duration>,
    /// What it has asked, if it waits for an answer to that.
    asked: Option<&'a Vec<Asked>>,
    result: Option<&'a CallResult>,
}

impl<'a> Sum<'a> {
    fn of(begins: &'a CallBegin) -> Self {
        let mut sum = Self::default();
        match begins {
            CallBegin::Started => sum.start(),
            CallBegin::Requested => {}
            CallBegin::Waits { on, deadline, .. } => sum.wait(*on, *deadline),
            CallBegin::Settled(result) => sum.settle(result),
        }
        sum
    }

    /// Adds the next change. A settled call does not change any more.
    fn add(&mut self, change: &'a CallStep) {
        if self.result.is_some() {
            return;
        }
        match change {
            CallStep::Started => self.start(),
            CallStep::Waits { on, deadline } => self.wait(*on, *deadline),
            CallStep::Asks { asked, deadline } => {
                self.wait(WaitingOn::Human, *deadline);
                self.asked = Some(asked);
            }
            CallStep::Settled(result) => self.settle(result),
        }
    }

    fn start(&mut self) {
        self.starts += 1;
        self.waits_on = None;
    }

    fn wait(&mut self, on: WaitingOn, deadline: Option<Duration>) {
        self.waits_on = Some(on);
        self.waited = true;
        self.deadline = deadline;
    }

    fn settle(&mut self, result: &'a CallResult) {
        self.result = Some(result);
        self.waits_on = None;
    }

    fn deadline_ms(&self) -> Option<i64> {
        self.deadline.map(|span| span.as_millis() as i64)
    }

    /// The JSON that belongs to its new state: the result, or what it asks while it waits.
    fn said(&self) -> Option<String> {
        match self.result {
            Some(result) => Some(json(result)),
            None => self.asked.filter(|_| self.waits_on.is_some()).map(json),
        }
    }
}

/// New calls of several items.
#[derive(Debug, Default)]
pub(crate) struct CallColumns {
    ords: Vec<i64>,
    ids: Vec<String>,
    rounds: Vec<i32>,
    places: Vec<i32>,
    names: Vec<String>,
    arguments: Vec<String>,
    repeats: Vec<&'static str>,
    approvals: Vec<&'static str>,
    starts: Vec<i32>,
    waits_on: Vec<Option<&'static str>>,
    deadlines: Vec<Option<i64>>,
    said: Vec<Option<String>>,
}

impl CallColumns {
    /// Adds an item's calls. The item's changes of these calls are merged into their initial state;
    /// its other changes go to `changes`.
    pub(crate) fn push(
        &mut self,
        changes: &mut ChangeColumns,
        ord: i64,
        calls: &[NewCall],
        changed: &[CallChange],
    ) {
        let mut sums: Vec<Sum<'_>> = calls.iter().map(|call| Sum::of(&call.begins)).collect();
        let mut earlier = Vec::new();
        for change in changed {
            let new = calls.iter().position(|call| call.call_id == change.call_id);
            match new {
                Some(new) => sums[new].add(&change.change),
                None => earlier.push(change),
            }
        }
        for (call, sum) in calls.iter().zip(sums) {
            self.push_call(ord, call, &sum);
        }
        changes.push(ord, earlier);
    }

    fn push_call(&mut self, ord: i64, call: &NewCall, sum: &Sum<'_>) {
        let asks = matches!(call.begins, CallBegin::Waits { approval: true, .. });
        let approval = if asks {
            Approval::Asked
        } else {
            Approval::None
        };
        self.ords.push(ord);
        self.ids.push(text(&call.call_id).into_owned());
        self.rounds.push(call.round);
        self.places.push(call.place);
        self.names.push(text(&call.name).into_owned());
        self.arguments.push(json(&call.arguments));
        self.repeats.push(call.repeat.as_str());
        self.approvals.push(approval.as_str());
        self.starts.push(sum.starts);
        self.waits_on.push(sum.waits_on.map(WaitingOn::as_str));
        self.deadlines.push(sum.deadline_ms());
        self.said.push(sum.said());
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.ords)
            .bind(self.ids)
            .bind(self.rounds)
            .bind(self.places)
            .bind(self.names)
            .bind(self.arguments)
            .bind(self.repeats)
            .bind(self.approvals)
            .bind(self.starts)
            .bind(self.waits_on)
            .bind(self.deadlines)
            .bind(self.said)
    }
}

/// Changes of earlier calls by several items.
#[derive(Debug, Default)]
pub(crate) struct ChangeColumns {
    ords: Vec<i64>,
    ids: Vec<String>,
    starts: Vec<i32>,
    waits_on: Vec<Option<&'static str>>,
    waited: Vec<bool>,
    deadlines: Vec<Option<i64>>,
    said: Vec<Option<String>>,
}

impl ChangeColumns {
    pub(crate) fn push<'a>(&mut self, ord: i64, changes: impl IntoIterator<Item = &'a CallChange>) {
        let mut sums: BTreeMap<&str, Sum<'_>> = BTreeMap::new();
        for change in changes {
            let sum = sums.entry(&change.call_id).or_default();
            sum.add(&change.change);
        }
        for (id, sum) in sums {
            self.ords.push(ord);
            self.ids.push(text(id).into_owned());
            self.starts.push(sum.starts);
            self.waits_on.push(sum.waits_on.map(WaitingOn::as_str));
            self.waited.push(sum.waited);
            self.deadlines.push(sum.deadline_ms());
            self.said.push(sum.said());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ords.is_empty()
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.ords)
            .bind(self.ids)
            .bind(self.starts)
            .bind(self.waits_on)
            .bind(self.waited)
            .bind(self.deadlines)
            .bind(self.said)
    }
}

/// Inbox items that are delivered by the messages of several items.
#[derive(Debug, Default)]
pub(crate) struct DeliveryColumns {
    ords: Vec<i64>,
    ids: Vec<String>,
    messages: Vec<i64>,
}

impl DeliveryColumns {
    pub(crate) fn push(&mut self, ord: i64, deliveries: &[Delivery]) {
        for delivery in deliveries {
            self.ords.push(ord);
            self.ids.push(text(&delivery.item_id).into_owned());
            self.messages.push(i64::from(delivery.message));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ords.is_empty()
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query.bind(self.ords).bind(self.ids).bind(self.messages)
    }
}

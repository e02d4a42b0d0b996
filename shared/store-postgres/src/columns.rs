//! Columns: the arrays as which a group's items are bound.

mod calls;
mod folds;
mod projections;

use std::borrow::Cow;

use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::NewMessage;
use mainspring_shared::step::StepRefs;
use mainspring_shared::store::{IdempotencyKey, Parent, SendTotals, UsageRow};
use mainspring_shared::workflow::run::RunLeaf;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::retry::PgQuery;

pub(crate) use calls::{CallColumns, ChangeColumns, DeliveryColumns};
pub(crate) use folds::{CopiedFolds, FoldColumns};
pub(crate) use projections::ProjectionColumns;

/// A stored value as JSON text.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("stored words are JSON objects with text as keys")
}

/// Text that Postgres can store: U+0000 becomes U+FFFD.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// The same for optional text.
pub(crate) fn maybe_text(value: Option<&str>) -> Option<String> {
    value.map(|value| text(value).into_owned())
}

/// Metadata for a JSONB column, which accepts U+0000 neither in names nor in strings.
pub(crate) fn metadata(members: &Map<String, Value>) -> String {
    let plain = json(members);
    if !plain.contains("\\u0000") {
        return plain;
    }
    let cleaned = members.iter().map(clean_member).collect::<Map<_, _>>();
    json(&cleaned)
}

fn clean_member((name, value): (&String, &Value)) -> (String, Value) {
    (text(name).into_owned(), clean(value))
}

fn clean(value: &Value) -> Value {
    match value {
        Value::String(string) => Value::String(text(string).into_owned()),
        Value::Array(values) => Value::Array(values.iter().map(clean).collect()),
        Value::Object(members) => Value::Object(members.iter().map(clean_member).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The number of an item in its group, counted from 1 like `WITH ORDINALITY`.
pub(crate) fn ord(index: usize) -> i64 {
    index as i64 + 1
}

/// Idempotency keys.
#[derive(Debug, Default)]
pub(crate) struct KeyColumns {
    tenants: Vec<Option<i32>>,
    routes: Vec<Option<String>>,
    keys: Vec<Option<String>>,
    hashes: Vec<Option<Vec<u8>>>,
}

impl KeyColumns {
    pub(crate) fn push(&mut self, key: Option<&IdempotencyKey>) {
        self.tenants.push(key.map(|key| key.tenant.0));
        self.routes
            .push(key.map(|key| text(&key.route).into_owned()));
        self.keys.push(key.map(|key| text(&key.key).into_owned()));
        self.hashes.push(key.map(|key| key.body_hash.to_vec()));
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.tenants)
            .bind(self.routes)
            .bind(self.keys)
            .bind(self.hashes)
    }
}

/// The leases under which items write, and their sends.
#[derive(Debug, Default)]
pub(crate) struct LeaseColumns {
    tenants: Vec<i32>,
    sessions: Vec<Uuid>,
    boots: Vec<Uuid>,
    tokens: Vec<Uuid>,
    sends: Vec<Uuid>,
}

impl LeaseColumns {
    pub(crate) fn push(&mut self, key: SessionKey, lease: Lease, send: SendId) {
        self.tenants.push(key.tenant.0);
        self.sessions.push(key.session.0);
        self.boots.push(lease.boot.0);
        self.tokens.push(lease.token.0);
        self.sends.push(send.0);
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.tenants)
            .bind(self.sessions)
            .bind(self.boots)
            .bind(self.tokens)
            .bind(self.sends)
    }
}

/// Totals of sends.
#[derive(Debug, Default)]
pub(crate) struct TotalColumns {
    usage: Vec<String>,
    rounds: Vec<i32>,
    attempts: Vec<i32>,
    spent: Vec<Option<String>>,
}

impl TotalColumns {
    pub(crate) fn push(&mut self, totals: &SendTotals) {
        self.usage.push(json(&totals.spending()));
        self.rounds.push(totals.rounds);
        self.attempts.push(totals.attempts);
        self.spent.push(totals.session.as_ref().map(json));
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.usage)
            .bind(self.rounds)
            .bind(self.attempts)
            .bind(self.spent)
    }
}

/// Messages of several items.
#[derive(Debug, Default)]
pub(crate) struct MessageColumns {
    ords: Vec<i64>,
    places: Vec<i64>,
    roles: Vec<&'static str>,
    contents: Vec<String>,
    tool_calls: Vec<Option<String>>,
    call_ids: Vec<Option<String>>,
    names: Vec<Option<String>>,
    failed: Vec<bool>,
    rounds: Vec<i32>,
    asked_back: Vec<Option<i64>>,
}

impl MessageColumns {
    pub(crate) fn push(&mut self, ord: i64, messages: &[NewMessage]) {
        for (place, message) in (0..).zip(messages) {
            self.ords.push(ord);
            self.places.push(place);
            self.roles.push(message.role.as_str());
            self.contents.push(json(&message.content));
            let calls = &message.tool_calls;
            self.tool_calls
                .push((!calls.is_empty()).then(|| json(calls)));
            self.call_ids
                .push(maybe_text(message.tool_call_id.as_deref()));
            self.names.push(maybe_text(message.name.as_deref()));
            self.failed.push(message.failed);
            self.rounds.push(message.round);
            self.asked_back.push(message.asked_back.map(i64::from));
        }
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.ords)
            .bind(self.places)
            .bind(self.roles)
            .bind(self.contents)
            .bind(self.tool_calls)
            .bind(self.call_ids)
            .bind(self.names)
            .bind(self.failed)
            .bind(self.rounds)
            .bind(self.asked_back)
    }
}

/// Usage rows of several items.
#[derive(Debug, Default)]
pub(crate) struct UsageColumns {
    ords: Vec<i64>,
    rounds: Vec<i32>,
    attempts: Vec<i32>,
    models: Vec<String>,
    usage: Vec<String>,
}

impl UsageColumns {
    pub(crate) fn push(&mut self, ord: i64, rows: &[UsageRow]) {
        for row in rows {
            self.ords.push(ord);
            self.rounds.push(row.round);
            self.attempts.push(row.attempt);
            self.models.push(text(&row.model).into_owned());
            self.usage.push(json(&row.usage));
        }
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.ords)
            .bind(self.rounds)
            .bind(self.attempts)
            .bind(self.models)
            .bind(self.usage)
    }
}

/// Parents of sessions.
#[derive(Debug, Default)]
pub(crate) struct ParentColumns {
    sessions: Vec<Option<Uuid>>,
    calls: Vec<Option<String>>,
    roots: Vec<Option<Uuid>>,
    depths: Vec<Option<i32>>,
}

impl ParentColumns {
    pub(crate) fn push(&mut self, parent: Option<&Parent>) {
        self.sessions.push(parent.map(|parent| parent.session.0));
        self.calls
            .push(parent.map(|parent| text(&parent.call_id).into_owned()));
        self.roots.push(parent.map(|parent| parent.root.0));
        self.depths.push(parent.map(|parent| parent.depth));
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.sessions)
            .bind(self.calls)
            .bind(self.roots)
            .bind(self.depths)
    }
}

/// The leaves of runs that sends belong to.
#[derive(Debug, Default)]
pub(crate) struct LeafColumns {
    runs: Vec<Option<Uuid>>,
    paths: Vec<Option<String>>,
    attempts: Vec<Option<i32>>,
}

impl LeafColumns {
    pub(crate) fn push(&mut self, leaf: Option<&RunLeaf>) {
        self.runs.push(leaf.map(|leaf| leaf.run.0));
        self.paths
            .push(leaf.map(|leaf| text(&leaf.path).into_owned()));
        self.attempts.push(leaf.map(|leaf| leaf.attempt));
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query.bind(self.runs).bind(self.paths).bind(self.attempts)
    }
}

/// The members of a step's references that are known before its messages are numbered, as JSON text
/// without braces. The statement puts `first_seq` in front.
pub(crate) fn ref_members(messages: usize, refs: &StepRefs) -> String {
    let messages = (messages > 0).then(|| format!("\"messages\":{messages}"));
    let round = refs.round.as_ref();
    let round = round.map(|round| format!("\"round\":{}", json(round)));
    let fold = refs.fold.as_ref();
    let fold = fold.map(|fold| format!("\"fold\":{}", json(fold)));
    [messages, round, fold]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_jsonb_cannot_store_is_replaced_wherever_it_stands() {
        let members = json!({ "a\0": ["x\0", { "b": "\0" }], "c": "\\u0000" });
        let members = members.as_object().expect("an object");
        let stored: Value = serde_json::from_str(&metadata(members)).expect("is JSON");
        let expected = json!({
            "a\u{fffd}": ["x\u{fffd}", { "b": "\u{fffd}" }],
            "c": "\\u0000",
        });
        assert_eq!(stored, expected);
    }

    #[test]
    fn the_members_of_references_are_json_with_braces_around() {
        let round = mainspring_shared::step::RoundRef {
            index: 0,
            model: "m\"".to_owned(),
            usage: mainspring_shared::usage::Usage::default(),
            digest: None,
            folded: None,
            aged_to: None,
            recalled: None,
        };
        let fold = mainspring_shared::session::fold::FoldRef {
            from_seq: 1,
            to_seq: 9,
            kind: mainspring_shared::session::fold::FoldKind::Summary,
            tokens_before: 100,
            tokens_after: 10,
        };
        for messages in [0, 2] {
            for (round, fold) in [(None, None), (Some(&round), None), (None, Some(fold))] {
                let refs = StepRefs {
                    messages: messages as u32,
                    round: round.cloned(),
                    fold,
                    ..StepRefs::default()
                };
                let text = format!("{{{}}}", ref_members(messages, &refs));
                let read: StepRefs = serde_json::from_str(&text).expect(&text);
                assert_eq!(read, refs);
            }
        }
    }
}

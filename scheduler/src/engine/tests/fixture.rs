//! A fixture with one run, whose leaves end as scripted and in an order chosen by the test.

use std::collections::BTreeMap;

use mainspring_shared::budget::Spent;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{RunId, RunKey, SendId, SessionId, TenantId};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendStatus, StopReason};
use mainspring_shared::time::Timestamp;
use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::run::{
    Advance, DSL_VERSION, LeafEnd, LeafStart, NodeRecord, NodeState, RunAsk, RunCounts, RunEvent,
    RunOptions, RunRecord, RunStatus,
};
use mainspring_shared::workflow::validate::validate;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::Run;

/// How leaves end, depending on path and attempt.
pub(super) type Script = dyn Fn(&LeafStart) -> LeafEnd;

/// A leaf in flight.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) start: LeafStart,
    pub(super) send: SendId,
    pub(super) cancelled: bool,
}

pub(super) struct Fixture {
    pub(super) run: Run,
    pub(super) live: Vec<Live>,
    pub(super) now: Timestamp,
    pub(super) started: Vec<(String, i32, String)>,
    pub(super) live_most: usize,
    /// Whether the run is dropped and reloaded after every advance.
    pub(super) crashes: bool,
    /// Whether every advance is compared with what is stored, which costs time proportional to the
    /// run's width.
    checks: bool,
    ids: u128,
    nodes: BTreeMap<String, NodeRecord>,
}

pub(super) fn record(spec: &Value, input: Value, options: RunOptions) -> RunRecord {
    let spec = validate(spec).unwrap_or_else(|problems| panic!("{problems:#?}"));
    RunRecord {
        key: RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(Uuid::from_u128(1)),
        },
        name: spec.envelope.name.clone(),
        status: RunStatus::Queued,
        spec: spec.to_value(),
        dsl_version: DSL_VERSION,
        input,
        options,
        session: None,
        reports_to: None,
        depth: 0,
        attempt: 1,
        result: None,
        error: None,
        usage: Usage::default(),
        counts: RunCounts::default(),
        alarm_at: None,
        created_at: Timestamp(0),
        started_at: None,
        finished_at: None,
    }
}

pub(super) fn envelope(root: &Value) -> Value {
    json!({"name": "test", "root": root})
}

pub(super) fn agent(id: &str, more: &Value) -> Value {
    let mut node = json!({"type": "agent", "id": id, "spec": {"name": id, "system_prompt": "p"}});
    for (key, value) in more.as_object().expect("members") {
        node[key] = value.clone();
    }
    node
}

pub(super) fn says(text: &str) -> LeafEnd {
    LeafEnd {
        send: SendId(Uuid::nil()),
        status: SendStatus::Completed,
        stop_reason: StopReason::End,
        text: Some(text.to_owned()),
        value: serde_json::from_str(text).ok().filter(Value::is_object),
        error: None,
        usage: Usage {
            input_tokens: 10,
            output_tokens: 5,
            ..Usage::default()
        },
        kept: Spent {
            rounds: 1,
            ..Spent::default()
        },
        todo_left: false,
    }
}

/// A leaf that used up its rounds; `todo_left` says whether its list has open entries.
pub(super) fn cut(todo_left: bool) -> LeafEnd {
    LeafEnd {
        stop_reason: StopReason::RoundLimit,
        todo_left,
        ..says("so far")
    }
}

pub(super) fn fails(message: &str) -> LeafEnd {
    LeafEnd {
        status: SendStatus::Failed,
        stop_reason: StopReason::ProviderError,
        text: None,
        value: None,
        error: Some(Failure::new(Code::LlmUnavailable, message)),
        ..says("")
    }
}

pub(super) fn was_cancelled() -> LeafEnd {
    LeafEnd {
        status: SendStatus::Cancelled,
        stop_reason: StopReason::Cancelled,
        text: None,
        value: None,
        ..says("")
    }
}

pub(super) fn said(start: &LeafStart) -> String {
    plain_text(&start.input)
}

impl Fixture {
    pub(super) fn new(spec: &Value) -> Self {
        Self::with(spec, json!("in"), RunOptions::default())
    }

    pub(super) fn with(spec: &Value, input: Value, options: RunOptions) -> Self {
        Self::open(spec, input, options, true, None)
    }

    /// A run that may have this many leaves beside the tenant's other runs.
    pub(super) fn slot_retries(spec: &Value, live_max: u32) -> Self {
        let options = RunOptions::default();
        Self::open(spec, json!("in"), options, true, Some(live_max))
    }

    pub(super) fn lean(spec: &Value, input: Value, options: RunOptions) -> Self {
        Self::open(spec, input, options, false, None)
    }

    fn open(
        spec: &Value,
        input: Value,
        options: RunOptions,
        checks: bool,
        live_max: Option<u32>,
    ) -> Self {
        Self::begin(record(spec, input, options), checks, live_max)
    }

    /// A run loaded from its record.
    pub(super) fn of(record: RunRecord) -> Self {
        Self::begin(record, true, None)
    }

    fn begin(record: RunRecord, checks: bool, live_max: Option<u32>) -> Self {
        let mut run = Run::load(record, Vec::new()).expect("loads");
        run.limit_live(live_max);
        let mut fixture = Self {
            run,
            live: Vec::new(),
            now: Timestamp(1_000),
            started: Vec::new(),
            live_most: 0,
            crashes: false,
            checks,
            ids: 100,
            nodes: BTreeMap::new(),
        };
        fixture.feed(vec![RunEvent::Looked]);
        fixture
    }

    /// Advances the run as a store would.
    pub(super) fn feed(&mut self, events: Vec<RunEvent>) -> Advance {
        let advance = self.run.advance(events, self.now);
        for start in &advance.start {
            self.ids += 1;
            let send = SendId(Uuid::from_u128(self.ids));
            let there = start.resume_in.as_ref().map(|there| there.session);
            let session = there.unwrap_or(SessionId(Uuid::from_u128(self.ids)));
            self.run.started(&start.path, session, send);
            self.started
                .push((start.path.clone(), start.attempt, said(start)));
            self.live.push(Live {
                start: start.clone(),
                send,
                cancelled: false,
            });
        }
        for send in &advance.cancel {
            let live = self.live.iter_mut().find(|live| live.send == *send);
            live.expect("only live sends are cancelled").cancelled = true;
        }
        self.live_most = self.live_most.max(self.live.len());
        for path in &advance.changed {
            let node = self.run.node(path).expect("changed nodes are there");
            self.nodes.insert(path.clone(), node.clone());
        }
        if !self.checks {
            return advance;
        }
        let stored: Vec<_> = self.run.nodes().cloned().collect();
        assert_eq!(stored.len(), self.nodes.len(), "every node is stored");
        for node in &stored {
            assert_eq!(
                self.nodes.get(&node.path),
                Some(node),
                "what changed is told"
            );
        }
        if self.crashes {
            self.reload();
        }
        advance
    }

    pub(super) fn reload(&mut self) {
        let nodes = self.nodes.values().cloned().collect();
        self.run = Run::load(self.run.record().clone(), nodes).expect("loads");
    }

    /// Ends the leaf at an index among those in flight.
    pub(super) fn end(&mut self, place: usize, end: LeafEnd) -> Advance {
        let event = self.take(place, end);
        self.feed(vec![event])
    }

    pub(super) fn take(&mut self, place: usize, end: LeafEnd) -> RunEvent {
        let live = self.live.remove(place);
        let end = if live.cancelled { was_cancelled() } else { end };
        RunEvent::LeafEnded {
            path: live.start.path,
            attempt: live.start.attempt,
            end: LeafEnd {
                send: live.send,
                ..end
            },
        }
    }

    /// Ends the leaf with this path, which must be in flight.
    pub(super) fn answer(&mut self, path: &str, end: LeafEnd) -> Advance {
        let place = self.live.iter().position(|live| live.start.path == path);
        let paths: Vec<_> = self
            .live
            .iter()
            .map(|live| live.start.path.clone())
            .collect();
        let place = place.unwrap_or_else(|| panic!("{path} is not among {paths:?}"));
        self.end(place, end)
    }

    pub(super) fn ask(&mut self, ask: RunAsk) -> Advance {
        self.feed(vec![RunEvent::Asked(ask)])
    }

    /// Continues, in an order chosen by `choose`, until the run is final or nothing moves.
    pub(super) fn finish(&mut self, script: &Script, mut choose: impl FnMut(usize) -> usize) {
        for _ in 0..100_000 {
            if self.run.record().status.is_final() && self.live.is_empty() {
                return;
            }
            if self.live.is_empty() {
                let Some(alarm) = self.run.record().alarm_at else {
                    panic!("nothing moves: {:#?}", self.run);
                };
                assert!(alarm > self.now, "an alarm is never in the past");
                self.now = alarm;
                self.feed(vec![RunEvent::Looked]);
                continue;
            }
            let place = choose(self.live.len());
            let end = script(&self.live[place].start);
            self.end(place, end);
        }
        panic!("the run does not end");
    }

    pub(super) fn paths(&self) -> Vec<&str> {
        self.live
            .iter()
            .map(|live| live.start.path.as_str())
            .collect()
    }

    pub(super) fn state(&self, path: &str) -> NodeState {
        self.run
            .node(path)
            .unwrap_or_else(|| panic!("{path}"))
            .state
    }

    pub(super) fn status(&self) -> RunStatus {
        self.run.record().status
    }

    pub(super) fn text(&self) -> &str {
        let result = self.run.record().result.as_ref().expect("a result");
        result["text"].as_str().expect("a text")
    }

    pub(super) fn code(&self) -> Option<Code> {
        self.run.record().error.as_ref().map(|error| error.code)
    }
}

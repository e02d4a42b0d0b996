//! Random specs, random ends of leaves in random order, and a crash after every step.

use std::hash::{DefaultHasher, Hash, Hasher};

use mainspring_shared::workflow::nodes::Body;
use mainspring_shared::workflow::run::{
    LeafEnd, LeafStart, NodeState, RunAsk, RunEvent, RunOptions, RunStatus,
};
use mainspring_shared::workflow::validate::validate;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{Fixture, agent, envelope, fails, said, says};
use super::model::{End, Model};
use crate::engine::tests::is_leaf;

pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Builds specs in which every reference has a value.
struct Maker {
    dice: Dice,
    ids: u32,
}

/// What may be referred to: variables, and nodes with the members `k` and `items`.
#[derive(Clone, Default)]
struct Known {
    vars: Vec<String>,
    nodes: Vec<String>,
}

impl Maker {
    fn id(&mut self) -> String {
        self.ids += 1;
        format!("n{}", self.ids)
    }

    fn pick<'a>(&mut self, from: &'a [String]) -> Option<&'a String> {
        let place = self.dice.below(from.len().max(1) as u64);
        from.get(place as usize)
    }

    fn template(&mut self, known: &Known) -> String {
        let mut out = "in {{input}}".to_owned();
        if self.dice.chance(60)
            && let Some(var) = self.pick(&known.vars)
        {
            out.extend([" var {{", var, "}}"]);
        }
        if self.dice.chance(50)
            && let Some(node) = self.pick(&known.nodes)
        {
            let key = if self.dice.chance(50) { "" } else { ".k" };
            out.extend([" node {{", node, key, "}}"]);
        }
        out
    }

    fn leaf(&mut self, known: &mut Known, plain: bool) -> Value {
        let id = self.id();
        let mut more = json!({"input": self.template(known)});
        if self.dice.chance(20)
            && let Some(node) = self.pick(&known.nodes)
        {
            more["inputs_from"] = json!([node]);
        }
        if self.dice.chance(15)
            && let Some(node) = self.pick(&known.nodes)
        {
            more["when"] = json!({"ref": format!("{node}.k"), "op": "ne", "value": 1});
        }
        if !plain {
            if self.dice.chance(25) {
                let backoff = ["0s", "1s"][self.dice.below(2) as usize];
                more["retry"] = json!({"max_attempts": 2, "backoff": backoff});
            }
            if self.dice.chance(20) {
                more["continue_on_error"] = json!(true);
            }
            if self.dice.chance(20) {
                more["fallback"] = self.leaf(&mut known.clone(), true);
            }
        }
        known.nodes.push(id.clone());
        agent(&id, &more)
    }

    fn node(&mut self, depth: u32, known: &mut Known) -> Value {
        let kind = if depth == 0 { 0 } else { self.dice.below(10) };
        match kind {
            1..=3 => {
                let steps: Vec<_> = (0..=self.dice.below(3))
                    .map(|_| self.node(depth - 1, known))
                    .collect();
                json!({"type": "sequence", "steps": steps})
            }
            4 => {
                let halt = self.dice.chance(50);
                let before = known.nodes.len();
                let mut all = known.clone();
                let branches = (0..=self.dice.below(3)).map(|_| {
                    let mut own = known.clone();
                    let node = self.node(depth - 1, &mut own);
                    all.nodes.extend(own.nodes.drain(before..));
                    node
                });
                let branches: Vec<_> = branches.collect();
                // What a failure below a tolerant node leaves undone depends on the order.
                if halt {
                    *known = all;
                }
                let word = if halt { "halt" } else { "continue" };
                json!({"type": "parallel", "branches": branches, "on_error": word,
                       "max_concurrency": 1 + self.dice.below(3)})
            }
            5 | 6 => self.foreach(depth, known),
            7 if !known.nodes.is_empty() => self.branch(depth, known),
            8 => {
                let id = self.id();
                let mut own = known.clone();
                own.vars.push("iteration".to_owned());
                own.vars.push("previous".to_owned());
                let body = self.leaf(&mut own, false);
                let until = format!("{}.k", body["id"].as_str().expect("an id"));
                json!({"type": "loop", "id": id, "body": body, "max_iterations": 1 + self.dice.below(3),
                       "until": {"ref": until, "op": "eq", "value": 0}, "on_exhausted": "continue"})
            }
            9 => {
                let id = self.id();
                let root = self.node(depth - 1, &mut Known::default());
                json!({"type": "workflow", "id": id, "input": self.template(known),
                       "spec": {"name": "inner", "root": root}})
            }
            _ if self.dice.chance(10) => json!({"type": "wait", "seconds": 1 + self.dice.below(3)}),
            _ => self.leaf(known, false),
        }
    }

    fn foreach(&mut self, depth: u32, known: &mut Known) -> Value {
        let id = self.id();
        let var = format!("v{}", self.ids);
        let mut own = known.clone();
        own.vars.push(var.clone());
        own.vars.push(format!("{var}_index"));
        let on_error = ["halt", "continue"][self.dice.below(2) as usize];
        let mut out = json!({"type": "foreach", "as": var,
            "body": self.node(depth - 1, &mut own),
            "parallel": self.dice.chance(70), "max_concurrency": 1 + self.dice.below(3),
            "on_error": on_error});
        // A node that was skipped or failed has no list, and the message with which the fan-out
        // then fails depends on the reason. So the lists are literals.
        let items: Vec<_> = (0..self.dice.below(5)).map(|n| format!("i{n}")).collect();
        out["items"] = json!(items);
        if self.dice.chance(70) {
            out["id"] = json!(id);
        }
        out
    }

    fn branch(&mut self, depth: u32, known: &mut Known) -> Value {
        // Depends on the input, which always exists.
        let key = ["in", "other"][self.dice.below(2) as usize];
        let mut own = known.clone();
        let case = self.node(depth - 1, &mut own);
        let default = self.node(depth - 1, &mut known.clone());
        json!({"type": "branch", "on": "input", "cases": {key: case}, "default": default})
    }
}

/// How a leaf ends, given its name, its attempt and its input.
fn leaf(seed: u64, key: &str, attempt: i32, input: &str) -> Option<(String, Option<Value>)> {
    let mut hasher = DefaultHasher::new();
    (seed, key, attempt).hash(&mut hasher);
    let drawn = hasher.finish();
    if drawn % 100 < seed % 30 {
        return None;
    }
    input.hash(&mut hasher);
    let payload = json!({"k": drawn % 3, "h": hasher.finish() % 100_000});
    Some((payload.to_string(), Some(payload)))
}

/// The name that both interpreters use for a leaf: its ID, and the iterations around it.
fn key_of(path: &str) -> String {
    let rounds = path
        .split('/')
        .filter_map(|segment| segment.find('[').map(|at| &segment[at..]));
    rounds.collect()
}

fn end_of(seed: u64, bed_id: &str, start: &LeafStart) -> LeafEnd {
    let key = format!("{bed_id}{}", key_of(&start.path));
    match leaf(seed, &key, start.attempt, &said(start)) {
        Some((text, _)) => says(&text),
        None => fails("away"),
    }
}

fn finished(spec: &Value, seed: u64, order: u64, crashes: bool) -> Fixture {
    let options = RunOptions {
        max_concurrency: Some(1 + (seed % 5) as u32),
        ..RunOptions::default()
    };
    let mut fixture = Fixture::with(spec, json!("in"), options);
    fixture.crashes = crashes;
    let mut dice = Dice(order);
    let script = move |start: &LeafStart| {
        let id = start.agent.name.clone().unwrap_or_default();
        end_of(seed, &id, start)
    };
    fixture.finish(&script, |width| dice.below(width as u64) as usize);
    assert!(
        fixture.live_most <= 1 + (seed % 5) as usize,
        "the gate of the run holds"
    );
    fixture
}

fn check_end(fixture: &Fixture) {
    let record = fixture.run.record();
    let leaves = fixture
        .run
        .nodes()
        .filter(|node| is_leaf(node.kind))
        .count() as u32;
    let counts = record.counts;
    assert_eq!(counts.live, 0);
    assert_eq!(counts.leaves, leaves);
    assert_eq!(
        counts.completed + counts.failed + counts.cancelled + counts.skipped,
        leaves
    );
    for node in fixture.run.nodes() {
        assert!(node.state.is_settled(), "{} is {:?}", node.path, node.state);
        assert!(node.reserved.is_nothing());
        let bad = matches!(node.state, NodeState::Failed | NodeState::Cancelled);
        if bad && record.status == RunStatus::Completed {
            let mut place = Some(node.path.as_str());
            let mut tolerated = false;
            while let Some(path) = place {
                tolerated |= fixture.run.node(path).is_some_and(|node| {
                    // A leaf with a fallback tolerates a failure even if the fallback failed too,
                    // or if it took over.
                    node.tolerated || (node.state == NodeState::Completed && is_leaf(node.kind))
                });
                place = mainspring_shared::workflow::path::parent(path);
            }
            assert!(tolerated, "{} failed, and nobody tolerated it", node.path);
        }
    }
}

fn made(seed: u64) -> Value {
    let mut maker = Maker {
        dice: Dice(seed),
        ids: 0,
    };
    envelope(&maker.node(4, &mut Known::default()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_runs_end_as_the_interpreter_says(seed in any::<u64>(), order in any::<u64>()) {
        let value = made(seed);
        let spec = validate(&value).unwrap_or_else(|problems| panic!("{problems:#?} in {value:#}"));
        prop_assert_eq!(&validate(&spec.to_value()).expect("the canonical form is valid"), &spec);
        let outcome = |key: &str, attempt: i32, input: &str| leaf(seed, key, attempt, input);
        let expected = Model { spec: &spec, leaf: &outcome }.run("in");
        let fixture = finished(&value, seed, order, false);
        check_end(&fixture);
        let record = fixture.run.record();
        match expected {
            End::Good(text, payload) => {
                prop_assert_eq!(record.status, RunStatus::Completed, "{:#}", value);
                prop_assert_eq!(record.result.clone(), Some(json!({"text": text, "payload": payload})), "{:#}", value);
            }
            End::Bad(true) | End::Skipped => prop_assert_eq!(record.status, RunStatus::Completed),
            End::Bad(false) => prop_assert_eq!(record.status, RunStatus::Failed, "{:#}", value),
        }
        let again = finished(&value, seed, order, true);
        prop_assert_eq!(again.run.record(), record, "a crash after each step changes nothing");
        let (a, b): (Vec<_>, Vec<_>) = (again.run.nodes().collect(), fixture.run.nodes().collect());
        prop_assert_eq!(a, b);
        let other = finished(&value, seed, order.wrapping_add(1), true);
        prop_assert_eq!(other.run.record().status, record.status);
        prop_assert_eq!(&other.run.record().result, &record.result);
    }

    #[test]
    fn interrupted_runs_end_like_others_once_retried(
        seed in any::<u64>(), order in any::<u64>(), crashes in any::<bool>(), batches in any::<bool>(),
    ) {
        // No leaf fails by itself, so only the interruptions make a difference.
        let seed = seed - seed % 30;
        let value = made(seed);
        let calm = finished(&value, seed, order, false);
        prop_assert_eq!(calm.status(), RunStatus::Completed);
        let mut fixture = Fixture::with(&value, json!("in"), RunOptions::default());
        fixture.crashes = crashes;
        interrupt(&mut fixture, seed, order, batches);
        check_end(&fixture);
        prop_assert_eq!(fixture.status(), RunStatus::Completed, "{:#}", value);
        prop_assert_eq!(&fixture.run.record().result, &calm.run.record().result, "{:#}", value);
        let mut done: Vec<_> = fixture.started.iter().map(|(path, _, input)| (path, input)).collect();
        let mut expected: Vec<_> = calm.started.iter().map(|(path, _, input)| (path, input)).collect();
        done.sort();
        done.dedup();
        expected.sort();
        prop_assert_eq!(done, expected, "every leaf is told the same each time");
    }
}

/// Cancels the run and some of its nodes at random, and retries it each time.
fn interrupt(fixture: &mut Fixture, seed: u64, order: u64, batches: bool) {
    let mut dice = Dice(order);
    let mut patience = 6;
    let mut settled_before: Vec<String> = Vec::new();
    for _ in 0..10_000 {
        for path in &settled_before {
            let node = fixture.run.node(path).expect("a node stays");
            assert_eq!(node.state, NodeState::Completed, "{path} ran again");
        }
        if fixture.status().is_final() {
            if fixture.status() == RunStatus::Completed {
                return;
            }
            check_end(fixture);
            settled_before = fixture
                .run
                .nodes()
                .filter(|node| is_leaf(node.kind) && node.state == NodeState::Completed)
                .map(|node| node.path.clone())
                .collect();
            let advance = fixture.ask(RunAsk::Retry { max_tokens: None });
            assert!(advance.refused.is_empty());
            continue;
        }
        if patience > 0 && dice.below(8) == 0 {
            patience -= 1;
            fixture.ask(RunAsk::Cancel { reason: None });
            continue;
        }
        if patience > 0 && !fixture.live.is_empty() && dice.below(8) == 0 {
            // Only if the failure reaches the run: a tolerant node would stop it.
            let path = fixture.live[0].start.path.clone();
            if !fixture.live[0].cancelled && !is_tolerated_above(fixture, &path) {
                patience -= 1;
                fixture.ask(RunAsk::CancelNode { path });
                continue;
            }
        }
        if patience > 0 && dice.below(8) == 0 {
            patience -= 1;
            fixture.ask(RunAsk::Pause { at: fixture.now });
        }
        if fixture.live.is_empty() {
            if fixture.run.record().options.paused_at.is_some() {
                fixture.ask(RunAsk::Resume);
                continue;
            }
            fixture.now = fixture
                .run
                .record()
                .alarm_at
                .expect("something to wait for");
            fixture.feed(vec![RunEvent::Looked]);
            continue;
        }
        let width = if batches {
            1 + dice.below(fixture.live.len() as u64)
        } else {
            1
        };
        let mut events = Vec::new();
        for _ in 0..width {
            let place = dice.below(fixture.live.len() as u64) as usize;
            // A leaf that runs again gives the same answer.
            let mut start = fixture.live[place].start.clone();
            start.attempt = 1;
            let id = start.agent.name.clone().unwrap_or_default();
            events.push(fixture.take(place, end_of(seed, &id, &start)));
        }
        fixture.feed(events);
    }
    panic!("the run does not end: {:#?}", fixture.run);
}

fn is_tolerated_above(fixture: &Fixture, path: &str) -> bool {
    let above = std::iter::successors(Some(path), |path| {
        mainspring_shared::workflow::path::parent(path)
    });
    above.skip(1).any(|path| match fixture.run.body_at(path) {
        Some(Body::Parallel(node)) => !node.fan.halt,
        Some(Body::Foreach(node)) => !node.fan.halt,
        _ => false,
    })
}

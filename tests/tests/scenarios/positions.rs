//! A fault before and after every single write: of the worked example, and of a send with calls of
//! every kind, a child, a question and a message in between. In the end the store holds what it
//! would without the fault.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{Role, plain_text};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{CallAnswer, DeliverOutcome};
use mainspring_shared::tool::{CallResult, ToolEntry, call_id};
use mainspring_shared::workflow::run::RunStatus;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World, alone, differences, essence};
use serde_json::{Value, json};

fn dies(fault: Fault) -> bool {
    matches!(fault, Fault::DieBefore | Fault::DieAfter)
}

/// Asserts that the store holds what it would without the fault.
fn same(found: &Outcome, sound: &Outcome, plan: FaultPlan) {
    let differ = differences(&found.essence, &sound.essence);
    let struck = found.struck;
    assert!(differ.is_empty(), "{plan:?} at {struck:?}: {differ:#?}");
}

/// The outcome of a disturbed system.
struct Outcome {
    essence: Value,
    /// Number of model calls, by the user's text.
    asked: BTreeMap<String, usize>,
    /// The write that was disturbed; `None` if the end came before.
    struck: Option<&'static str>,
}

fn asked(world: &World) -> BTreeMap<String, usize> {
    let mut asked = BTreeMap::new();
    for call in world.script.ledger() {
        *asked.entry(call.user).or_default() += 1;
    }
    asked
}

/// The number of extra model calls compared with an undisturbed system, for each text that has any.
///
/// # Panics
/// If a text is missing, or there is an unexpected one.
fn extra_model_calls(
    found: &BTreeMap<String, usize>,
    expected: &BTreeMap<String, usize>,
) -> Vec<usize> {
    let texts = |all: &BTreeMap<String, usize>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(texts(found), texts(expected));
    let more = found.iter().map(|(text, times)| times - expected[text]);
    more.filter(|times| *times > 0).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Whose {
    Scheduler,
    Worker,
}

/// The worked example, with a plan of four subtopics, of which three are researched concurrently.
fn research() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/workflows/research.json");
    let text = std::fs::read_to_string(path).expect("the example is there");
    let mut spec: Value = serde_json::from_str(&text).expect("it is JSON");
    let plan = json!({ "subtopics": ["leaves", "water", "cups", "milk"] }).to_string();
    spec["root"]["steps"][0]["input"] = json!(format!("answers {}", json!([plan])));
    spec
}

/// Number of its leaves that may run at once.
const AT_ONCE: usize = 3;

/// A scheduler and a worker, of which one has a fault.
struct Disturbed {
    world: World,
    faulty: Arc<Faulty>,
    whose: Whose,
    plan: FaultPlan,
}

impl Disturbed {
    async fn start(whose: Whose, plan: FaultPlan) -> Self {
        let world = World::new().await;
        let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
        let sound = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
        let (scheduler, worker) = match whose {
            Whose::Scheduler => (faulty.clone(), sound),
            Whose::Worker => (sound, faulty.clone()),
        };
        world.scheduler("first", scheduler).await;
        world.worker("first", worker);
        Self {
            world,
            faulty,
            whose,
            plan,
        }
    }

    /// Starts a replacement for a process that may be dead. Not earlier, so that the first process
    /// reaches every position.
    async fn replace(&self) {
        if !dies(self.plan.fault) {
            return;
        }
        self.world.pass(Duration::from_secs(2)).await;
        let store = self.world.store.clone();
        match self.whose {
            Whose::Scheduler => drop(self.world.scheduler("second", store).await),
            Whose::Worker => drop(self.world.worker("second", store)),
        }
    }

    /// The outcome. Whatever happens after the end must not change it.
    async fn outcome(self) -> Outcome {
        let struck = self.faulty.failed_method();
        self.world.pass(Duration::from_secs(20)).await;
        self.world.audit().await;
        Outcome {
            essence: essence(&self.world.dump().await),
            asked: asked(&self.world),
            struck,
        }
    }
}

async fn worked_example(whose: Whose, plan: FaultPlan) -> Outcome {
    let disturbed = Disturbed::start(whose, plan).await;
    let key = disturbed.world.start_run(&research(), None).await;
    disturbed.replace().await;
    let run = disturbed.world.settle_run(key).await;
    assert_eq!(run.status, RunStatus::Completed, "{plan:?}: {run:#?}");
    disturbed.outcome().await
}

/// Runs every fault at every position until the end comes first; returns the writes that were
/// struck.
fn at_every_write(
    least: usize,
    mut check: impl FnMut(FaultPlan) -> Option<&'static str>,
) -> BTreeSet<&'static str> {
    let mut struck = BTreeSet::new();
    for fault in Fault::ALL {
        let mut reached = 0;
        while let Some(write) = check(FaultPlan { at: reached, fault }) {
            struck.insert(write);
            reached += 1;
        }
        assert!(reached >= least, "{fault:?} at {reached} positions only");
    }
    struck
}

/// Runs the worked example with a fault of one process; returns the write that was struck, and the
/// repeated model calls.
fn disturbed_example(
    whose: Whose,
    plan: FaultPlan,
    sound: &Outcome,
) -> (Option<&'static str>, Vec<usize>) {
    let found = alone(worked_example(whose, plan));
    same(&found, sound, plan);
    (found.struck, extra_model_calls(&found.asked, &sound.asked))
}

fn sound_example() -> Outcome {
    let sound = alone(worked_example(Whose::Worker, FaultPlan::NEVER));
    assert_eq!(sound.asked.len(), 6, "a plan, four subjects, one page");
    assert!(sound.asked.values().all(|times| *times == 1));
    sound
}

#[test]
fn the_worked_example_survives_its_scheduler_at_every_write() {
    let sound = sound_example();
    let struck = at_every_write(20, |plan| {
        let (struck, extra) = disturbed_example(Whose::Scheduler, plan, &sound);
        // A scheduler makes no model calls, so no answer is lost with it.
        assert!(extra.is_empty(), "{plan:?} at {struck:?}: {extra:?}");
        struck
    });
    for write in ["claim_runs", "advance_runs"] {
        assert!(struck.contains(write), "{struck:?}");
    }
}

#[test]
fn the_worked_example_survives_its_worker_at_every_write() {
    let sound = sound_example();
    let mut repeated = 0;
    let struck = at_every_write(6, |plan| {
        let (struck, extra) = disturbed_example(Whose::Worker, plan, &sound);
        let most = if dies(plan.fault) { AT_ONCE } else { 0 };
        assert!(extra.len() <= most, "{plan:?} at {struck:?}: {extra:?}");
        assert!(
            extra.iter().all(|times| *times == 1),
            "{plan:?} at {struck:?}: {extra:?}"
        );
        repeated += extra.len();
        struck
    });
    assert!(repeated > 0, "no death fell between an answer and its end");
    for write in ["claim_sessions", "complete_sends"] {
        assert!(struck.contains(write), "{struck:?}");
    }
}

/// An agent starts a detached run, ends its turn, and is told of the run's end.
async fn detached(whose: Whose, plan: FaultPlan) -> Outcome {
    let disturbed = Disturbed::start(whose, plan).await;
    let world = &disturbed.world;
    let agent = AgentSpec {
        tools: vec![ToolEntry::Named("create_workflow".into())],
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let leaf = json!({ "type": "agent", "id": "leaf", "input": "look at {{n}}",
                       "spec": { "name": "a", "system_prompt": "work" } });
    let spec = json!({ "name": "aside", "root": { "type": "foreach", "id": "all", "as": "n",
                       "items": ["a", "b"], "body": leaf } });
    let call = json!([[["create_workflow", { "spec": spec, "detached": true }]]]);
    let id = world.send(key, &format!("plan {call}")).await;
    disturbed.replace().await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(
        record.status,
        SendStatus::Completed,
        "{plan:?}: {record:#?}"
    );
    for _ in 0..1_000 {
        if told(world, key, Role::Assistant).await > 0 {
            world.pass(Duration::from_secs(5)).await;
            for who in [Role::User, Role::Assistant] {
                assert_eq!(told(world, key, who).await, 1, "{plan:?}: {who:?}");
            }
            return disturbed.outcome().await;
        }
        world.pass(Duration::from_millis(500)).await;
    }
    panic!("{plan:?}: the agent is not told");
}

/// How often a role's messages mention the end of the session's run; the user's do when it is
/// reported.
async fn told(world: &World, key: SessionKey, who: Role) -> usize {
    let sessions = world.dump().await.sessions;
    let session = sessions.into_iter().find(|session| session.key == key);
    let messages = session.expect("it exists").messages;
    let said = messages.iter().filter(|message| message.role == who);
    let texts = said.map(|message| plain_text(&message.content));
    texts
        .filter(|text| text.contains("has ended: completed."))
        .count()
}

#[test]
fn the_agent_of_a_detached_run_is_told_of_its_end_once_whatever_dies() {
    let sound = alone(detached(Whose::Worker, FaultPlan::NEVER));
    assert_eq!(sound.essence["sessions"].as_array().map(Vec::len), Some(3));
    for whose in [Whose::Scheduler, Whose::Worker] {
        let struck = at_every_write(8, |plan| {
            let found = alone(detached(whose, plan));
            let part = |outcome: &Outcome| match whose {
                Whose::Scheduler => outcome.essence.clone(),
                // A send that is taken over may still be running at the end of the run.
                Whose::Worker => outcome.essence["runs"].clone(),
            };
            let differ = differences(&part(&found), &part(&sound));
            assert!(
                differ.is_empty(),
                "{plan:?} at {:?}: {differ:#?}",
                found.struck
            );
            found.struck
        });
        let write = match whose {
            Whose::Scheduler => "advance_runs",
            Whose::Worker => "complete_sends",
        };
        assert!(struck.contains(write), "{struck:?}");
    }
}

/// What the model is told of a call whose outcome is unknown.
const UNKNOWN: &str = "whether it took effect is not known";

/// The message that steers the send.
fn steer() -> String {
    format!(
        "plan {}",
        json!([[["put", { "n": 7 }], ["act", { "n": 8 }]]])
    )
}

/// Runs a send with parallel calls of every kind, a child that acts as well, a question, and a
/// message while it waits for the answer, after which it acts again.
async fn everything(plan: FaultPlan) -> (World, Outcome) {
    let world = World::new().await;
    let named = ["look", "put", "act", "ask_person", "spawn_agent"];
    let tools = named.map(|name| ToolEntry::Named(name.into()));
    let agent = AgentSpec {
        tools: tools.into(),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
    let task = json!([[["look", { "n": 1, "ms": 30 }], ["put", { "n": 2 }], ["act", { "n": 3, "ms": 50 }]]]);
    let calls = json!([[
        ["look", { "n": 4, "ms": 40 }],
        ["put", { "n": 5, "ms": 60 }],
        ["act", { "n": 6, "ms": 20 }],
        ["spawn_agent", { "task": format!("plan {task}") }],
        ["ask_person", { "question": "go on?" }],
    ]]);
    let id = world.send(key, &format!("plan {calls}")).await;
    let _first = world.worker("first", faulty.clone());
    // Let it claim the send first, so that a second worker cannot.
    world.pass(Duration::from_millis(1)).await;
    let _second = dies(plan.fault).then(|| world.worker("second", world.store.clone()));
    wait_until_it_waits(&world, id).await;
    let told = world.deliver(key, &steer(), OnBusy::Steer).await;
    assert!(
        matches!(told, DeliverOutcome::Accepted { send_id, .. } if send_id == id),
        "{told:?}"
    );
    let answer = CallAnswer::Result(CallResult::text("yes"));
    world.post(key, &call_id(id, 0, 4), answer).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(
        record.status,
        SendStatus::Completed,
        "{plan:?}: {record:#?}"
    );
    let struck = faulty.failed_method();
    world.pass(Duration::from_secs(20)).await;
    world.audit().await;
    let outcome = Outcome {
        essence: essence(&world.dump().await),
        asked: asked(&world),
        struck,
    };
    (world, outcome)
}

async fn wait_until_it_waits(world: &World, id: mainspring_shared::id::SendId) {
    for _ in 0..10_000 {
        let record = world.record(id).await;
        if record.status == SendStatus::Waiting {
            return;
        }
        assert!(!record.status.is_final(), "{record:#?}");
        world.pass(Duration::from_millis(20)).await;
    }
    panic!("it never waits");
}

/// Replaces the message that a `once` call's outcome is unknown by the call's normal result;
/// returns how often.
fn replace_unknown_results(essence: &mut Value) -> usize {
    let mut unknown = 0;
    let sessions = essence["sessions"].as_array_mut().expect("sessions");
    for session in sessions {
        let calls = session["calls"].as_array_mut().expect("calls");
        let mut told = Vec::new();
        for call in calls {
            let said = call["result"][0].as_str().unwrap_or_default().to_owned();
            if said.contains(UNKNOWN) {
                assert_eq!(call["name"], "act", "{call}");
                let did = format!("act did {}", call["arguments"]["n"]);
                call["result"] = json!([did, null]);
                told.push((said, did));
            }
        }
        let messages = session["messages"].as_array_mut().expect("messages");
        for (said, did) in told {
            let mut messages = messages.iter_mut();
            let message = messages.find(|message| message["text"] == said.as_str());
            let message = message.expect("the model was told");
            message["text"] = json!(did);
            message["failed"] = json!(false);
            unknown += 1;
        }
    }
    unknown
}

/// Asserts that each tool acted as often as it allows.
fn assert_tool_calls(world: &World, plan: FaultPlan, unknown: usize) {
    let mut times: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for act in world.acts.all() {
        *times.entry((act.tool, act.call_id)).or_default() += 1;
    }
    let calls = |tool| times.keys().filter(|(name, _)| *name == tool).count();
    // Each call of a repeatable tool was made in the end, under its own id.
    assert_eq!((calls("look"), calls("put")), (2, 3), "{plan:?}: {times:?}");
    assert!(
        calls("act") <= 3 && calls("act") + unknown >= 3,
        "{plan:?}: {times:?}"
    );
    for ((tool, call), times) in &times {
        let most = if *tool == "act" {
            1
        } else {
            1 + usize::from(dies(plan.fault))
        };
        assert!(
            *times <= most,
            "{plan:?}: {tool} acted {times} times for {call}"
        );
    }
}

#[test]
fn a_send_with_everything_survives_its_worker_at_every_write() {
    let sound = alone(async {
        let (world, sound) = everything(FaultPlan::NEVER).await;
        assert_tool_calls(&world, FaultPlan::NEVER, 0);
        sound
    });
    let mut in_doubt = 0;
    let struck = at_every_write(12, |plan| {
        alone(async {
            let (world, mut found) = everything(plan).await;
            let what = found.struck;
            let unknown = replace_unknown_results(&mut found.essence);
            // A worker that knows that nothing was written knows what its calls did.
            let knows = plan.fault == Fault::FailBefore;
            assert!(unknown == 0 || !knows, "{plan:?} at {what:?}");
            same(&found, &sound, plan);
            assert_tool_calls(&world, plan, unknown);
            // One death can hit two model calls: the send's and its child's.
            let extra = extra_model_calls(&found.asked, &sound.asked);
            let most = if dies(plan.fault) { 2 } else { 0 };
            assert!(
                extra.iter().sum::<usize>() <= most,
                "{plan:?} at {what:?}: {extra:?}"
            );
            in_doubt += unknown;
            what
        })
    });
    assert!(in_doubt > 0, "no death fell between a deed and its result");
    for write in [
        "claim_sessions",
        "append_rounds",
        "park_sends",
        "complete_sends",
    ] {
        assert!(struck.contains(write), "{struck:?}");
    }
}

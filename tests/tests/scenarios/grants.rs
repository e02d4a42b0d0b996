//! Agents started by an agent may do no more than that agent itself may in that send: leaves of its
//! runs, and children that it created earlier.

use std::collections::BTreeSet;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::store::{CallAnswer, DumpSession};
use mainspring_shared::tool::{CallRecord, CallResult, ToolEntry};
use mainspring_tests::world::World;
use serde_json::{Value, json};

/// URL of the starter's tool `pay`.
const PAY: &str = "https://bank.example/pay";

fn entries(value: Value) -> Vec<ToolEntry> {
    serde_json::from_value(value).expect("tools")
}

/// An agent with a tool that needs approval, one behind a URL, one that its caller runs, and one of
/// the workers.
fn starter() -> AgentSpec {
    let tools = json!([
        {"type": "worker", "name": "look", "approval": true},
        {"type": "http", "name": "pay", "url": PAY, "approval": true,
         "parameters": {"type": "object", "required": ["sum"]}},
        {"type": "external", "name": "sign"},
        "put", "create_workflow", "spawn_agent",
    ]);
    AgentSpec {
        tools: entries(tools),
        model: Some("script/its-own".into()),
        board: Some("team".into()),
        ..AgentSpec::default()
    }
}

/// A leaf that makes these calls, with these tools if any are given.
fn leaf(id: &str, tools: Option<Value>, calls: &Value) -> Value {
    let mut spec = json!({"name": id, "system_prompt": "work"});
    if let Some(tools) = tools {
        spec["tools"] = tools;
    }
    json!({"type": "agent", "id": id, "spec": spec, "input": format!("plan {calls}")})
}

/// The input that makes an agent start a run with these branches.
fn starts(branches: &[Value]) -> String {
    let root = json!({"type": "parallel", "branches": branches, "on_error": "continue"});
    let spec = json!({"name": "flow", "root": root});
    format!("plan {}", json!([[["create_workflow", {"spec": spec}]]]))
}

async fn session_of(world: &World, key: SessionKey) -> DumpSession {
    let sessions = world.dump().await.sessions;
    let found = sessions.into_iter().find(|session| session.key == key);
    found.expect("it exists")
}

fn result_of(call: &CallRecord) -> String {
    let result = call.result.as_ref().expect("it is settled");
    plain_text(&result.content)
}

/// Waits until `many` calls wait for this, and returns them.
async fn waiting(world: &World, on: WaitingOn, many: usize) -> Vec<CallRecord> {
    for _ in 0..500 {
        let sessions = world.dump().await.sessions;
        let calls = sessions.into_iter().flat_map(|session| session.calls);
        let open = calls.filter(|call| call.result.is_none() && call.waits_on == Some(on));
        let open: Vec<_> = open.collect();
        if open.len() == many {
            return open;
        }
        world.pass(Duration::from_millis(100)).await;
    }
    panic!("there are never {many} calls that wait for {on:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_wants_approval_wants_it_in_every_leaf() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let key = world.session(starter()).await;
    let calls = json!([[["look", {"n": 1}]]]);
    let again = json!([{"type": "worker", "name": "look", "approval": false}]);
    let branches = [
        leaf("inherited", None, &calls),
        leaf("named", Some(json!(["look"])), &calls),
        leaf("declared", Some(again), &calls),
        json!({"type": "tool", "id": "direct", "tool": "look", "arguments": {"n": 1}}),
    ];
    let id = world.send(key, &starts(&branches)).await;
    let asked = waiting(&world, WaitingOn::Human, 4).await;
    assert!(asked.iter().all(|call| call.name == "look"), "{asked:#?}");
    assert_eq!(world.acts.of("look").len(), 0, "nobody was asked yet");
    for call in &asked {
        world.post(key, &call.call_id, CallAnswer::Approve).await;
    }
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(world.acts.of("look").len(), 4);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn leaves_have_their_starters_declarations_and_settings() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let key = world.session(starter()).await;
    let same = json!([{"type": "http", "name": "pay", "url": PAY}]);
    let signs = json!([[["sign", {"n": 1}]]]);
    let branches = [
        leaf("inherited", None, &signs),
        leaf("named", Some(json!(["pay", "put"])), &json!([])),
        leaf("declared", Some(same), &json!([])),
        leaf("none", Some(json!([])), &json!([[["put", {"n": 1}]]])),
    ];
    let id = world.send(key, &starts(&branches)).await;
    // A tool that the caller runs is available in a leaf, and waits for its result.
    let signing = waiting(&world, WaitingOn::Tool, 1).await;
    let signed = CallResult::text("signed");
    world
        .post(key, &signing[0].call_id, CallAnswer::Result(signed))
        .await;
    assert_eq!(world.settle(&[id]).await[0].status, SendStatus::Completed);
    let mut seen = BTreeSet::new();
    for session in world.dump().await.sessions {
        let found = world.store.get_session(session.key).await;
        let agent = found.expect("never fails").expect("it exists").agent;
        let Some(name) = agent.name.clone() else {
            continue;
        };
        assert_eq!(agent.model.as_deref(), Some("script/its-own"), "{name}");
        assert_eq!(agent.board.as_deref(), Some("team"), "{name}");
        let pay = agent.tools.iter().find(|tool| **tool == starter().tools[1]);
        match name.as_str() {
            "inherited" => assert_eq!(agent.tools, starter().tools),
            "named" | "declared" => assert!(pay.is_some(), "{name}: {:?}", agent.tools),
            _ => {
                assert_eq!(agent.tools, []);
                let code = session.calls[0]
                    .result
                    .as_ref()
                    .and_then(|result| result.code);
                assert_eq!(code, Some(Code::ToolNotFound));
            }
        }
        seen.insert(name);
    }
    let all = ["declared", "inherited", "named", "none"];
    assert_eq!(seen.iter().collect::<Vec<_>>(), all);
    assert_eq!(world.acts.of("put").len(), 0);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_reaches_further_than_its_starter_is_refused() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(starter()).await;
    let none = json!([]);
    let elsewhere = json!([{"type": "http", "name": "pay", "url": "https://elsewhere.example/"}]);
    let new = json!([{"type": "http", "name": "post", "url": "https://elsewhere.example/"}]);
    let as_url = json!([{"type": "http", "name": "look", "url": "https://elsewhere.example/"}]);
    let cases = [
        (
            leaf("a", Some(elsewhere), &none),
            "/root/branches/0/spec/tools/0",
            "different tool",
        ),
        (
            leaf("a", Some(new), &none),
            "/root/branches/0/spec/tools/0",
            "no tool \"post\"",
        ),
        (
            leaf("a", Some(as_url), &none),
            "/root/branches/0/spec/tools/0",
            "different tool",
        ),
        (
            leaf("a", Some(json!(["put", "act"])), &none),
            "/root/branches/0/spec/tools/1",
            "no tool \"act\"",
        ),
        (
            json!({"type": "tool", "id": "t", "tool": "act"}),
            "/root/branches/0/tool",
            "no tool \"act\"",
        ),
    ];
    for (branch, pointer, what) in cases {
        let id = world.send(key, &starts(&[branch])).await;
        assert_eq!(world.settle(&[id]).await[0].status, SendStatus::Completed);
        let session = session_of(&world, key).await;
        let call = session.calls.iter().find(|call| call.send_id == id);
        let call = call.expect("it was made");
        let code = call.result.as_ref().and_then(|result| result.code);
        assert_eq!(code, Some(Code::SpecInvalid));
        let said = result_of(call);
        assert!(said.contains(pointer) && said.contains(what), "{said}");
    }
    assert_eq!(world.dump().await.runs.len(), 0);
    world.audit().await;
}

/// A send may do less than its agent, and so may everything it starts.
#[tokio::test(start_paused = true)]
async fn a_send_whose_tools_are_narrowed_starts_nothing_that_has_more() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let key = world.session(starter()).await;
    let options = || SendOptions {
        tools: Some(vec!["create_workflow".into(), "spawn_agent".into()]),
        ..SendOptions::default()
    };
    let calls = json!([[["put", {"n": 1}]]]);
    let inherits = starts(&[leaf("a", None, &calls)]);
    let names = starts(&[leaf("a", Some(json!(["put"])), &calls)]);
    let first = world.send_with(key, &inherits, options()).await;
    let second = world.send_with(key, &names, options()).await;
    world.settle(&[first, second]).await;
    assert_eq!(world.acts.of("put").len(), 0);
    let dump = world.dump().await;
    assert_eq!(
        dump.runs.len(),
        1,
        "the second asks for what it cannot give"
    );
    let own = dump.sessions.iter().find(|session| session.key != key);
    let code = own.expect("a leaf").calls[0]
        .result
        .as_ref()
        .and_then(|result| result.code);
    assert_eq!(code, Some(Code::ToolNotFound));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_goes_on_may_no_more_than_its_parent_by_now() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let mut agent = starter();
    agent.tools = entries(json!(["look", "put", "act", "spawn_agent"]));
    let key = world.session(agent).await;
    let makes = json!([[["spawn_agent", {"task": "hello", "max_rounds": 5}]]]);
    let first = world.send(key, &format!("plan {makes}")).await;
    world.settle(&[first]).await;
    let sessions = world.dump().await.sessions;
    let child = sessions
        .iter()
        .find(|session| session.key != key)
        .expect("a child")
        .key;
    let task = format!("plan {}", json!([[["look", {}], ["put", {}], ["act", {}]]]));
    let again = json!({"task": task, "session_id": child.session, "tools": ["look", "act"],
                       "model": "script/another", "max_rounds": 2});
    let options = SendOptions {
        tools: Some(vec!["spawn_agent".into(), "look".into(), "put".into()]),
        ..SendOptions::default()
    };
    let plan = json!([[["spawn_agent", again]]]);
    let second = world.send_with(key, &format!("plan {plan}"), options).await;
    world.settle(&[second]).await;
    let acted = ["look", "put", "act"].map(|tool| world.acts.of(tool).len());
    assert_eq!(acted, [1, 0, 0], "only what the parent has and names");
    let child_now = session_of(&world, child).await;
    let again = child_now
        .sends
        .iter()
        .find(|send| send.options.tools.is_some());
    let told = &again.expect("narrowed").options;
    assert_eq!(told.tools, Some(vec!["look".to_owned()]));
    assert_eq!(
        (told.model.as_deref(), told.max_rounds),
        (Some("script/another"), Some(2))
    );
    // Options that cannot take effect are refused.
    let renamed =
        json!([[["spawn_agent", {"task": "x", "session_id": child.session, "name": "y"}]]]);
    let third = world.send(key, &format!("plan {renamed}")).await;
    world.settle(&[third]).await;
    let parent = session_of(&world, key).await;
    let refused = parent.calls.iter().find(|call| call.send_id == third);
    let refused = refused.expect("it was made");
    assert!(
        result_of(refused).contains("keeps its name"),
        "{refused:#?}"
    );
    world.audit().await;
}

/// A child created when its parent had more freedom cannot bypass an approval that the parent needs
/// by now.
#[tokio::test(start_paused = true)]
async fn a_child_that_goes_on_does_not_do_unasked_what_its_parent_has_to_ask_for() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let mut agent = starter();
    agent.tools = entries(json!(["look", "put", "spawn_agent"]));
    let key = world.session(agent.clone()).await;
    let makes = json!([[["spawn_agent", {"task": "hello"}]]]);
    let first = world.send(key, &format!("plan {makes}")).await;
    world.settle(&[first]).await;
    let sessions = world.dump().await.sessions;
    let child = sessions
        .iter()
        .find(|session| session.key != key)
        .expect("a child")
        .key;
    let guarded =
        json!([{"type": "worker", "name": "look", "approval": true}, "put", "spawn_agent"]);
    agent.tools = entries(guarded);
    world.update(key, agent).await;
    let task = format!("plan {}", json!([[["look", {}], ["put", {}]]]));
    let again = json!([[["spawn_agent", {"task": task, "session_id": child.session}]]]);
    let second = world.send(key, &format!("plan {again}")).await;
    world.settle(&[second]).await;
    assert_eq!(world.acts.of("look").len(), 0);
    assert_eq!(world.acts.of("put").len(), 1);
    world.audit().await;
}

/// A tool that starts other agents needs approval like any other, and starts nothing before.
#[tokio::test(start_paused = true)]
async fn agents_and_runs_that_want_approval_are_started_once_permitted() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let mut agent = starter();
    agent.tools = entries(json!([
        {"type": "worker", "name": "spawn_agent", "approval": true},
        {"type": "worker", "name": "create_workflow", "approval": true},
    ]));
    let key = world.session(agent).await;
    let mut leaf = leaf("a", None, &json!([]));
    leaf["input"] = json!("hello");
    let spec = json!({"name": "flow", "root": leaf});
    let calls = json!([[
        ["spawn_agent", {"task": "one"}],
        ["spawn_agent", {"task": "two", "background": true}],
        ["spawn_agent", {"task": "three", "background": true}],
        ["create_workflow", {"spec": spec}],
        ["create_workflow", {"spec": spec, "detached": true}],
    ]]);
    let id = world.send(key, &format!("plan {calls}")).await;
    let asked = waiting(&world, WaitingOn::Human, 5).await;
    assert_eq!(world.dump().await.sessions.len(), 1, "nothing was started");
    let no = CallAnswer::Refuse(CallResult::text("not this one"));
    world.post(key, &asked[1].call_id, no).await;
    for place in [0, 2, 3, 4] {
        world
            .post(key, &asked[place].call_id, CallAnswer::Approve)
            .await;
        world.pass(Duration::from_secs(5)).await;
    }
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    world.pass(Duration::from_mins(1)).await;
    let told = session_of(&world, key).await;
    let told: Vec<_> = told
        .calls
        .iter()
        .map(|call| {
            let result = call.result.as_ref().expect("settled");
            (plain_text(&result.content), result.failed)
        })
        .collect();
    assert_eq!(told[0], ("echo: one".to_owned(), false));
    assert_eq!(told[1].0, "not this one");
    assert!(told[2..].iter().all(|(_, failed)| !failed), "{told:?}");
    let dump = world.dump().await;
    let mut inputs: Vec<_> = dump
        .sessions
        .iter()
        .flat_map(|session| &session.sends)
        .map(|send| plain_text(&send.input))
        .collect();
    inputs.retain(|input| !input.starts_with("plan"));
    inputs.sort_unstable();
    inputs.truncate(4);
    assert_eq!(inputs, ["hello", "hello", "one", "three"]);
    world.audit().await;
}

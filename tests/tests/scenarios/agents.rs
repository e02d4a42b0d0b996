//! Published agents in use: versions that change while sends run, and leaves and children that name
//! agents.

use std::collections::BTreeMap;

use mainspring_shared::agent::prompt::bind;
use mainspring_shared::agent::{AgentKey, AgentQuery, AgentSpec, AgentVersion, SendOptions};
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{AliasOutcome, PublishAgent, PublishOutcome, SetAlias};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::World;
use serde_json::{Map, Value, json};

fn spec(value: Value) -> AgentSpec {
    serde_json::from_value(value).expect("a spec")
}

fn key(name: &str) -> AgentKey {
    AgentKey {
        tenant: TenantId::DEFAULT,
        name: name.parse().expect("a name"),
    }
}

fn query(text: &str) -> AgentQuery {
    text.parse().expect("a reference")
}

async fn publish(world: &World, name: &str, value: Value) -> AgentVersion {
    let item = PublishAgent {
        key: key(name),
        spec: spec(value),
        limits: None,
        idempotency: None,
    };
    match world.store.publish_agent(item).await.expect("never fails") {
        PublishOutcome::Published { version, .. } => *version,
        other => panic!("published, not {other:?}"),
    }
}

async fn point(world: &World, name: &str, version: i32) {
    let item = SetAlias {
        key: key(name),
        alias: "live".parse().expect("an alias"),
        version: Some(version),
    };
    let outcome = world.store.set_alias(item).await.expect("never fails");
    assert!(matches!(outcome, AliasOutcome::Changed(_)));
}

/// Resolves an agent as a session does.
async fn taken(world: &World, text: &str, metadata: &Value) -> AgentSpec {
    let found = world
        .store
        .find_agents(TenantId::DEFAULT, vec![query(text)]);
    let version = found.await.expect("never fails").remove(0);
    let version = version.expect("it is published");
    let reference = version.reference();
    let metadata = metadata.as_object().cloned().expect("an object");
    bind(version.spec, Some(reference), Map::new(), &metadata).expect("it can be rendered")
}

/// The system prompts that the model got, call by call.
fn told(world: &World, user: &str) -> Vec<String> {
    let ledger = world.script.ledger().into_iter();
    let mine = ledger.filter(|asked| asked.user == user);
    mine.map(|asked| asked.system.unwrap_or_default()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_send_keeps_its_version_while_the_alias_moves_and_the_session_until_it_is_told() {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    let prompt = json!({"sections": [
        {"name": "who", "text": "For {{ metadata.user }}."},
        {"name": "tools", "tool_catalog": true},
    ]});
    publish(
        &world,
        "reviewer",
        json!({"system_prompt": "One.", "prompt": prompt, "tools": ["look"]}),
    )
    .await;
    point(&world, "reviewer", 1).await;
    let agent = taken(&world, "reviewer@live", &json!({"user": "Ada"})).await;
    let session = world.session(agent).await;
    let running = world.send(session, "tools 2").await;
    world.pass(std::time::Duration::from_millis(1)).await;
    publish(&world, "reviewer", json!({"system_prompt": "Two."})).await;
    point(&world, "reviewer", 2).await;
    let next = world.send(session, "hello").await;
    world.settle(&[running, next]).await;
    let first = told(&world, "tools 2");
    assert!(first.len() >= 3, "{first:?}");
    assert!(
        first[0].starts_with("One.\n\nFor Ada.\n\n# Available tools\n- look: "),
        "{first:?}"
    );
    // The part before the messages is the same in every round, and in the next send.
    assert!(first.iter().all(|system| *system == first[0]));
    assert_eq!(told(&world, "hello"), first[..1]);
    let agent = taken(&world, "reviewer@live", &json!({})).await;
    world.update(session, agent).await;
    let last = world.send(session, "again").await;
    world.settle(&[last]).await;
    assert_eq!(told(&world, "again"), ["Two."]);
    world.audit().await;
}

/// Creates a session that may start the reviewer, with these tools.
async fn lead(world: &World, tools: &[&str]) -> SessionKey {
    let tools = tools
        .iter()
        .map(|name| ToolEntry::Named((*name).to_owned()));
    world
        .session(AgentSpec {
            tools: tools.collect(),
            allow_agents: vec![query("reviewer@live")],
            ..AgentSpec::default()
        })
        .await
}

/// The result of the only call of a session.
async fn result(world: &World, session: SessionKey) -> String {
    let sessions = world.dump().await.sessions.into_iter();
    let found = sessions.into_iter().find(|one| one.key == session);
    let calls = found.expect("it exists").calls;
    let result = calls[0].result.as_ref().expect("it is settled");
    plain_text(&result.content)
}

#[tokio::test(start_paused = true)]
async fn a_child_is_the_published_agent_with_no_more_than_its_parent_has() {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    let published = json!({
        "system_prompt": "Review.", "tools": ["look", "put"],
        "prompt": {
            "sections": [{"name": "tone", "text": "Be {{ tone }}."}],
            "variables": {"tone": {"required": true}},
        },
    });
    publish(&world, "reviewer", published).await;
    point(&world, "reviewer", 1).await;
    let parent = lead(&world, &["spawn_agent", "look"]).await;
    let task = json!({"agent": "reviewer@live", "task": "hello", "variables": {"tone": "kind"}});
    let plan = format!("plan {}", json!([[["spawn_agent", task]]]));
    let id = world.send(parent, &plan).await;
    let sent = world.settle(&[id]).await.remove(0);
    assert_eq!(sent.status, SendStatus::Completed, "{sent:#?}");
    assert_eq!(told(&world, "hello"), ["Review.\n\nBe kind."]);
    let children = world
        .store
        .list_children(parent)
        .await
        .expect("never fails");
    let child = world
        .store
        .get_session(children[0])
        .await
        .expect("never fails");
    let agent = child.expect("it exists").agent;
    assert_eq!(agent.allow, Some(vec!["look".to_owned()]));
    let bound = agent.bound.expect("it was published");
    assert_eq!(
        bound.agent.map(|agent| agent.to_string()).as_deref(),
        Some("reviewer@1")
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_may_not_be_started_is_refused_to_the_model() {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    let needs =
        json!({"system_prompt": "Review.", "prompt": {"variables": {"tone": {"required": true}}}});
    publish(&world, "reviewer", needs).await;
    publish(&world, "writer", json!({"system_prompt": "Write."})).await;
    for (task, said) in [
        (
            json!({"agent": "writer", "task": "hello"}),
            "may not start the agent \"writer\"",
        ),
        (
            json!({"agent": "reviewer@1", "task": "hello"}),
            "may not start",
        ),
        (
            json!({"agent": "reviewer@live", "task": "hello"}),
            "no active published agent",
        ),
        (json!({"agent": "a b", "task": "hello"}), "names no agent"),
        (
            json!({"task": "hello", "variables": {"tone": "x"}}),
            "`variables` requires",
        ),
    ] {
        let parent = lead(&world, &["spawn_agent"]).await;
        let plan = format!("plan {}", json!([[["spawn_agent", task]]]));
        let id = world.send(parent, &plan).await;
        world.settle(&[id]).await;
        let said_so = result(&world, parent).await;
        assert!(said_so.contains(said), "{task}: {said_so}");
    }
    point(&world, "reviewer", 1).await;
    for (task, said) in [
        (
            json!({"agent": "reviewer@live", "task": "hello"}),
            "/variables/tone",
        ),
        (
            json!({"agent": "reviewer@live", "task": "hello", "system_prompt": "x"}),
            "keeps its name and system prompt",
        ),
    ] {
        let parent = lead(&world, &["spawn_agent"]).await;
        let plan = format!("plan {}", json!([[["spawn_agent", task]]]));
        let id = world.send(parent, &plan).await;
        world.settle(&[id]).await;
        let said_so = result(&world, parent).await;
        assert!(said_so.contains(said), "{task}: {said_so}");
    }
    assert_eq!(world.script.calls("hello"), 0);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn the_leaves_of_an_agents_run_are_the_published_agents_that_it_may_start() {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    world.scheduler("s", world.store.clone()).await;
    publish(
        &world,
        "reviewer",
        json!({"system_prompt": "One.", "tools": ["put", "look"]}),
    )
    .await;
    point(&world, "reviewer", 1).await;
    let parent = lead(&world, &["create_workflow", "look"]).await;
    let run = |agent: &str| {
        let root = json!({"type": "agent", "id": "r", "agent": agent, "input": "hello"});
        let spec = json!({"name": "reviews", "root": root});
        format!("plan {}", json!([[["create_workflow", {"spec": spec}]]]))
    };
    let id = world.send(parent, &run("reviewer@live")).await;
    let sent = world.settle(&[id]).await.remove(0);
    assert_eq!(sent.status, SendStatus::Completed, "{sent:#?}");
    assert_eq!(told(&world, "hello"), ["One."]);
    let sessions = world.dump().await.sessions.into_iter();
    let tenant = parent.tenant;
    let mut agents = BTreeMap::new();
    for session in sessions.map(|session| session.key.session) {
        let found = world
            .store
            .get_session(SessionKey { tenant, session })
            .await;
        let agent = found.expect("never fails").expect("it exists").agent;
        agents.insert(agent.name.clone(), agent);
    }
    let leaf = &agents[&Some("reviewer".to_owned())];
    assert_eq!(leaf.allow, Some(vec!["look".to_owned()]));
    let id = world.send(parent, &run("reviewer")).await;
    world.settle(&[id]).await;
    let sessions = world.dump().await.sessions.into_iter();
    let calls = sessions.flat_map(|session| session.calls);
    let results = calls.filter_map(|call| call.result);
    let said: Vec<String> = results.map(|result| plain_text(&result.content)).collect();
    let refused = said
        .iter()
        .any(|text| text.contains("may not start the agent"));
    assert!(refused, "{said:?}");
    world.audit().await;
}

/// A send with its own agent: windows of different lengths in one session, and neither send makes
/// the other lose messages.
#[tokio::test(start_paused = true)]
async fn a_send_with_its_own_agent_leaves_the_next_one_to_its_session() {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    let short = json!({"system_prompt": "Short.", "context": {"last_messages": 2}});
    publish(&world, "short", short).await;
    let session = world
        .session(AgentSpec {
            system_prompt: Some("Own.".to_owned()),
            ..AgentSpec::default()
        })
        .await;
    let own = SendOptions {
        agent: Some(Box::new(taken(&world, "short", &json!({})).await)),
        ..SendOptions::default()
    };
    // All of them queue behind the first one, so that one worker goes from one to the next.
    let mut sends = vec![world.send(session, "tools 2").await];
    for text in ["one", "two"] {
        sends.push(world.send(session, text).await);
    }
    sends.push(world.send_with(session, "three", own).await);
    sends.push(world.send(session, "four").await);
    for record in world.settle(&sends).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    }
    for (text, prompt) in [("two", "Own."), ("three", "Short."), ("four", "Own.")] {
        assert_eq!(told(&world, text), [prompt], "{text}");
    }
    let ledger = world.script.ledger();
    let asked = |text: &str| {
        let asked = ledger.iter().find(|asked| asked.user == text);
        asked.expect("the model was asked").transcript.len()
    };
    assert!(asked("three") <= 2, "{}", asked("three"));
    assert_eq!(asked("four"), asked("two") + 4);
    let record = world.record(sends[3]).await;
    let named = record.options.agent_ref().map(ToString::to_string);
    assert_eq!(named.as_deref(), Some("short@1"));
    world.audit().await;
}

//! How the model of a send is called: what agents, senders and leaves decide reaches it, and nothing
//! else does.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ModelOptions, ReasoningEffort, SendOptions, ToolChoice};
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{ContentPart, Role};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::preview::Answered;
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::workflow::run::RunStatus;
use mainspring_tests::world::{ModelBehaviour, World};
use mainspring_worker::llm::Request;
use serde_json::json;

/// Calls a tool in its first round.
const ONE_CALL: &str = r#"plan [[["look", {}]]]"#;

fn agent() -> AgentSpec {
    AgentSpec {
        tools: vec![ToolEntry::Named("look".into())],
        temperature: Some(0.25),
        max_tokens: Some(500),
        ..AgentSpec::default()
    }
}

fn options() -> SendOptions {
    let members = json!({"seed": 7});
    SendOptions {
        max_tokens: Some(300),
        temperature: Some(1.0),
        top_p: Some(0.5),
        reasoning_effort: Some(ReasoningEffort::Low),
        tool_choice: Some(ToolChoice::Tool("look".into())),
        parallel_tool_calls: Some(false),
        model_options: members.as_object().cloned().map(Box::new).map(ModelOptions),
        ..SendOptions::default()
    }
}

async fn started(agent: AgentSpec) -> (World, SessionKey) {
    let world = World::new().await;
    let _warm = world.worker("warm", world.store.clone());
    let key = world.session(agent).await;
    (world, key)
}

/// The settings of a request, in one line.
fn settings(request: &Request) -> String {
    let Request {
        max_tokens,
        temperature,
        top_p,
        reasoning_effort,
        tool_choice,
        parallel_tool_calls,
        model_options,
        ..
    } = request;
    let all = json!([
        max_tokens,
        temperature,
        top_p,
        reasoning_effort,
        tool_choice,
        parallel_tool_calls,
        model_options.as_deref(),
    ]);
    all.to_string()
}

#[tokio::test(start_paused = true)]
async fn what_a_sender_decides_reaches_its_own_send_only_and_previews_foresee_it() {
    let (world, key) = started(agent()).await;
    world.pass(Duration::from_millis(100)).await;
    let input = vec![ContentPart::text(ONE_CALL)];
    let foreseen = world
        .preview_with("warm", key, Some(input), options())
        .await;
    let Answered::Preview(foreseen) = foreseen else {
        panic!("{foreseen:?}");
    };
    let first = world.send_with(key, ONE_CALL, options()).await;
    let second = world.send(key, ONE_CALL).await;
    for record in world.settle(&[first, second]).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    }
    let asked = world.script.ledger();
    let asked: Vec<_> = asked.iter().map(|asked| settings(&asked.request)).collect();
    assert_eq!(
        asked,
        [
            r#"[300,1.0,0.5,"low",{"name":"look"},false,{"seed":7}]"#,
            r#"[300,1.0,0.5,"low","auto",false,{"seed":7}]"#,
            r#"[500,0.25,null,null,"auto",null,null]"#,
            r#"[500,0.25,null,null,"auto",null,null]"#,
        ]
    );
    assert_eq!(foreseen.digest, world.digests(key).await[0]);
    assert_eq!(foreseen.answer_max, 300);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_send_that_may_make_none_are_refused() {
    let (world, key) = started(agent()).await;
    let options = SendOptions {
        tool_choice: Some(ToolChoice::None),
        ..SendOptions::default()
    };
    let id = world.send_with(key, ONE_CALL, options).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(world.acts.all().len(), 0, "nothing was called");
    let messages = &world.dump().await.sessions[0].messages;
    let result = messages.iter().find(|message| message.role == Role::Tool);
    assert!(result.is_some_and(|result| result.failed), "{messages:#?}");
    let asked = world.script.ledger();
    for asked in &asked {
        assert_eq!(asked.request.tool_choice, ToolChoice::None);
        assert_eq!(asked.request.tools.len(), 1, "it still sees its tools");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_no_worker_offers_is_not_asked_for() {
    for (tools, choice) in [
        (vec!["look"], ToolChoice::Tool("nothing_like_it".into())),
        (vec![], ToolChoice::Required),
    ] {
        let tools = tools.into_iter().map(|name| ToolEntry::Named(name.into()));
        let (world, key) = started(AgentSpec {
            tools: tools.collect(),
            tool_choice: Some(choice),
            ..AgentSpec::default()
        })
        .await;
        let id = world.send(key, "hello").await;
        let record = world.settle(&[id]).await.remove(0);
        let failure = record.error.expect("it failed");
        assert_eq!(failure.code, Code::ToolNotFound, "{failure:?}");
        assert!(failure.message.contains("must be called"), "{failure:?}");
        assert_eq!(world.script.asked(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaf_runs_on_a_model_that_takes_no_temperature_but_its_own() {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    world.scheduler("s", world.store.clone()).await;
    world.script.set_behaviour(ModelBehaviour {
        is_tempered: true,
        ..ModelBehaviour::default()
    });
    let leaf = |more: serde_json::Value| {
        let mut spec = json!({"name": "leaf", "system_prompt": "work"});
        spec.as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().unwrap_or_default());
        json!({"name": "w", "root": {"type": "agent", "id": "a", "input": "hello", "spec": spec}})
    };
    let run = world.start_run(&leaf(json!({})), None).await;
    let record = world.settle_run(run).await;
    assert_eq!(record.status, RunStatus::Completed, "{record:#?}");
    let run = world
        .start_run(&leaf(json!({"temperature": 0})), None)
        .await;
    let record = world.settle_run(run).await;
    assert_eq!(
        record.status,
        RunStatus::Failed,
        "it is what its author wrote"
    );
}

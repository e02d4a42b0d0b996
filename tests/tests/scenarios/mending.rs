//! Answers that cannot be used and requests that are refused in part, in simulated time: the send
//! goes on in a way that can succeed, and the next send of the session does not meet the same fault.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::message::{Role, plain_text};
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use serde_json::{Value, json};

fn agent() -> AgentSpec {
    AgentSpec {
        tools: vec![ToolEntry::Named("look".into())],
        ..AgentSpec::default()
    }
}

/// Runs a send with these answers to its end, and then one that meets no fault.
async fn answered(list: &Value) -> (World, SendRecord) {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, &format!("answers {list}")).await;
    let record = world.settle(&[id]).await.remove(0);
    let before = world.script.asked();
    let next = world.send(key, "answers [\"hello\"]").await;
    let next = world.settle(&[next]).await.remove(0);
    assert_eq!((text(&next), world.script.asked()), ("hello", before + 1));
    world.audit().await;
    (world, record)
}

fn text(record: &SendRecord) -> &str {
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    record.output_text.as_deref().unwrap_or_default()
}

async fn failed(list: &Value) -> (usize, Code) {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, &format!("answers {list}")).await;
    let record = world.settle(&[id]).await.remove(0);
    world.audit().await;
    let error = record.error.expect("it failed");
    (world.script.asked(), error.code)
}

fn look(n: u32) -> Value {
    json!([["look", { "n": n }]])
}

fn times(count: usize, answer: &Value) -> Vec<Value> {
    vec![answer.clone(); count]
}

#[tokio::test(start_paused = true)]
async fn refused_parts_are_left_out_at_once_and_count_as_no_failure() {
    let mut tries = times(8, &json!({"error": "amended"}));
    tries.push(json!("done"));
    let (world, record) = answered(&json!([{ "tries": tries }])).await;
    assert_eq!(text(&record), "done");
    assert!(
        world.script.ledger()[8].at < Duration::from_secs(1),
        "at once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_refuses_part_after_part_fails_the_send() {
    let asked = failed(&json!([{"error": "amended"}])).await;
    assert_eq!(asked, (9, Code::LlmInvalidRequest));
}

#[tokio::test(start_paused = true)]
async fn a_retired_model_without_a_fallback_fails_the_send_with_its_own_code() {
    let asked = failed(&json!([{"error": "gone"}])).await;
    assert_eq!(asked, (1, Code::LlmModelGone));
}

#[tokio::test(start_paused = true)]
async fn a_paused_answer_goes_on_and_is_one_message() {
    let paused = json!({"finish": "paused", "text": "one "});
    let (_, record) = answered(&json!([{"tries": [paused]}, "two"])).await;
    assert_eq!(text(&record), "one two");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_provider_gave_up_is_asked_for_again() {
    let gave_up = json!({"finish": "failed", "text": "half"});
    let (_, record) = answered(&json!([{"tries": [gave_up, "whole"]}])).await;
    assert_eq!(text(&record), "whole");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_reason_is_no_success_until_a_second_whole_answer_has_it() {
    let odd = json!({"finish": "eos_like", "text": "whole"});
    let (_, record) = answered(&json!([{"tries": [odd, "again"]}])).await;
    assert_eq!(text(&record), "again");
    let (_, record) = answered(&json!([odd])).await;
    assert_eq!((text(&record), record.usage.output_tokens), ("whole", 10));
}

#[tokio::test(start_paused = true)]
async fn a_cut_call_is_asked_for_once_more_with_the_full_limit() {
    let cut = json!({"cut": "I write", "calls": look(1)});
    let (world, record) = answered(&json!([{"tries": [cut, look(2)]}, "done"])).await;
    assert_eq!(text(&record), "done");
    assert_eq!(world.acts.of("look").len(), 1);
    let asked = world.script.ledger();
    assert!(asked[1].request.max_tokens > asked[0].request.max_tokens);
}

#[tokio::test(start_paused = true)]
async fn a_model_whose_call_is_cut_again_is_told_to_write_smaller_parts() {
    let cut = json!({"cut": "I write", "calls": look(1)});
    let (world, record) = answered(&json!([{"tries": [cut, cut]}, look(2), "done"])).await;
    assert_eq!(text(&record), "done");
    assert_eq!(world.acts.of("look").len(), 1);
    let told = &world.script.ledger()[2];
    assert!(told.user.contains("smaller parts"), "{}", told.user);
    let asked = failed(&json!([{"tries": [cut]}])).await;
    assert_eq!(asked, (3, Code::LlmTruncated));
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_after_tools_is_told_to_the_model_and_then_ends_the_send() {
    let (_, record) = answered(&json!([look(1), {"tries": ["", "", "done"]}])).await;
    assert_eq!(text(&record), "done");
    let (world, record) = answered(&json!([look(1), {"tries": ["", ""]}])).await;
    assert_eq!(
        (text(&record), record.stop_reason),
        ("", Some(StopReason::End))
    );
    assert_eq!(world.acts.of("look").len(), 1);
    let session = world.dump().await.sessions.remove(0);
    let mut of_first = session.messages.iter().filter(|it| it.send_id == record.id);
    let last = of_first.next_back().expect("a message");
    assert_eq!(last.role, Role::Assistant);
    assert!(plain_text(&last.content).starts_with("[empty]"));
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_without_tools_fails_after_the_configured_attempts() {
    let (_, code) = failed(&json!([""])).await;
    assert_eq!(code, Code::LlmBadResponse);
}

#[tokio::test(start_paused = true)]
async fn a_call_written_as_text_is_asked_for_once() {
    let markup = "<tool_call>{\"name\": \"look\", \"arguments\": {}}</tool_call>";
    let (world, record) = answered(&json!([markup, look(1), "done"])).await;
    assert_eq!(text(&record), "done");
    assert_eq!(world.acts.of("look").len(), 1);
    let (_, record) = answered(&json!([markup, markup])).await;
    assert_eq!(text(&record), markup);
}

#[tokio::test(start_paused = true)]
async fn a_name_with_template_tokens_is_the_tool_and_is_stored_as_that() {
    let call = json!([["functions.look<|channel|>commentary", {"n": 1}]]);
    let (world, record) = answered(&json!([call, "done"])).await;
    assert_eq!(text(&record), "done");
    assert_eq!(world.acts.of("look").len(), 1);
    let session = world.dump().await.sessions.remove(0);
    assert_eq!(session.calls[0].name, "look");
    let mut calls = session.messages.iter().flat_map(|it| &it.tool_calls);
    assert!(calls.all(|call| call.name == "look"));
}

#[tokio::test(start_paused = true)]
async fn a_death_at_any_write_of_a_mended_send_changes_nothing_of_its_outcome() {
    let cut = json!({"cut": "I write", "calls": look(1)});
    let list = json!([{"tries": [cut, cut, cut, cut, cut]}, look(2), {"tries": ["", ""]}]);
    for at in 0..8 {
        for fault in [Fault::DieBefore, Fault::DieAfter] {
            let world = World::new().await;
            let key = world.session(agent()).await;
            let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan { at, fault }));
            let id = world.send(key, &format!("answers {list}")).await;
            let _first = world.worker("first", store);
            world.pass(Duration::from_millis(1)).await;
            let _second = world.worker("second", world.store.clone());
            let record = world.settle(&[id]).await.remove(0);
            assert_eq!(text(&record), "", "{fault:?} {at}");
            world.audit().await;
        }
    }
}

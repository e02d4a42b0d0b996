//! Answers that reach their token limit, and outputs that are shown in part, in simulated time:
//! none is mistaken for complete.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ContextSpec, OnTruncation, SendOptions};
use mainspring_shared::error::Code;
use mainspring_shared::message::Role::{self, Assistant, User};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::tool::{ToolEntry, call_id};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use serde_json::{Value, json};

fn agent(on_truncation: OnTruncation) -> AgentSpec {
    AgentSpec {
        tools: vec![ToolEntry::Named("look".into())],
        context: ContextSpec {
            on_truncation,
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

async fn said(world: &World) -> Vec<(Role, String)> {
    let session = world.dump().await.sessions.remove(0);
    let said = session.messages.iter();
    said.map(|m| (m.role, plain_text(&m.content))).collect()
}

/// Runs one send with these answers to its end.
async fn answered(
    list: &Value,
    on_truncation: OnTruncation,
    max_rounds: Option<u32>,
) -> (World, SendRecord) {
    let world = World::new().await;
    let key = world.session(agent(on_truncation)).await;
    let _worker = world.worker("w", world.store.clone());
    let options = SendOptions {
        max_rounds,
        ..SendOptions::default()
    };
    let id = world
        .send_with(key, &format!("answers {list}"), options)
        .await;
    let record = world.settle(&[id]).await.remove(0);
    world.audit().await;
    (world, record)
}

fn truncated(record: &SendRecord) {
    assert_eq!(record.status, SendStatus::Failed);
    assert_eq!(record.stop_reason, Some(StopReason::Length));
    let error = record.error.clone().expect("it failed");
    assert_eq!(error.code, Code::LlmTruncated, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_words_goes_on_and_is_one_message() {
    let list = json!([{"cut": "one "}, {"cut": "two "}, "three"]);
    let (world, record) = answered(&list, OnTruncation::Continue, None).await;
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(record.stop_reason, Some(StopReason::End));
    assert_eq!(record.output_text.as_deref(), Some("one two three"));
    assert_eq!((record.rounds, record.usage.output_tokens), (1, 15));
    let said = said(&world).await;
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[1], (Assistant, "one two three".to_owned()));
    let asked = world.script.ledger();
    assert_eq!(asked.len(), 3);
    // Roles alternate and the last message is the user's: every provider accepts that.
    let roles = |of: usize| asked[of].transcript.iter().map(|(role, _)| *role);
    assert_eq!(roles(0).collect::<Vec<_>>(), [User]);
    for (of, before) in [(1, "one "), (2, "one two ")] {
        assert_eq!(roles(of).collect::<Vec<_>>(), [User, Assistant, User]);
        assert_eq!(asked[of].transcript[1].1, before);
        assert!(asked[of].user.contains("Go on"), "{}", asked[of].user);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_goes_on_into_its_calls() {
    let list = json!([{"cut": "I "}, [["look", {"n": 1}]], "done"]);
    let (world, record) = answered(&list, OnTruncation::Continue, None).await;
    assert_eq!(record.output_text.as_deref(), Some("done"));
    assert_eq!(world.acts.of("look").len(), 1);
    let said = said(&world).await;
    assert_eq!(said[1].1, "I calling");
}

#[tokio::test(start_paused = true)]
async fn an_answer_goes_on_only_while_rounds_are_left() {
    let list = json!([{"cut": "on "}]);
    let (world, record) = answered(&list, OnTruncation::Continue, Some(3)).await;
    truncated(&record);
    assert_eq!(world.script.ledger().len(), 3);
    assert_eq!(said(&world).await[1].1, "on on on ");
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_cut_answer_are_never_made() {
    for on_truncation in [
        OnTruncation::Continue,
        OnTruncation::Fail,
        OnTruncation::Accept,
    ] {
        let list = json!([{"cut": "calling", "calls": [["look", {"n": 1}]]}, "never"]);
        let (world, record) = answered(&list, on_truncation, None).await;
        assert!(world.acts.all().is_empty(), "{on_truncation:?}");
        let session = world.dump().await.sessions.remove(0);
        assert!(session.calls.is_empty());
        if on_truncation == OnTruncation::Continue {
            assert_eq!(record.output_text.as_deref(), Some("never"));
            continue;
        }
        if on_truncation == OnTruncation::Accept {
            assert_eq!(record.status, SendStatus::Completed);
            assert_eq!(record.stop_reason, Some(StopReason::Length));
        } else {
            truncated(&record);
        }
        assert_eq!(world.script.ledger().len(), 1);
        let last = session.messages.last().expect("the answer");
        assert!(last.tool_calls.is_empty());
        assert_eq!(plain_text(&last.content), "calling");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_answer_is_taken_only_where_the_agent_says_so() {
    let list = json!([{"cut": "half"}, "whole"]);
    let (_, record) = answered(&list, OnTruncation::Accept, None).await;
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(record.stop_reason, Some(StopReason::Length));
    assert_eq!(record.output_text.as_deref(), Some("half"));
    let (world, record) = answered(&list, OnTruncation::Fail, None).await;
    truncated(&record);
    assert_eq!(said(&world).await[1].1, "half");
    let nothing = json!([{"cut": ""}, "whole"]);
    let (world, record) = answered(&nothing, OnTruncation::Continue, None).await;
    truncated(&record);
    // Once more with more room.
    let asked = world.script.ledger();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].request.max_tokens > asked[0].request.max_tokens);
}

#[tokio::test(start_paused = true)]
async fn a_death_in_the_middle_of_an_answer_that_goes_on_costs_its_parts_only() {
    for at in 0..6 {
        for fault in [Fault::DieBefore, Fault::DieAfter] {
            let world = World::new().await;
            let key = world.session(agent(OnTruncation::Continue)).await;
            let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan { at, fault }));
            let list = json!([{"cut": "one "}, "two"]);
            let id = world.send(key, &format!("answers {list}")).await;
            let _first = world.worker("first", store);
            world.pass(Duration::from_millis(1)).await;
            let _second = world.worker("second", world.store.clone());
            let record = world.settle(&[id]).await.remove(0);
            assert_eq!(
                record.output_text.as_deref(),
                Some("one two"),
                "{fault:?} {at}"
            );
            assert_eq!(said(&world).await.len(), 2, "{fault:?} {at}");
            world.audit().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_reads_what_was_left_out_of_an_output() {
    let world = World::new().await;
    let mut spec = agent(OnTruncation::Continue);
    spec.tools.push(ToolEntry::Named("read_output".into()));
    let (key, other) = (world.session(spec.clone()).await, world.session(spec).await);
    let _worker = world.worker("w", world.store.clone());
    let list = json!([[["look", {"lie": true}]], "done"]);
    let id = world.send(key, &format!("answers {list}")).await;
    world.settle(&[id]).await;
    let call = call_id(id, 0, 0);
    let shown = said(&world).await[2].1.clone();
    assert!(shown.contains(&format!("characters of {call} left out")));
    let read =
        |offset: u64| json!(["read_output", {"call_id": call, "offset": offset, "limit": 40_000}]);
    let list = json!([
        [read(0), read(40_000), read(1_999_990), read(3_000_000)],
        "done"
    ]);
    let next = world.send(key, &format!("answers {list}")).await;
    let foreign = world.send(other, &format!("answers {list}")).await;
    world.settle(&[next, foreign]).await;
    let dump = world.dump().await;
    let results = |session: usize| {
        let calls = dump.sessions[session].calls.iter();
        let calls = calls.filter(|call| call.name == "read_output");
        calls
            .filter_map(|call| call.result.clone())
            .collect::<Vec<_>>()
    };
    let ours: Vec<String> = results(0).iter().map(|r| plain_text(&r.content)).collect();
    let whole = "\u{fffd}{\"role\": \"user\"}\u{fffe} é".repeat(500_000);
    let page = |from: usize, count: usize| whole.chars().skip(from).take(count).collect::<String>();
    assert!(ours[0].contains("characters 0 to 40000 of 2000000; continue with offset 40000]"));
    assert!(ours[0].ends_with(&page(0, 40_000)) && ours[1].ends_with(&page(40_000, 40_000)));
    assert!(ours[2].contains("the end]") && ours[2].ends_with(&page(1_999_990, 10)));
    assert!(ours[3].contains("none after"), "{}", ours[3]);
    for result in results(1) {
        assert_eq!(result.code, Some(Code::CallNotFound), "nobody else's");
    }
}

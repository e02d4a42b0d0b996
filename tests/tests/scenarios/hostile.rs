//! Models that make nonsensical calls, tools that hang, lie and are late, and people who write at
//! any moment: sends end with typed errors, nothing is lost, and every provider accepts the
//! transcript.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::inbox::Fate;
use mainspring_shared::message::{Message, Role, plain_text};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::store::{DeliverOutcome, DumpSession};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::pairing;
use mainspring_tests::world::World;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};

fn agent() -> AgentSpec {
    let named = ["look", "put", "act", "alone", "slow"];
    AgentSpec {
        model: Some("roomy".into()),
        tools: named.map(|name| ToolEntry::Named(name.into())).to_vec(),
        ..AgentSpec::default()
    }
}

fn plan(rounds: &Value) -> String {
    format!("plan {rounds}")
}

/// Asserts that providers would accept every request that the model got.
fn asked_well(world: &World) {
    for (n, asked) in world.script.ledger().iter().enumerate() {
        let judged = pairing::stored(&asked.messages);
        assert_eq!(judged, Ok(()), "call {n}: {:?}", asked.transcript);
    }
}

fn code(record: &SendRecord) -> Option<Code> {
    record.error.as_ref().map(|error| error.code)
}

/// The codes of a session's results; `None` for a successful call.
fn outcomes(session: &DumpSession) -> Vec<Option<Code>> {
    let mut calls: Vec<_> = session.calls.iter().collect();
    calls.sort_unstable_by_key(|call| (call.round, call.place));
    let code = |call: &&mainspring_shared::tool::CallRecord| {
        let result = call.result.as_ref().expect("every call is settled");
        result.code
    };
    calls.iter().map(code).collect()
}

/// Runs a plan to its end, which must be a success: faults in a call are reported to the model.
async fn survives(rounds: Value) -> DumpSession {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(agent()).await;
    let id = world.send(key, &plan(&rounds)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    assert_eq!(
        record.rounds as usize,
        rounds.as_array().expect("a list").len() + 1
    );
    assert_eq!(record.crashes, 0);
    asked_well(&world);
    world.audit().await;
    world.dump().await.sessions.remove(0)
}

#[tokio::test(start_paused = true)]
async fn arguments_that_make_no_sense_are_told_to_the_model() {
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let calls = json!([[
        ["look", "{\"n\": "],
        ["look", ""],
        ["look", null],
        ["look", [1, 2]],
        ["look", 7],
        ["act", "{\"n\": 1}{\"n\": 2}"],
        ["look", deep],
        ["look", {"n": 1}],
    ]]);
    let session = survives(calls).await;
    let bad = Some(Code::ToolInvalidArguments);
    assert_eq!(
        outcomes(&session),
        [bad, bad, bad, bad, bad, bad, bad, None]
    );
}

#[tokio::test(start_paused = true)]
async fn names_that_nobody_has_are_told_to_the_model() {
    let long = "n".repeat(100_000);
    let names = [
        "",
        " ",
        "nobody",
        "Look",
        "look\u{0}",
        "look\nlook",
        "../look",
        "é",
        &long,
    ];
    let calls: Vec<Value> = names.iter().map(|name| json!([name, {}])).collect();
    let session = survives(json!([calls])).await;
    assert_eq!(
        outcomes(&session),
        vec![Some(Code::ToolNotFound); names.len()]
    );
}

#[tokio::test(start_paused = true)]
async fn ten_megabytes_of_arguments_are_no_harm() {
    let huge = "x".repeat(10_000_000);
    let session =
        survives(json!([[["look", {"n": 1, "text": huge}], ["look", huge], [huge, {}]]])).await;
    let codes = outcomes(&session);
    assert_eq!(
        codes[1..],
        [Some(Code::ToolInvalidArguments), Some(Code::ToolNotFound)]
    );
    // The model is told what is wrong, without its own words being repeated.
    for message in &session.messages {
        if message.role == Role::Tool {
            assert!(plain_text(&message.content).len() < 100_000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_ten_thousand_calls_only_so_many_are_made() {
    let calls: Vec<Value> = (0..10_000).map(|n| json!(["look", { "n": n }])).collect();
    let session = survives(json!([calls, [["look", {"n": 1}]]])).await;
    let made = outcomes(&session)
        .iter()
        .filter(|code| code.is_none())
        .count();
    assert_eq!(made, 128 + 1);
}

#[tokio::test(start_paused = true)]
async fn nul_and_other_characters_of_no_text_are_carried() {
    let odd = "\u{0}\u{1}\u{7f}\u{85}\u{2028}\u{fffe}\u{10ffff}\u{202e}";
    let session =
        survives(json!([[["look", {"n": 3, odd: odd}], ["put", {"n": 4, "a": {odd: [odd]}}]]]))
            .await;
    assert_eq!(outcomes(&session), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn one_id_for_all_calls_is_many_ids() {
    let calls = json!([["put", {"n": 1}], ["put", {"n": 2}], ["act", {"n": 3}]]);
    let session = survives(json!([calls, calls, calls])).await;
    let mut ids: Vec<_> = session.calls.iter().map(|call| &call.call_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn tools_that_hang_break_and_lie_end() {
    let forever = 1_000_000_000_u64;
    let session = survives(json!([[
        ["look", {"ms": forever, "deaf": true}],
        ["act", {"ms": forever, "deaf": true}],
        ["put", {"panic": true}],
        ["act", {"panic": true}],
        ["look", {"fail": true}],
        ["look", {"lie": true}],
        ["look", {"n": 1}],
    ]]))
    .await;
    let codes = outcomes(&session);
    let late = Some(Code::ToolTimeout);
    assert_eq!(codes[..2], [late, late]);
    assert!(codes[2..5].iter().all(Option::is_some), "{codes:?}");
    assert_eq!(codes[5..], [None, None]);
    let lie = session
        .messages
        .iter()
        .filter(|m| m.role == Role::Tool)
        .nth(5);
    assert!(plain_text(&lie.expect("a result").content).len() < 200_000);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_says_that_it_makes_no_sense_ends_the_send() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(agent()).await;
    let calls = json!([[["look", {"ms": 500}], ["look", {"abort": true}], ["act", {"n": 1}]]]);
    let id = world.send(key, &plan(&calls)).await;
    let next = world.send(key, "next").await;
    let records = world.settle(&[id, next]).await;
    assert_eq!(records[0].status, SendStatus::Failed);
    assert!(code(&records[0]).is_some());
    assert_eq!(records[1].output_text.as_deref(), Some("echo: next"));
    asked_well(&world);
    world.audit().await;
}

/// A random number below `count`.
fn any_of(random: &mut TestRng, count: u64) -> u64 {
    use proptest::prelude::Rng as _;
    random.next_u64() % count
}

/// Sends fifty messages to one session, each at a random moment of a send that thinks, calls and
/// answers.
async fn fifty(modes: &[OnBusy], seed: u8) {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let _other = world.worker("v", world.store.clone());
    let key = world.session(agent()).await;
    let mut sends: Vec<SendId> = Vec::new();
    let mut texts = Vec::new();
    for n in 0..50 {
        let ms = any_of(&mut random, 400);
        let text = match any_of(&mut random, 4) {
            // No two texts are the same.
            0 => format!("sleep {}", 100 * n),
            1 => plan(&json!([[["look", {"n": n, "ms": ms}], ["put", {"n": n}]]])),
            2 => plan(&json!([[["slow", {"n": n, "ms": 3 * ms}]], [["act", {"n": n}]]])),
            _ => format!("m{n}"),
        };
        let mode = modes[any_of(&mut random, modes.len() as u64) as usize];
        texts.push(text.clone());
        let accepted = match mode {
            OnBusy::Enqueue | OnBusy::Reject => None,
            OnBusy::Coalesce | OnBusy::Steer | OnBusy::Interrupt => {
                match world.deliver(key, &text, mode).await {
                    DeliverOutcome::Accepted { send_id, .. } => Some(send_id),
                    DeliverOutcome::Idle => None,
                    other => panic!("{other:?}"),
                }
            }
        };
        let id = match accepted {
            Some(id) => id,
            None => world.send(key, &text).await,
        };
        sends.push(id);
        let pause = Duration::from_millis(any_of(&mut random, 300));
        world.pass(pause).await;
    }
    // A message too late for the last send is delivered with the next.
    world.settle(&sends).await;
    sends.push(world.send(key, "the end").await);
    texts.push("the end".to_owned());
    for record in world.settle(&sends).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    }
    asked_well(&world);
    let session = world.dump().await.sessions.remove(0);
    one_fate(&session, &texts);
    world.audit().await;
}

/// Asserts that every text is in the transcript once, and that every inbox item says where.
fn one_fate(session: &DumpSession, texts: &[String]) {
    let said: Vec<String> = session
        .messages
        .iter()
        .filter(|message| message.role == Role::User)
        .flat_map(|message| {
            message
                .content
                .iter()
                .map(|part| plain_text(std::slice::from_ref(part)))
        })
        .collect();
    let sorted = |texts: &[String]| {
        let mut texts = texts.to_vec();
        texts.sort_unstable();
        texts
    };
    assert_eq!(sorted(&said), sorted(texts));
    for item in &session.inbox {
        assert_eq!(item.fate, Fate::Delivered, "{item:?}");
        // An item that joined a send before it started is part of its first message.
        let place = |message: &&Message| match item.seq {
            Some(seq) => message.seq == seq,
            None => Some(message.send_id) == item.send_id && message.role == Role::User,
        };
        assert!(
            item.seq.is_some() || item.mode == OnBusy::Coalesce,
            "{item:?}"
        );
        let message = session.messages.iter().find(place);
        let message = message.expect("its place is in the transcript");
        assert!(
            item.content
                .iter()
                .all(|part| message.content.contains(part)),
            "{item:?}"
        );
    }
    let messages: Vec<_> = session.messages.iter().cloned().map(Arc::new).collect();
    let (last, rest) = messages.split_last().expect("an answer");
    assert_eq!(last.role, Role::Assistant);
    assert_eq!(pairing::stored(rest), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn fifty_messages_have_one_fate_each_under_every_policy() {
    let all = [
        OnBusy::Enqueue,
        OnBusy::Coalesce,
        OnBusy::Steer,
        OnBusy::Interrupt,
    ];
    for seed in 0..4 {
        for mode in all {
            fifty(&[mode], seed).await;
        }
        fifty(&all, seed).await;
    }
}

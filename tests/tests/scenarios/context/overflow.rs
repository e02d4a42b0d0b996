//! Conversations with huge tool outputs and pictures, on workers with wrong facts about the model's
//! window, with a model that refuses requests beyond its real window.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;

use mainspring_shared::agent::{
    AgentSpec, ContextSpec, FoldSpec, FoldStrategy, Representation, SendOptions,
};
use mainspring_shared::error::Code;
use mainspring_shared::event::LiveKind;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{ContentPart, ImageSource, Message, Role};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::store::ReadMessages;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::pairing;
use mainspring_tests::simulation::Chance;
use mainspring_tests::suites::store::harness::environment;
use mainspring_tests::world::{Asked, ModelBehaviour, World, alone};
use mainspring_worker::llm::{FactsOverride, Request, expect_request_tokens};
use serde_json::{Value, json};

/// Number of sessions: a fifth of those in `docs/benchmarks.md`, unless `MAINSPRING_TEST_OVERFLOWS`
/// says otherwise.
const SESSIONS: u64 = 10;

const SENDS: u64 = 20;

/// Tokens of the shortest useful fold.
const SHORT_FOLD: u64 = 500;

/// The parameters of a session.
struct Case {
    behaviour: ModelBehaviour,
    agent: AgentSpec,
    facts: u64,
}

fn case(chance: &mut Chance) -> Case {
    let window = chance.between(8_000, 40_000);
    // The worker's facts range from half the real window to eight times as much.
    let eighths = chance.pick(&[4, 6, 8, 8, 12, 20, 64]);
    let strategy = chance.pick(&[FoldStrategy::Summary, FoldStrategy::Projection]);
    Case {
        behaviour: ModelBehaviour {
            counts: Some(chance.between(7, 14) as f64 / 10.0),
            window: Some(window),
            summary_chars: chance.between(0, 8_000) as usize,
            ..ModelBehaviour::default()
        },
        agent: AgentSpec {
            system_prompt: Some("Be kind. ".repeat(chance.between(1, 200) as usize)),
            tools: vec![ToolEntry::Named("look".into())],
            max_tokens: Some(1_000),
            context: ContextSpec {
                representation: chance
                    .pick(&[Representation::Verbatim, Representation::Projection]),
                fold: FoldSpec {
                    strategy,
                    ..FoldSpec::default()
                },
                ..ContextSpec::default()
            },
            ..AgentSpec::default()
        },
        facts: window * eighths / 8 + 1_000,
    }
}

fn input(chance: &mut Chance, n: u64) -> Vec<ContentPart> {
    let look = |chance: &mut Chance, round: u64| {
        let calls = chance.between(1, 2);
        let call = |chance: &mut Chance, call: u64| {
            let n = n * 100 + round * 10 + call;
            match chance.below(6) {
                0 => json!(["look", {"n": n, "image": 4_000}]),
                1 => json!(["look", {"n": n, "chars": chance.between(20_000, 120_000)}]),
                _ => json!(["look", {"n": n, "chars": chance.between(100, 12_000)}]),
            }
        };
        let calls: Vec<Value> = (0..calls).map(|n| call(chance, n)).collect();
        Value::from(calls)
    };
    let rounds = chance.below(5);
    let rounds: Vec<Value> = (0..rounds).map(|round| look(chance, round)).collect();
    let long = chance.one_in(8);
    let words = "word ".repeat(chance.below(if long { 9_000 } else { 100 }) as usize);
    let text = format!("plan {}\n\n{n} {words}", Value::from(rounds));
    let mut input = vec![ContentPart::text(text)];
    for picture in 0..chance.below(3) * u64::from(chance.one_in(4)) {
        let data = format!(
            "iVBORw0KGgo{}",
            "A".repeat((n + picture) as usize % 5 * 4 + 1)
        );
        let source = ImageSource::Base64 {
            media_type: "image/png".to_owned(),
            data,
        };
        input.push(ContentPart::Image { source });
    }
    input
}

/// Totals over all sessions.
#[derive(Debug, Default)]
struct Found {
    completed: usize,
    cannot_fit: usize,
    refused: usize,
    refused_folds: usize,
    asked: usize,
    folds: usize,
}

/// The minimum that a request of a send has to contain: the user's messages, and the last round.
fn least(like: &Request, stored: Vec<Message>) -> Request {
    let last = stored.iter().rposition(|it| it.role == Role::Assistant);
    let kept = stored.into_iter().enumerate().filter(|(place, message)| {
        message.role == Role::User || last.is_some_and(|last| *place >= last)
    });
    Request {
        messages: kept.map(|(_, message)| Arc::new(message)).collect(),
        ..like.clone()
    }
}

fn is_for_fold(asked: &Asked) -> bool {
    asked.user.contains("<transcript>")
}

fn judge(
    case: &Case,
    (record, stored): (&SendRecord, Vec<Message>),
    asked: &[Asked],
    found: &mut Found,
) {
    let window = case.behaviour.window.expect("it has one");
    let (folds, answers): (Vec<&Asked>, Vec<&Asked>) = asked.iter().partition(|it| is_for_fold(it));
    let is_refused = |asked: &&&Asked| case.behaviour.count(&asked.request) > window;
    found.asked += asked.len();
    found.refused_folds += folds.iter().filter(is_refused).count();
    let refused: Vec<_> = answers.iter().filter(is_refused).collect();
    found.refused += refused.len();
    let digests: BTreeSet<_> = refused.iter().map(|asked| asked.request.digest()).collect();
    assert_eq!(
        digests.len(),
        refused.len(),
        "one was sent twice in vain: {record:#?}"
    );
    for asked in &answers {
        pairing::stored(&asked.messages).expect("each call has its result");
    }
    if record.status == SendStatus::Completed {
        found.completed += 1;
        return;
    }
    let error = record.error.as_ref().expect("it failed");
    assert_eq!(error.code, Code::ContextCannotFit, "{error:?}");
    found.cannot_fit += 1;
    let Some(last) = asked.last() else { return };
    let least = case.behaviour.count(&least(&last.request, stored)) + SHORT_FOLD;
    assert!(
        least > window,
        "{least} of {window} (the facts say {}) would have had room: {error:?}",
        case.facts,
    );
}

async fn session(seed: u64, found: &mut Found) {
    let mut chance = Chance::new(seed);
    let case = case(&mut chance);
    let mut world = World::new().await;
    let facts = FactsOverride {
        window: Some(case.facts),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world.script.set_behaviour(case.behaviour);
    let key = world.session(case.agent.clone()).await;
    let _worker = world.worker("w", world.store.clone());
    for n in 0..SENDS {
        let begun = world.script.asked();
        let input = input(&mut chance, n);
        let id = world.send_parts(key, input, SendOptions::default()).await;
        let record = world.settle(&[id]).await.remove(0);
        let query = ReadMessages {
            key,
            after: 0,
            limit: 100_000,
        };
        let stored = world.store.read_messages(query).await;
        let mut stored = stored.expect("it answers");
        stored.retain(|message| message.send_id == id);
        let asked = world.script.ledger_behind(begun);
        judge(&case, (&record, stored), &asked, found);
    }
    world.audit().await;
    found.folds += world.store.read_folds(key).await.expect("it answers").len();
}

#[test]
fn what_could_have_fitted_is_answered_and_what_cannot_is_not_sent_twice() {
    let mut found = Found::default();
    let sessions = environment("MAINSPRING_TEST_OVERFLOWS").map(|text| text.parse());
    let sessions = sessions.map_or(SESSIONS, |sessions| sessions.expect("a number"));
    for seed in 0..sessions {
        alone(session(seed, &mut found));
    }
    let said = format!("{SENDS} sends in each of {sessions} sessions: {found:?}\n");
    let told = std::io::stderr().write_all(said.as_bytes());
    told.expect("standard error is open");
    assert_eq!(
        found.completed + found.cannot_fit,
        (sessions * SENDS) as usize
    );
    assert!(found.refused > 5 && found.folds > 20, "{found:?}");
}

/// A model whose server refuses what is longer than its window without saying why, and an agent that folds only shortly
/// before the window that it believes in.
async fn wordless() -> (World, AgentSpec) {
    let mut world = World::new().await;
    let facts = FactsOverride {
        window: Some(100_000),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.0),
        window: Some(75_000),
        is_wordless: true,
        ..ModelBehaviour::default()
    });
    let agent = AgentSpec {
        tools: vec![ToolEntry::Named("look".into())],
        max_tokens: Some(500),
        context: ContextSpec {
            fold: FoldSpec {
                soft: Some(0.84),
                hard: Some(0.85),
                ..FoldSpec::default()
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    };
    (world, agent)
}

/// How many requests were refused, and how often readers were told that one was taken for an overflow.
fn guessed(world: &World, key: SessionKey) -> (usize, usize) {
    let asked = world.script.ledger();
    let answers = asked.iter().filter(|asked| !is_for_fold(asked));
    let refused = answers.filter(|asked| expect_request_tokens(&asked.request) > 75_000);
    let live = world.live(key);
    let told = live.iter().filter(
        |event| matches!(event, LiveKind::ModelWarning { code, .. } if code == "llm.context_overflow"),
    );
    (refused.count(), told.count())
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_words_is_an_overflow_if_the_request_fills_the_window() {
    let (world, agent) = wordless().await;
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    for n in 0..32 {
        let id = world
            .send(key, &format!("{n} {}", "word ".repeat(3_200)))
            .await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(
            record.status,
            SendStatus::Completed,
            "{n}: {:?}",
            record.error
        );
    }
    let (refused, told) = guessed(&world, key);
    assert!(
        refused >= 1 && refused == told,
        "{refused} refused, {told} told"
    );
    let folds = world.store.read_folds(key).await.expect("it answers");
    assert!(!folds.is_empty());
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_send_may_overflow_without_words_more_than_once() {
    let (world, agent) = wordless().await;
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let rounds: Vec<Value> = (0..40)
        .map(|n| json!([["look", {"n": n, "chars": 20_000}]]))
        .collect();
    let id = world
        .send(key, &format!("plan {}", Value::from(rounds)))
        .await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    let (refused, told) = guessed(&world, key);
    assert!(
        refused >= 2 && refused == told,
        "{refused} refused, {told} told"
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_small_request_that_is_refused_without_words_is_no_overflow() {
    let (world, agent) = wordless().await;
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, "answers [{\"error\": \"invalid\"}]").await;
    let record = world.settle(&[id]).await.remove(0);
    let error = record.error.expect("it failed");
    assert_eq!(
        (error.code, world.script.asked()),
        (Code::LlmInvalidRequest, 1)
    );
    assert_eq!(guessed(&world, key), (0, 0));
}

/// The warnings that a server cuts prompts, after sends of growing length.
async fn cut_warnings(system: &str) -> usize {
    let world = World::new().await;
    let agent = AgentSpec {
        system_prompt: Some(system.to_owned()),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    for n in 0..4 {
        let id = world
            .send(key, &format!("{n} {}", "word ".repeat(2_400)))
            .await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    }
    let live = world.live(key);
    let told = live.iter().filter(
        |event| matches!(event, LiveKind::ModelWarning { code, .. } if code == "llm.context_cut"),
    );
    told.count()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_counts_the_same_however_long_the_prompt_is_warned_of() {
    // It counts ten tokens, whatever it is asked; nothing is said of the first request.
    assert_eq!(cut_warnings("be kind").await, 3);
    assert_eq!(cut_warnings("counts").await, 0);
}

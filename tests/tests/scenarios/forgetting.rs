//! Sends so long that their own results do not fit: which results are dropped, that other workers
//! show the same, and that wrong facts about a window neither refuse what fits nor cause calls in
//! vain.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ContextSpec, FoldSpec, FoldStrategy, ToolContext};
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::model::{expect_request_tokens, expect_tokens};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::preview::{Answered, FoldWhen, Preview};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Asked, Fault, FaultPlan, Faulty, ModelBehaviour, World};
use mainspring_worker::llm::FactsOverride;
use serde_json::{Value, json};

/// Share of the 115 000 usable tokens at which something is done.
const HARD: f64 = 0.15;

fn agent(strategy: FoldStrategy, policy: ToolContext) -> AgentSpec {
    let mut context = ContextSpec {
        fold: FoldSpec {
            strategy,
            hard: Some(HARD),
            ..FoldSpec::default()
        },
        ..ContextSpec::default()
    };
    context.tools.insert("look".to_owned(), policy);
    AgentSpec {
        system_prompt: Some("counts".to_owned()),
        tools: vec![ToolEntry::Named("look".into())],
        max_rounds: Some(100),
        context,
        ..AgentSpec::default()
    }
}

/// A plan with this many rounds, each with one call whose result has this many characters.
fn looks(rounds: usize, chars: usize) -> String {
    let calls = (0..rounds).map(|n| json!([["look", {"n": n, "chars": chars}]]));
    format!("plan {}", Value::Array(calls.collect()))
}

fn forgotten(asked: &Asked) -> usize {
    let texts = asked.transcript.iter().map(|(_, text)| text);
    texts
        .filter(|text| text.contains("read_output with call_id"))
        .count()
}

/// For each round, the message up to which results counted as old.
async fn aged(world: &World, key: SessionKey) -> Vec<Option<i64>> {
    let steps = world.store.read_steps(key, 0, 10_000).await;
    let steps = steps.expect("it answers").into_iter();
    let rounds = steps.filter_map(|step| step.refs.round);
    rounds.map(|round| round.aged_to).collect()
}

async fn preview(world: &World, key: SessionKey, input: Option<&str>) -> Preview {
    match world.preview("w", key, input).await {
        Answered::Preview(preview) => *preview,
        Answered::Refused { code, detail } => panic!("{code}: {detail}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_send_forgets_its_own_results_and_nothing_is_folded_for_it() {
    for strategy in [FoldStrategy::None, FoldStrategy::Summary] {
        let world = World::new().await;
        let key = world.session(agent(strategy, ToolContext::Summary)).await;
        let _worker = world.worker("w", world.store.clone());
        let id = world.send(key, &looks(60, 1_500)).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        let ledger = world.script.ledger();
        assert_eq!(ledger.len(), 61, "{strategy:?}");
        let last = ledger.last().expect("it was asked");
        assert!((30..=52).contains(&forgotten(last)), "{}", forgotten(last));
        assert!(
            last.transcript[2]
                .1
                .starts_with("look gave 1500 characters of 0\n[1500 characters"),
            "{}",
            last.transcript[2].1
        );
        // Nothing that was forgotten comes back, and requests share their prefix, except where a
        // block was forgotten.
        let mut changes = 0;
        for pair in ledger.windows(2) {
            assert!(forgotten(&pair[0]) <= forgotten(&pair[1]));
            changes += usize::from(!pair[1].transcript.starts_with(&pair[0].transcript));
        }
        assert!((3..=8).contains(&changes), "{changes}");
        let hard = (115_000.0 * HARD) as u64;
        for asked in &ledger {
            let tokens = expect_request_tokens(&asked.request);
            assert!(tokens < hard + 2_000, "{tokens} of {hard}");
        }
        // Its rounds render again as they were sent, and so do the next send's.
        let before = forgotten(last);
        let next = world.send(key, "hello").await;
        world.settle(&[next]).await;
        let ledger = world.script.ledger();
        let last = ledger.last().expect("it was asked");
        assert!(forgotten(last) >= before, "{before}");
        let replays = world.replayed(key).await;
        assert_eq!(
            (replays.same, replays.differ, replays.skipped),
            (62, vec![], vec![])
        );
        assert_eq!(world.store.read_folds(key).await.expect("it answers"), []);
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn results_that_the_model_has_not_seen_are_whole_unless_nothing_else_has_room() {
    let calls = |count: usize, chars: usize| -> Value {
        let calls = (0..count).map(|n| json!(["look", {"n": n, "chars": chars}]));
        calls.collect()
    };
    for strategy in [FoldStrategy::None, FoldStrategy::Summary] {
        // A window with room for one round of them, and one without.
        for (window, unseen) in [(200_000, 0), (32_000, 16)] {
            let mut world = World::new().await;
            let facts = FactsOverride {
                window: Some(window),
                ..FactsOverride::default()
            };
            world.facts.insert("model".to_owned(), facts);
            let mut agent = agent(strategy, ToolContext::Archive);
            agent.max_tokens = Some(1_000);
            let key = world.session(agent).await;
            let _worker = world.worker("w", world.store.clone());
            let plan = json!([calls(30, 3_000), calls(1, 100), calls(1, 100)]);
            let id = world.send(key, &format!("plan {plan}")).await;
            let record = world.settle(&[id]).await.remove(0);
            assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
            let ledger = world.script.ledger();
            let forgotten: Vec<_> = ledger.iter().map(forgotten).collect();
            assert_eq!(forgotten[..2], [0, unseen], "{strategy:?} {window}");
            // Once the model has answered them, they are dropped like others; if that is not
            // enough, by a fold.
            let is_folded = strategy == FoldStrategy::Summary && unseen > 0;
            let folds = world.store.read_folds(key).await.expect("it answers").len();
            assert_eq!(folds > 0, is_folded, "{strategy:?} {window} {forgotten:?}");
            assert!(
                is_folded || forgotten[2] >= 16,
                "{strategy:?} {window} {forgotten:?}"
            );
            let replays = world.replayed(key).await;
            assert_eq!((replays.same, replays.differ), (4, vec![]));
            world.audit().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_leaves_what_a_fold_would_leave() {
    let world = World::new().await;
    let mut spec = agent(FoldStrategy::Summary, ToolContext::Archive);
    spec.context.fold.soft = Some(0.3);
    spec.context.fold.hard = Some(0.6);
    let key = world.session(spec).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, &looks(95, 1_500)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    let ledger = world.script.ledger();
    assert_eq!(world.store.read_folds(key).await.expect("it answers"), []);
    let target = (115_000.0 * 0.2) as u64;
    let mut changes = 0;
    for pair in ledger.windows(2) {
        let [before, after] = [&pair[0], &pair[1]];
        if forgotten(before) == forgotten(after) {
            continue;
        }
        changes += 1;
        let tokens = expect_request_tokens(&after.request);
        // Dropping starts at the soft threshold and drops no more than needed: one block fewer
        // would not be enough.
        let whole = expect_request_tokens(&before.request);
        let block = 8 * (whole / 20);
        assert!(whole > target * 5 / 4, "{whole}");
        assert!(tokens <= target + 500, "{tokens} of {target}");
        assert!(tokens + block > target, "{tokens} of {target}");
    }
    assert!(changes >= 3, "{changes}");
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_a_send_over_forgets_the_same() {
    let (mut expected, mut deaths) = (None, 0);
    for at in [usize::MAX, 12, 25, 31, 40, 52] {
        for fault in [Fault::DieBefore, Fault::DieAfter] {
            let world = World::new().await;
            let agent = agent(FoldStrategy::Summary, ToolContext::Archive);
            let key = world.session(agent).await;
            let faulty = Arc::new(Faulty::new(world.store.clone(), FaultPlan { at, fault }));
            let _first = world.worker("first", faulty.clone());
            let id = world.send(key, &looks(45, 2_000)).await;
            let mut waits = 0;
            while at != usize::MAX && !faulty.fired() && waits < 200 {
                world.pass(Duration::from_millis(100)).await;
                waits += 1;
            }
            let _second = faulty.fired().then(|| {
                deaths += 1;
                world.worker("second", world.store.clone())
            });
            let record = world.settle(&[id]).await.remove(0);
            assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
            let aged = aged(&world, key).await;
            assert!(
                aged.iter().flatten().collect::<BTreeSet<_>>().len() > 1,
                "{aged:?}"
            );
            assert_eq!(
                *expected.get_or_insert(aged.clone()),
                aged,
                "{at} {fault:?}"
            );
            let replays = world.replayed(key).await;
            assert_eq!(
                (replays.same, replays.differ),
                (46, vec![]),
                "{at} {fault:?}"
            );
            world.audit().await;
        }
    }
    assert!(deaths >= 8, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_provider_refuses_is_asked_again_with_less_of_its_results() {
    for strategy in [FoldStrategy::None, FoldStrategy::Projection] {
        let world = World::new().await;
        let mut agent = agent(strategy, ToolContext::Archive);
        agent.system_prompt = Some("room 24000".to_owned());
        agent.context.fold.hard = Some(0.85);
        let key = world.session(agent).await;
        let _worker = world.worker("w", world.store.clone());
        let id = world.send(key, &looks(40, 1_000)).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        let ledger = world.script.ledger();
        let digests: BTreeSet<_> = ledger.iter().map(|asked| asked.request.digest()).collect();
        assert_eq!(digests.len(), ledger.len(), "one was asked twice");
        // 41 rounds, and an extra request for each forgotten block.
        let shown: Vec<_> = ledger.iter().map(forgotten).collect();
        assert!((43..=48).contains(&ledger.len()), "{strategy:?} {shown:?}");
        assert_eq!(world.store.read_folds(key).await.expect("it answers"), []);
        let replays = world.replayed(key).await;
        assert_eq!((replays.same, replays.differ), (41, vec![]));
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_preview_says_what_would_be_folded_and_forgotten() {
    let world = World::new().await;
    let mut spec = agent(FoldStrategy::Summary, ToolContext::Archive);
    spec.context.fold.soft = Some(0.03);
    spec.context.fold.keep_sends = Some(1);
    let key = world.session(spec).await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(Duration::from_millis(100)).await;
    let mut seen = BTreeSet::new();
    for n in 0..40 {
        let words = format!("{n} {}", "a word or two about it ".repeat(60));
        let foreseen = preview(&world, key, Some(&words)).await;
        let before = world.store.read_folds(key).await.expect("it answers").len();
        let steps = world.store.last_steps(vec![key]).await.expect("it answers")[0];
        let id = world.send(key, &words).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed);
        world.pass(Duration::from_secs(5)).await;
        let folds = world.store.read_folds(key).await.expect("it answers");
        let new = folds
            .iter()
            .max_by_key(|fold| fold.n)
            .filter(|_| folds.len() > before);
        match foreseen.next_fold {
            None => assert_eq!(new, None, "{n}"),
            Some(fold) => {
                seen.insert(format!("{:?}", fold.when));
                let new = new.unwrap_or_else(|| panic!("{n}: {fold:?}"));
                assert_eq!(new.from_seq, fold.from_seq, "{n} {fold:?}");
                assert_eq!(new.to_seq, fold.to_seq, "{n} {fold:?}");
                assert_eq!(fold.when, FoldWhen::After);
                // The fold is not part of the call itself.
                let all = world
                    .store
                    .read_steps(key, steps, 100)
                    .await
                    .expect("it answers");
                let digest = all.into_iter().find_map(|step| step.refs.round?.digest);
                assert_eq!(digest, Some(foreseen.digest));
            }
        }
    }
    assert!(!seen.is_empty());
    // A message that fills the window alone triggers a fold before the call, of whatever there is.
    let long = "a word or two about it ".repeat(4_000);
    let foreseen = preview(&world, key, Some(&long)).await;
    let fold = foreseen.next_fold.expect("something is folded");
    assert_eq!(
        (fold.when, fold.strategy),
        (FoldWhen::Before, FoldStrategy::Summary)
    );
    let id = world.send(key, &long).await;
    world.settle(&[id]).await;
    let folds = world.store.read_folds(key).await.expect("it answers");
    let found = folds
        .iter()
        .any(|new| (new.from_seq, new.to_seq) == (fold.from_seq, fold.to_seq));
    assert!(found, "{fold:?}");
    world.audit().await;
}

/// The model's window; the worker believes it is half as large.
const WINDOW: u64 = 8_000;

/// A text of about this many estimated tokens.
fn words(tokens: u64) -> String {
    let one = "several plain words ";
    let each = expect_tokens(&one.repeat(100)) as f64 / 100.0;
    one.repeat((tokens as f64 / each) as usize)
}

#[tokio::test(start_paused = true)]
async fn facts_and_estimates_that_are_both_wrong_refuse_nothing_that_fits_and_ask_nothing_twice() {
    for strategy in [
        FoldStrategy::None,
        FoldStrategy::Summary,
        FoldStrategy::Projection,
    ] {
        // Tokens by the estimate, which is twice too high; whether it fits; whether the model is
        // called at all.
        for (tokens, fits, is_asked) in [
            (2 * WINDOW - 400, true, true),
            (2 * WINDOW - 250, true, true),
            (2 * WINDOW + 400, false, false),
            (4 * WINDOW, false, false),
        ] {
            let mut world = World::new().await;
            let facts = FactsOverride {
                window: Some(WINDOW / 2),
                ..FactsOverride::default()
            };
            world.facts.insert("model".to_owned(), facts);
            world.script.set_behaviour(ModelBehaviour {
                counts: Some(0.5),
                window: Some(WINDOW),
                ..ModelBehaviour::default()
            });
            let mut agent = agent(strategy, ToolContext::Archive);
            agent.system_prompt = None;
            agent.max_tokens = Some(100);
            (agent.tools, agent.context.tools) = <_>::default();
            let key = world.session(agent).await;
            let _worker = world.worker("w", world.store.clone());
            let id = world.send(key, &words(tokens)).await;
            let record = world.settle(&[id]).await.remove(0);
            let at = format!("{strategy:?} {tokens}: {record:#?}");
            assert_eq!(record.status == SendStatus::Completed, fits, "{at}");
            let error = record.error.as_ref().map(|error| error.code);
            assert_eq!(error, (!fits).then_some(Code::ContextCannotFit), "{at}");
            assert_eq!(world.script.asked(), usize::from(is_asked), "{at}");
            world.audit().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_alone_knows_not_to_fit_is_asked_once() {
    for (strategy, code) in [
        (FoldStrategy::None, Code::LlmContextOverflow),
        (FoldStrategy::Summary, Code::ContextCannotFit),
        (FoldStrategy::Projection, Code::ContextCannotFit),
    ] {
        let mut world = World::new().await;
        let facts = FactsOverride {
            window: Some(2 * WINDOW),
            ..FactsOverride::default()
        };
        world.facts.insert("model".to_owned(), facts);
        world.script.set_behaviour(ModelBehaviour {
            counts: Some(2.0),
            window: Some(WINDOW),
            ..ModelBehaviour::default()
        });
        let mut agent = agent(strategy, ToolContext::Archive);
        agent.system_prompt = None;
        agent.max_tokens = Some(100);
        (agent.tools, agent.context.tools) = <_>::default();
        let key = world.session(agent).await;
        let _worker = world.worker("w", world.store.clone());
        let id = world.send(key, &words(WINDOW / 2 + 500)).await;
        let record = world.settle(&[id]).await.remove(0);
        let error = record.error.map(|error| error.code);
        assert_eq!(error, Some(code), "{strategy:?}");
        assert_eq!(world.script.asked(), 1, "{strategy:?}");
        world.audit().await;
    }
}

//! How long a client waits for folds: the time of each send of a conversation, against the same conversation
//! without folds.

use std::io::Write as _;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ContextSpec, FoldSpec, FoldStrategy};
use mainspring_shared::id::SendId;
use mainspring_shared::send::SendStatus;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Manner, World};
use mainspring_worker::llm::FactsOverride;
use serde_json::json;

/// So long a model writes a fold.
const WRITES: Duration = Duration::from_secs(4);

const SENDS: u64 = 120;

/// The times of the sends of a conversation, whose tools work so long in each of three rounds, with the number
/// of its folds and of calls for them.
async fn had(strategy: FoldStrategy, works: Duration) -> (Vec<Duration>, usize, usize) {
    let mut world = World::new().await;
    let facts = FactsOverride {
        window: Some(32_000),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world.script.set_manner(Manner {
        counts: Some(1.0),
        summary_chars: 2_000,
        summary_takes: WRITES,
        ..Manner::default()
    });
    let agent = AgentSpec {
        tools: vec![ToolEntry::Named("look".into())],
        max_tokens: Some(1_000),
        context: ContextSpec {
            fold: FoldSpec {
                strategy,
                ..FoldSpec::default()
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let mut ids: Vec<SendId> = Vec::new();
    for n in 0..SENDS {
        let look = |round: u64| {
            let ms = works.as_millis() as u64;
            json!([["look", {"n": n * 3 + round, "chars": 1_200, "ms": ms}]])
        };
        let plan = json!([look(0), look(1), look(2)]);
        let id = world.send(key, &format!("plan {plan}")).await;
        world.settle(&[id]).await;
        ids.push(id);
        world.pass(Duration::from_secs(5)).await;
    }
    let records = world.settle(&ids).await;
    let took = records.iter().map(|record| {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        record.finished_at.expect("final").since(record.created_at)
    });
    let took = took.collect();
    world.audit().await;
    let folds = world.store.read_folds(key).await.expect("it answers").len();
    let ledger = world.script.ledger();
    let asked = ledger
        .iter()
        .filter(|asked| asked.user.contains("<transcript>"));
    (took, folds, asked.count())
}

/// What each send lost, in order of size.
async fn lost(works: Duration) -> (Vec<Duration>, usize, usize) {
    let (plain, none, _) = had(FoldStrategy::None, works).await;
    assert_eq!(none, 0);
    let (folding, folds, asked) = had(FoldStrategy::Summary, works).await;
    let lost = folding.iter().zip(&plain);
    let mut lost: Vec<Duration> = lost
        .map(|(with, without)| with.saturating_sub(*without))
        .collect();
    lost.sort();
    (lost, folds, asked)
}

/// Tells it straight to the terminal: the harness shows what is printed only when a test fails.
fn tell(said: &str) {
    let told = std::io::stderr().write_all(said.as_bytes());
    told.expect("standard error is open");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_fold_beside_the_conversation() {
    let (lost, folds, asked) = lost(Duration::from_secs(3)).await;
    let p99 = lost[lost.len() * 99 / 100];
    tell(&format!(
        "long sends: {folds} folds of {asked} calls; lost p99 {p99:?}\n"
    ));
    assert!(folds >= 10, "{folds} folds");
    assert_eq!(lost[lost.len() - 1], Duration::ZERO, "{lost:?}");
}

/// Where every send is over before a fold is written, it is written while the session is at rest.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_fold_behind_a_short_send() {
    let (lost, folds, asked) = lost(Duration::from_millis(500)).await;
    let waited = lost.iter().filter(|lost| !lost.is_zero()).count();
    let most = lost[lost.len() - 1];
    tell(&format!(
        "short sends: {folds} folds of {asked} calls; {waited} lost {most:?}\n"
    ));
    assert!(folds >= 10, "{folds} folds");
    assert_eq!((waited, most), (0, Duration::ZERO));
    assert_eq!(asked, folds, "a fold was written in vain");
}

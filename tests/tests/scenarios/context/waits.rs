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

/// How a conversation goes.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// So long its tools work in each of three rounds.
    works: Duration,
    /// So long nobody says anything after an answer.
    pause: Duration,
}

impl Pace {
    const fn of(works: Duration) -> Self {
        let pause = Duration::from_secs(5);
        Self { works, pause }
    }
}

/// What a conversation came to.
struct Had {
    /// The time of each send.
    took: Vec<Duration>,
    /// Its folds, and the calls of a model for them.
    folds: usize,
    asked: usize,
    /// The sends that say in their steps that something was folded before they asked a model.
    before: Vec<bool>,
}

async fn had(strategy: FoldStrategy, pace: Pace) -> Had {
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
            let ms = pace.works.as_millis() as u64;
            json!([["look", {"n": n * 3 + round, "chars": 1_200, "ms": ms}]])
        };
        let plan = json!([look(0), look(1), look(2)]);
        let id = world.send(key, &format!("plan {plan}")).await;
        world.settle(&[id]).await;
        ids.push(id);
        world.pass(pace.pause).await;
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
    let steps = world.store.read_steps(key, 0, 10_000).await;
    let steps = steps.expect("it answers");
    let before = ids.iter().map(|id| {
        let own = steps.iter().filter(|step| step.send_id == *id);
        let mut behind = own.skip_while(|step| step.refs.fold.is_none());
        behind.any(|step| step.refs.round.is_some())
    });
    Had {
        took,
        folds,
        asked: asked.count(),
        before: before.collect(),
    }
}

/// What each send lost against the same conversation without folds, and that with them.
async fn lost(pace: Pace) -> (Vec<Duration>, Had) {
    let plain = had(FoldStrategy::None, pace).await;
    assert_eq!(plain.folds, 0);
    let folding = had(FoldStrategy::Summary, pace).await;
    let lost = folding.took.iter().zip(&plain.took);
    let lost = lost.map(|(with, without)| with.saturating_sub(*without));
    (lost.collect(), folding)
}

fn p99(lost: &[Duration]) -> Duration {
    let mut sorted = lost.to_vec();
    sorted.sort();
    sorted[sorted.len() * 99 / 100]
}

/// Tells it straight to the terminal: the harness shows what is printed only when a test fails.
fn tell(said: &str) {
    let told = std::io::stderr().write_all(said.as_bytes());
    told.expect("standard error is open");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_fold_beside_the_conversation() {
    let (lost, Had { folds, asked, .. }) = lost(Pace::of(Duration::from_secs(3))).await;
    let p99 = p99(&lost);
    tell(&format!(
        "long sends: {folds} folds of {asked} calls; lost p99 {p99:?}\n"
    ));
    assert!(folds >= 10, "{folds} folds");
    assert!(lost.iter().all(Duration::is_zero), "{lost:?}");
}

/// Where every send is over before a fold is written, it is written while the session is at rest.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_fold_behind_a_short_send() {
    let (lost, Had { folds, asked, .. }) = lost(Pace::of(Duration::from_millis(500))).await;
    let waited = lost.iter().filter(|lost| !lost.is_zero()).count();
    tell(&format!(
        "short sends: {folds} folds of {asked} calls; {waited} lost anything\n"
    ));
    assert!(folds >= 10, "{folds} folds");
    assert_eq!(waited, 0, "{lost:?}");
    assert_eq!(asked, folds, "a fold was written in vain");
}

/// Where nobody ever pauses, what was begun at rest is late, and a fold is written before a model is asked: its send
/// takes longer by that, and says so.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_fold_before_a_call_waits_once_and_is_told() {
    let pace = Pace {
        works: Duration::from_millis(10),
        pause: Duration::ZERO,
    };
    let (lost, had) = lost(pace).await;
    let (p99, most) = (p99(&lost), lost.iter().max().copied());
    let waited = lost.iter().filter(|lost| !lost.is_zero()).count();
    tell(&format!(
        "sends without a pause: {} folds of {} calls; {waited} of {SENDS} lost something, p99 {p99:?}, {most:?} at \
         most\n",
        had.folds, had.asked,
    ));
    assert!(had.folds >= 10 && waited >= 10, "{waited} waited");
    for (n, (lost, before)) in lost.iter().zip(&had.before).enumerate() {
        assert_eq!(!lost.is_zero(), *before, "send {n} lost {lost:?}");
        assert!(
            *lost <= WRITES + Duration::from_millis(100),
            "{n}: {lost:?}"
        );
    }
}

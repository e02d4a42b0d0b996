//! How long a client waits for folds: the duration of each send of a conversation, compared with
//! the same conversation without folds.

use std::io::Write as _;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ContextSpec, FoldSpec, FoldStrategy};
use mainspring_shared::id::SendId;
use mainspring_shared::send::SendStatus;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{ModelBehaviour, World};
use mainspring_worker::llm::FactsOverride;
use serde_json::json;

/// How long a model takes to write a fold.
const WRITES: Duration = Duration::from_secs(4);

const SENDS: u64 = 120;

/// The pace of a conversation.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// How long its tools work in each of three rounds.
    works: Duration,
    /// How long the user is silent after an answer.
    pause: Duration,
}

impl Pace {
    const fn of(works: Duration) -> Self {
        let pause = Duration::from_secs(5);
        Self { works, pause }
    }
}

/// The measurements of a conversation.
struct Conversation {
    /// The duration of each send.
    took: Vec<Duration>,
    /// Number of folds, and of the model calls made for them.
    folds: usize,
    asked: usize,
    /// Whether each send's steps say that something was folded before its model call.
    before: Vec<bool>,
}

async fn run_conversation(strategy: FoldStrategy, pace: Pace) -> Conversation {
    let mut world = World::new().await;
    let facts = FactsOverride {
        window: Some(32_000),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.0),
        summary_chars: 2_000,
        summary_takes: WRITES,
        ..ModelBehaviour::default()
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
    Conversation {
        took,
        folds,
        asked: asked.count(),
        before: before.collect(),
    }
}

/// The extra duration of each send compared with the same conversation without folds, and the
/// conversation with folds.
async fn lost(pace: Pace) -> (Vec<Duration>, Conversation) {
    let plain = run_conversation(FoldStrategy::None, pace).await;
    assert_eq!(plain.folds, 0);
    let folding = run_conversation(FoldStrategy::Summary, pace).await;
    let lost = folding.took.iter().zip(&plain.took);
    let lost = lost.map(|(with, without)| with.saturating_sub(*without));
    (lost.collect(), folding)
}

fn p99(lost: &[Duration]) -> Duration {
    let mut sorted = lost.to_vec();
    sorted.sort();
    sorted[sorted.len() * 99 / 100]
}

/// Writes to stderr directly: the harness shows printed output only when a test fails.
fn tell(said: &str) {
    let told = std::io::stderr().write_all(said.as_bytes());
    told.expect("standard error is open");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_fold_beside_the_conversation() {
    let (lost, Conversation { folds, asked, .. }) = lost(Pace::of(Duration::from_secs(3))).await;
    let p99 = p99(&lost);
    tell(&format!(
        "long sends: {folds} folds of {asked} calls; lost p99 {p99:?}\n"
    ));
    assert!(folds >= 10, "{folds} folds");
    assert!(lost.iter().all(Duration::is_zero), "{lost:?}");
}

/// If every send is over before a fold is written, the fold is written while the session is idle.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_fold_behind_a_short_send() {
    let (lost, Conversation { folds, asked, .. }) =
        lost(Pace::of(Duration::from_millis(500))).await;
    let waited = lost.iter().filter(|lost| !lost.is_zero()).count();
    tell(&format!(
        "short sends: {folds} folds of {asked} calls; {waited} lost anything\n"
    ));
    assert!(folds >= 10, "{folds} folds");
    assert_eq!(waited, 0, "{lost:?}");
    assert_eq!(asked, folds, "a fold was written in vain");
}

/// If the user never pauses, a fold started in an idle session is late, and a fold is written
/// before a model call: its send takes longer by that, and says so.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_fold_before_a_call_waits_once_and_is_told() {
    let pace = Pace {
        works: Duration::from_millis(10),
        pause: Duration::ZERO,
    };
    let (lost, conversation) = lost(pace).await;
    let (p99, most) = (p99(&lost), lost.iter().max().copied());
    let waited = lost.iter().filter(|lost| !lost.is_zero()).count();
    tell(&format!(
        "sends without a pause: {} folds of {} calls; {waited} of {SENDS} lost something, p99 {p99:?}, {most:?} at \
         most\n",
        conversation.folds, conversation.asked,
    ));
    assert!(conversation.folds >= 10 && waited >= 10, "{waited} waited");
    for (n, (lost, before)) in lost.iter().zip(&conversation.before).enumerate() {
        assert_eq!(!lost.is_zero(), *before, "send {n} lost {lost:?}");
        assert!(
            *lost <= WRITES + Duration::from_millis(100),
            "{n}: {lost:?}"
        );
    }
}

//! Faults at every write: of sends with a fold in parallel, of sends whose own rounds are folded,
//! and of folds after the end of a send; two workers that fold the same session; and a provider
//! that does everything providers do to long conversations. In the end the transcript is as if
//! nothing had happened, and what was accounted is what the provider billed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{
    AgentSpec, ContextSpec, FoldSpec, FoldStrategy, OnTruncation, SendOptions,
};
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{ContentPart, Role};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::step::{Step, StepKind};
use mainspring_shared::store::DumpSession;
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::usage::{Purpose, Usage};
use mainspring_tests::pairing;
use mainspring_tests::suites::store::harness::environment;
use mainspring_tests::world::{
    Backing, Fault, FaultPlan, Faulty, ModelBehaviour, World, alone, differences, essence,
};
use mainspring_worker::llm::FactsOverride;
use serde_json::{Value, json};

/// A world whose model has a window of this many tokens.
async fn world_over(backing: &Backing, window: u64, takes: Duration) -> World {
    let mut world = World::over(backing, |_, _, _| {}).await;
    let facts = FactsOverride {
        window: Some(window),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.0),
        summary_chars: 400,
        summary_takes: takes,
        ..ModelBehaviour::default()
    });
    world
}

fn agent(soft: f64, hard: f64) -> AgentSpec {
    AgentSpec {
        tools: ["look", "put"]
            .map(|name| ToolEntry::Named(name.into()))
            .into(),
        max_tokens: Some(1_000),
        context: ContextSpec {
            fold: FoldSpec {
                strategy: FoldStrategy::Summary,
                soft: Some(soft),
                hard: Some(hard),
                keep_sends: Some(1),
                ..FoldSpec::default()
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

async fn session_of(world: &World, key: SessionKey) -> DumpSession {
    let sessions = world.dump().await.sessions;
    let mut mine = sessions.into_iter().filter(|session| session.key == key);
    mine.next().expect("it is there")
}

/// The essence of a world without everything that folds affect: what they cost, and which there
/// are.
async fn beside_folds(world: &World) -> Value {
    let mut all = essence(&world.dump().await);
    for session in all["sessions"].as_array_mut().expect("sessions") {
        for member in ["folds", "usage_rows", "spent"] {
            session.as_object_mut().expect("a session").remove(member);
        }
        for send in session["sends"].as_array_mut().expect("sends") {
            send.as_object_mut().expect("a send").remove("usage");
        }
    }
    all
}

/// Asserts that the session's usage rows match the provider's bills, except for up to `lost`
/// answers that died with the worker that requested them.
async fn paid(world: &World, key: SessionKey, lost: usize) {
    let session = session_of(world, key).await;
    let rows = session.usage.len();
    let (answers, _) = world.script.billed();
    assert!(
        rows <= answers && answers <= rows + lost,
        "{rows} rows of {answers} answers"
    );
    for fold in &session.folds {
        let (from, to) = (fold.from_seq, fold.to_seq);
        assert!(from <= to && fold.n > 0, "{fold:?}");
    }
    let mut shown: Vec<_> = session
        .folds
        .iter()
        .filter(|fold| fold.covered_by.is_none())
        .map(|fold| (fold.from_seq, fold.to_seq))
        .collect();
    shown.sort_unstable();
    assert!(
        shown.windows(2).all(|pair| pair[0].1 < pair[1].0),
        "two folds stand for the same: {shown:?}"
    );
    for asked in world.script.ledger() {
        pairing::stored(&asked.messages).expect("no call is parted from its result");
    }
    world.audit().await;
}

/// Asserts that they match exactly, to the token.
async fn paid_all(world: &World, key: SessionKey) {
    paid(world, key, 0).await;
    let (_, billed) = world.script.billed();
    let usage = world.store.session_usage(key).await.expect("it answers");
    let mut sum = Usage::default();
    for model in usage.expect("it is there").own {
        sum.add(&model.usage);
    }
    assert_eq!(
        (sum.input_tokens, sum.output_tokens),
        (billed.input_tokens, billed.output_tokens)
    );
}

/// Asserts that each answer that wrote a fold has its row, and so has each aborted call for one, by
/// estimate.
async fn folds_paid(world: &World, key: SessionKey) {
    let session = session_of(world, key).await;
    let rows = session.usage.iter().zip(&session.paid);
    let rows = rows.filter(|((_, round, _), _)| *round < 0);
    let (broken, whole): (Vec<_>, Vec<_>) = rows.partition(|(_, usage)| usage.estimated);
    let tokens = |usage: &Usage| (usage.input_tokens, usage.output_tokens);
    let mut rows: Vec<_> = whole.into_iter().map(|(_, usage)| tokens(usage)).collect();
    let bills = world.script.bills();
    let bills = bills.iter().filter(|bill| bill.purpose == Purpose::Fold);
    let mut bills: Vec<_> = bills.map(|bill| tokens(&bill.usage)).collect();
    rows.sort_unstable();
    bills.sort_unstable();
    assert_eq!(rows, bills);
    let asked = world.script.ledger();
    let asked = asked.iter().filter(|it| it.user.contains("<transcript>"));
    assert_eq!(broken.len() + rows.len(), asked.count());
}

/// Runs short sends until there is something to fold, then one of several rounds.
async fn conversation(
    world: &World,
    plan: FaultPlan,
    shape: Shape,
) -> (SessionKey, Option<&'static str>, usize) {
    let key = world.session(shape.agent()).await;
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
    world.worker("first", faulty.clone());
    let mut has_second = false;
    for n in 0..shape.short_sends() {
        let words = "what was decided about it, and why. ".repeat(12);
        let id = world.send(key, &format!("say {n} {words}")).await;
        world.pass(Duration::from_millis(100)).await;
        if !has_second && faulty.failed_method().is_some() {
            world.worker("second", world.store.clone());
            has_second = true;
        }
        world.settle(&[id]).await;
        if shape == Shape::AtRest {
            world.pass(Duration::from_secs(3)).await;
        }
    }
    let id = world.send(key, &shape.last_send()).await;
    world.pass(Duration::from_millis(100)).await;
    if !has_second {
        world.worker("second", world.store.clone());
    }
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    world.pass(Duration::from_secs(30)).await;
    (key, faulty.failed_method(), faulty.writes())
}

/// Where a fold is made.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Beside,
    Inside,
    AtRest,
}

impl Shape {
    const ALL: [Self; 3] = [Self::Beside, Self::Inside, Self::AtRest];

    fn agent(self) -> AgentSpec {
        match self {
            Self::Beside | Self::AtRest => agent(0.04, 0.9),
            Self::Inside => agent(0.18, 0.18),
        }
    }

    fn short_sends(self) -> usize {
        match self {
            Self::Beside | Self::Inside => 4,
            Self::AtRest => 9,
        }
    }

    fn last_send(self) -> String {
        let chars = match self {
            Self::Beside => 200,
            Self::Inside => 3_000,
            Self::AtRest => return "say that it is done".to_owned(),
        };
        let round =
            |n: u64| json!([["look", {"n": n, "chars": chars, "ms": 3_000}], ["put", {"n": n}]]);
        let rounds: Vec<Value> = (0..5).map(round).collect();
        format!("plan {}", Value::from(rounds))
    }

    /// The number of answers of all its sends.
    fn rounds(self) -> usize {
        match self {
            // A send with five rounds of calls.
            Self::Beside | Self::Inside => self.short_sends() + 6,
            Self::AtRest => self.short_sends() + 1,
        }
    }
}

/// Asserts that each round renders again exactly as it was sent, with the folds of its time.
async fn asked_again(world: &World, key: SessionKey, shape: Shape) {
    let replays = world.replayed(key).await;
    let (differ, skipped) = (&replays.differ, &replays.skipped);
    assert!(differ.is_empty() && skipped.is_empty(), "{replays:#?}");
    assert_eq!(replays.same, shape.rounds());
}

/// The final state when nothing goes wrong, and the number of writes.
fn undisturbed(backing: &Backing, shape: Shape) -> (Value, usize) {
    alone(async {
        let world = world_over(backing, 16_000, TAKES).await;
        let (key, _, writes) = conversation(&world, FaultPlan::NEVER, shape).await;
        let session = session_of(&world, key).await;
        assert!(!session.folds.is_empty(), "{shape:?}: nothing is folded");
        let last = session.sends.last().expect("it has sends").id;
        let inside = session.folds.iter().any(|fold| {
            let end = session.messages.iter().find(|it| it.seq == fold.to_seq);
            end.is_some_and(|end| end.send_id == last)
        });
        assert_eq!(inside, shape == Shape::Inside, "{:?}", session.folds);
        let at_rest = session.steps.iter().filter(|step| {
            // The session is not leased, so there is no epoch.
            step.kind == StepKind::Folded && step.epoch == 0
        });
        if shape == Shape::AtRest {
            assert!(at_rest.count() > 1, "{:?}", session.folds);
        } else {
            let folded = |step: &Step| Some((step.send_id, step.refs.round.as_ref()?.folded?));
            let stood: BTreeSet<_> = session.steps.iter().filter_map(folded).collect();
            let while_it_ran = stood.iter().filter(|(send, _)| *send == last);
            assert!(while_it_ran.count() > 1, "{shape:?}: {stood:?}");
        }
        paid_all(&world, key).await;
        folds_paid(&world, key).await;
        asked_again(&world, key, shape).await;
        (beside_folds(&world).await, writes)
    })
}

/// How long a fold takes.
const TAKES: Duration = Duration::from_secs(2);

/// Runs `dose` faults spread over all writes, each kind in turn; or, if all are requested, every
/// kind at every write.
fn disturbed(open: impl Fn() -> Backing, shape: Shape, dose: usize) {
    let (sound, writes) = undisturbed(&open(), shape);
    assert!(writes >= 10, "{shape:?}: {writes} writes");
    let is_all = environment("MAINSPRING_TEST_DEATHS").as_deref() == Some("all");
    let every = if is_all { 1 } else { (writes / dose).max(1) };
    for (turn, at) in (every / 2..writes).step_by(every).enumerate() {
        let kinds = Fault::ALL.len();
        let some = turn % kinds;
        let some = if is_all { 0..kinds } else { some..some + 1 };
        for fault in &Fault::ALL[some] {
            let backing = open();
            alone(async {
                let world = world_over(&backing, 16_000, TAKES).await;
                let plan = FaultPlan { at, fault: *fault };
                let (key, struck, _) = conversation(&world, plan, shape).await;
                let differ = differences(&beside_folds(&world).await, &sound);
                let about = format!("{shape:?} {fault:?} at {at}, {struck:?}");
                assert!(differ.is_empty(), "{about}: {differ:#?}");
                if matches!(fault, Fault::DieBefore | Fault::DieAfter) {
                    // At most the send's answer and a fold's.
                    paid(&world, key, 2).await;
                } else {
                    paid_all(&world, key).await;
                    folds_paid(&world, key).await;
                }
                asked_again(&world, key, shape).await;
            });
        }
    }
}

#[test]
fn a_fault_at_any_write_of_a_send_with_a_fold_beside_it_changes_nothing_of_the_transcript() {
    disturbed(|| Backing::Model, Shape::Beside, 30);
}

#[test]
fn a_fault_at_any_write_of_a_send_whose_rounds_are_folded_changes_nothing_of_the_transcript() {
    disturbed(|| Backing::Model, Shape::Inside, 30);
}

#[test]
fn a_fault_at_any_write_around_a_fold_at_rest_changes_nothing_of_the_transcript() {
    disturbed(|| Backing::Model, Shape::AtRest, 30);
}

#[test]
fn the_same_faults_change_nothing_on_sqlite() {
    for shape in Shape::ALL {
        disturbed(Backing::sqlite, shape, 5);
    }
}

#[test]
fn the_same_faults_change_nothing_on_postgres() {
    if Backing::has_postgres() {
        for shape in Shape::ALL {
            disturbed(|| Backing::postgres().expect("it was there"), shape, 3);
        }
    }
}

#[test]
fn the_same_faults_change_nothing_on_mysql() {
    if Backing::has_mysql() {
        for shape in Shape::ALL {
            disturbed(|| Backing::mysql().expect("it was there"), shape, 3);
        }
    }
}

/// A worker is suspended while its fold is written, and resumes after another one has folded the
/// session: its fold is not attached, and both are paid for.
async fn two_fold_at_once(backing: &Backing, shape: Shape, wakes_after: u64) {
    let world = world_over(backing, 16_000, Duration::from_secs(5)).await;
    let key = world
        .session(match shape {
            Shape::Beside => agent(0.04, 0.9),
            Shape::Inside | Shape::AtRest => agent(0.05, 0.05),
        })
        .await;
    let first = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    world.worker("first", first.clone());
    let words = "what was decided about it, and why. ".repeat(12);
    let folding = || {
        let ledger = world.script.ledger();
        ledger
            .iter()
            .filter(|it| it.user.contains("<transcript>"))
            .count()
    };
    let mut records: Vec<SendRecord> = Vec::new();
    for n in 0.. {
        let said = match shape {
            Shape::Beside if n > 3 => Shape::Beside.last_send(),
            _ => format!("say {n} {words}"),
        };
        let id = world.send(key, &said).await;
        while folding() == 0 && !world.record(id).await.status.is_final() {
            world.pass(Duration::from_millis(50)).await;
        }
        if folding() == 0 {
            continue;
        }
        // The fold is in flight; it is done five seconds later, if anybody is there to receive it.
        first.pause();
        world.worker("second", world.store.clone());
        world.pass(Duration::from_secs(wakes_after)).await;
        first.wake();
        records.extend(world.settle(&[id]).await);
        break;
    }
    assert_eq!(records[0].status, SendStatus::Completed);
    world.pass(Duration::from_secs(30)).await;
    let session = session_of(&world, key).await;
    let folds = session.folds.len();
    assert!(folds >= 1, "{shape:?} {wakes_after} s");
    if shape == Shape::Inside {
        assert_eq!(folds, 1, "{wakes_after} s: {:?}", session.folds);
    }
    // The fold that is not attached was written, too.
    folds_paid(&world, key).await;
    paid_all(&world, key).await;
}

#[test]
fn of_two_workers_that_fold_the_same_session_one_attaches_its_fold_and_both_are_paid_for() {
    for wakes_after in [2, 11, 20, 40] {
        for shape in [Shape::Beside, Shape::Inside] {
            alone(two_fold_at_once(&Backing::Model, shape, wakes_after));
        }
    }
}

#[test]
fn of_two_workers_that_fold_the_same_session_one_attaches_its_fold_on_sqlite() {
    for wakes_after in [2, 11, 20, 40] {
        for shape in [Shape::Beside, Shape::Inside] {
            alone(two_fold_at_once(&Backing::sqlite(), shape, wakes_after));
        }
    }
}

#[test]
fn of_two_workers_that_fold_the_same_session_one_attaches_its_fold_on_postgres() {
    for wakes_after in [2, 11, 20, 40] {
        for shape in [Shape::Beside, Shape::Inside] {
            if let Some(backing) = Backing::postgres() {
                alone(two_fold_at_once(&backing, shape, wakes_after));
            }
        }
    }
}

#[test]
fn of_two_workers_that_fold_the_same_session_one_attaches_its_fold_on_mysql() {
    for wakes_after in [2, 11, 20, 40] {
        for shape in [Shape::Beside, Shape::Inside] {
            if let Some(backing) = Backing::mysql() {
                alone(two_fold_at_once(&backing, shape, wakes_after));
            }
        }
    }
}

/// Runs a conversation with a provider whose window changes every few sends, whose answers are cut
/// in the middle of a call or empty, and whose folds are sometimes empty.
async fn mind_changes(backing: &Backing, strategy: FoldStrategy) {
    let world = world_over(backing, 16_000, Duration::from_millis(200)).await;
    let mut agent = agent(0.85, 0.85);
    agent.context.fold.strategy = strategy;
    agent.context.on_truncation = OnTruncation::Continue;
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let mut records = Vec::new();
    for n in 0..84_u64 {
        let window = [None, Some(12_000), Some(6_000), Some(9_000)][n as usize / 4 % 4];
        world.script.set_behaviour(ModelBehaviour {
            counts: Some(1.0),
            window,
            summary_chars: 400,
            ..ModelBehaviour::default()
        });
        let look = json!([["look", {"n": n, "chars": 5_000}]]);
        let words = "what was decided about it, and why. ".repeat(10);
        let text = match n % 7 {
            0 => format!("plan {}\n\n{words}", json!([look, look])),
            1 => format!("say {n} {words}"),
            // Cut in the middle of a call, so the call is not made.
            3 => format!("answers {}", json!([{"cut": "I begin to", "calls": look}])),
            4 => format!(
                "answers {}",
                json!([look, {"cut": "the half of it"}, " and the rest"])
            ),
            // Neither text nor calls: not an answer.
            5 => format!("answers {}", json!([{"empty": 2, "n": n}])),
            2 => format!("answers {}", json!([{"empty": 99, "n": n}])),
            _ => format!("plan {}\n\nfold empty", json!([look])),
        };
        let input = vec![ContentPart::text(text)];
        let id = world.send_parts(key, input, SendOptions::default()).await;
        records.extend(world.settle(&[id]).await);
    }
    let session = session_of(&world, key).await;
    for (n, record) in records.iter().enumerate() {
        let code = record.error.as_ref().map(|error| error.code);
        let said = session.messages.iter();
        let said = said.filter(|it| it.send_id == record.id && it.role == Role::Assistant);
        let paid = session.usage.iter();
        let paid = paid.filter(|(send, round, _)| *send == record.id && *round >= 0);
        let (said, paid) = (said.count(), paid.count());
        match n % 7 {
            3 => assert_eq!(code, Some(Code::LlmTruncated), "{record:#?}"),
            // The model is asked again, and its last output is the answer; all calls are billed.
            5 => {
                assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
                // A call that did not fit the window is not billed.
                assert!(said == 1 && (2..=3).contains(&paid), "{record:#?}");
            }
            // None of it is shown.
            2 => {
                assert_eq!(code, Some(Code::LlmBadResponse), "{record:#?}");
                assert_eq!(said, 0, "{record:#?}");
                assert!(paid > 1, "{record:#?}");
            }
            _ => assert_eq!(record.status, SendStatus::Completed, "{record:#?}"),
        }
    }
    assert!(session.folds.len() > 3, "{:?}", session.folds.len());
    paid_all(&world, key).await;
}

#[test]
fn a_provider_that_changes_its_mind_is_paid_for_what_it_said_and_no_more() {
    for strategy in [FoldStrategy::Summary, FoldStrategy::Projection] {
        alone(mind_changes(&Backing::Model, strategy));
    }
}

#[test]
fn a_provider_that_changes_its_mind_is_paid_the_same_on_databases() {
    let databases = [Some(Backing::sqlite()), Backing::postgres()];
    for backing in databases.into_iter().flatten() {
        alone(mind_changes(&backing, FoldStrategy::Summary));
    }
}

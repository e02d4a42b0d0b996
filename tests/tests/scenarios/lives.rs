//! Worker lives in simulated time: deaths in the middle of an answer, and what readers of a stream
//! see of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainspring_queue_local::{LocalBus, LocalQueue};
use mainspring_runtime::Lifecycle;
use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::budget::Budget;
use mainspring_shared::bus::WATCHED;
use mainspring_shared::event::{Delta, LiveKind};
use mainspring_shared::id::{LeaseToken, SendId, SessionKey};
use mainspring_shared::message::{Role, plain_text};
use mainspring_shared::send::{SendStatus, StopReason, WaitingOn};
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{ClaimOutcome, ClaimSession, DeliverOutcome, Role as Process};
use mainspring_shared::tool::{CallResult, ToolEntry, call_id};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use mainspring_tools::builtin::{self, Background, Settings, Shell, WorkspaceSettings};
use mainspring_worker::WorkerConfig;
use mainspring_worker::llm::{estimate_request_tokens, estimate_tokens};
use uuid::Uuid;

const NEVER: FaultPlan = FaultPlan {
    at: usize::MAX,
    fault: Fault::FailBefore,
};

pub(crate) fn faulty(world: &World) -> Arc<Faulty> {
    Arc::new(Faulty::new(world.store.clone(), NEVER))
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Creates `count` sessions with one send each.
pub(crate) async fn sends(
    world: &World,
    agent: &AgentSpec,
    count: usize,
    text: &str,
) -> Vec<SendId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let key = world.session(agent.clone()).await;
        ids.push(world.send(key, text).await);
    }
    ids
}

/// The number of steps of each kind, by session.
pub(crate) async fn steps(world: &World) -> Vec<BTreeMap<StepKind, usize>> {
    let dump = world.dump().await;
    let count = |steps: &[mainspring_shared::step::Step]| {
        let mut kinds = BTreeMap::new();
        for step in steps {
            *kinds.entry(step.kind).or_default() += 1;
        }
        kinds
    };
    dump.sessions
        .iter()
        .map(|session| count(&session.steps))
        .collect()
}

/// The text of a reader that follows the rule: pieces are put together by their offsets within a
/// round and attempt, and those of an older attempt are dropped.
fn followed(live: &[LiveKind]) -> (i32, String) {
    let (mut at, mut text) = ((-1, -1), String::new());
    for event in live {
        let (place, piece): (_, Option<&Delta>) = match event {
            LiveKind::MessageDelta(delta) => ((delta.round, delta.attempt), Some(delta)),
            LiveKind::MessageReset { round, attempt, .. } => ((*round, *attempt), None),
            LiveKind::SendStarted
            | LiveKind::RoundStarted { .. }
            | LiveKind::ReasoningDelta(_)
            | LiveKind::ModelWarning { .. }
            | LiveKind::ToolCallStarted { .. }
            | LiveKind::ToolCallProgress { .. } => continue,
        };
        if place < at {
            continue;
        }
        if place > at {
            (at, text) = (place, String::new());
        }
        if let Some(delta) = piece {
            let known = usize::try_from(delta.offset).expect("small");
            text = text.chars().take(known).collect();
            assert_eq!(text.chars().count(), known, "a gap before {delta:?}");
            text.push_str(&delta.text);
        }
    }
    (at.1, text)
}

fn resets(live: &[LiveKind]) -> Vec<(i32, String)> {
    let reset = |event: &LiveKind| match event {
        LiveKind::MessageReset {
            attempt, reason, ..
        } => Some((*attempt, reason.clone())),
        LiveKind::SendStarted
        | LiveKind::RoundStarted { .. }
        | LiveKind::MessageDelta(_)
        | LiveKind::ReasoningDelta(_)
        | LiveKind::ModelWarning { .. }
        | LiveKind::ToolCallStarted { .. }
        | LiveKind::ToolCallProgress { .. } => None,
    };
    live.iter().filter_map(reset).collect()
}

/// Many suspect sends are soon running again, and leave no trace while they wait for their turn.
#[tokio::test(start_paused = true)]
async fn suspects_do_not_hold_each_other_up() {
    let world = World::new().await;
    let ids = sends(&world, &AgentSpec::default(), 40, "sleep 60000").await;
    for n in 0..2 {
        let store = faulty(&world);
        world.worker(&format!("dies{n}"), store.clone());
        world.pass(secs(if n == 0 { 2 } else { 15 })).await;
        store.kill();
    }
    world.pass(secs(1)).await;
    let _last = world.worker("last", world.store.clone());
    let begun = world.record(ids[0]).await.created_at;
    for record in world.settle(&ids).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        let took = record.finished_at.expect("final").since(begun);
        assert!(took < secs(300), "{took:?}");
    }
    for kinds in steps(&world).await {
        assert!(kinds[&StepKind::Resumed] <= 3, "{kinds:?}");
    }
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn readers_can_tell_an_answer_from_one_that_a_death_broke_off() {
    let world = World::new().await;
    let zombie = faulty(&world);
    let _first = world.worker("first", zombie.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "stream 40x1000").await;
    world.pass(secs(6)).await;
    // The paused worker keeps streaming until it notices that its lease has expired.
    zombie.pause();
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!((record.status, record.attempts), (SendStatus::Completed, 2));
    let live = world.live(key);
    assert_eq!(resets(&live), [(2, "takeover".to_owned())]);
    let (attempt, text) = followed(&live);
    assert_eq!(attempt, 2);
    assert_eq!(Some(text), record.output_text);
    world.audit().await;
}

/// The cost of an aborted attempt, and the fact that it was made, are stored before the next
/// attempt starts.
#[tokio::test(start_paused = true)]
async fn attempts_that_broke_off_before_a_death_are_numbered_and_paid() {
    let world = World::new().await;
    let store = faulty(&world);
    let _first = world.worker("first", store.clone());
    let agent = AgentSpec {
        budget: Some(Budget {
            tokens: Some(100_000),
            ..Budget::default()
        }),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let id = world.send(key, "break 2").await;
    while world.script.calls("break 2") < 3 {
        world.pass(Duration::from_millis(100)).await;
    }
    world.pass(secs(1)).await;
    store.kill();
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!((record.status, record.attempts), (SendStatus::Completed, 4));
    let live = world.live(key);
    let numbers: Vec<_> = resets(&live)
        .into_iter()
        .map(|(attempt, _)| attempt)
        .collect();
    assert_eq!(numbers, [2, 3, 4]);
    assert_eq!(followed(&live).0, 4);
    let dump = world.dump().await;
    let rows = dump.sessions[0].usage.iter().map(|(.., attempt)| *attempt);
    assert_eq!(rows.collect::<Vec<_>>(), [1, 2, 4]);
    // Two aborted attempts, one that may have been answered counted at its maximum, and the answer.
    assert!(record.usage.output_tokens > 4_000, "{:?}", record.usage);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_send_that_goes_on_says_why() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "fail-late 1").await;
    world.settle(&[id]).await;
    assert_eq!(resets(&world.live(key)), [(2, "retry".to_owned())]);
    let mut agent = AgentSpec::default();
    agent.tools.push(ToolEntry::Named("ask_person".into()));
    let key = world.session(agent).await;
    let id = world
        .send(key, r#"plan [[["ask_person", {"question": "?"}]]]"#)
        .await;
    while world.record(id).await.waiting_on != Some(WaitingOn::Human) {
        world.pass(Duration::from_millis(50)).await;
    }
    let call = call_id(id, 0, 0);
    let answer = CallResult::text("yes");
    world
        .post(
            key,
            &call,
            mainspring_shared::store::CallAnswer::Result(answer),
        )
        .await;
    world.settle(&[id]).await;
    assert_eq!(resets(&world.live(key)), [(1, "result".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn who_comes_late_is_told_what_was_streamed_so_far() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "stream 20x1000").await;
    // Between two pieces.
    world.pass(Duration::from_millis(10_500)).await;
    let before = world.live(key).len();
    for _ in 0..5 {
        world.signal(key, WATCHED);
    }
    let record = world.settle(&[id]).await.remove(0);
    let late = world.live(key).split_off(before);
    let whole = late
        .iter()
        .filter(|event| matches!(event, LiveKind::MessageDelta(delta) if delta.offset == 0));
    assert!((1..=2).contains(&whole.count()), "{late:?}");
    assert_eq!(Some(followed(&late).1), record.output_text);
}

/// The process's own clock ends its work before others may take it over, even if the database never
/// answers again.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_ends_its_runs_in_time() {
    for pause_after in [100, 3_200, 3_400, 5_000] {
        let world = World::new().await;
        let store = faulty(&world);
        let _worker = world.worker("w", store.clone());
        let key = world.session(AgentSpec::default()).await;
        world.send(key, "sleep 3600000").await;
        world.pass(Duration::from_millis(pause_after)).await;
        // From here on the store answers nothing.
        store.pause();
        world.pass(secs(60)).await;
        let given_up = world.script.given_up("sleep 3600000");
        let paused = Duration::from_millis(pause_after);
        let [at] = given_up[..] else {
            panic!("given up {given_up:?}");
        };
        assert!(
            at > paused && at <= paused + secs(8) + Duration::from_millis(600),
            "{at:?}"
        );
    }
}

/// A lease counts from before it was requested. If it is nearly over when the reply arrives, the
/// process must not use it: others would declare it dead in the middle of the first call.
#[tokio::test(start_paused = true)]
async fn a_registration_that_is_answered_too_late_is_no_life() {
    for late in [7_900, 8_100, 9_900, 30_000] {
        let world = World::new().await;
        let store = faulty(&world);
        let (clock, late) = (world.clock(), Duration::from_millis(late));
        store.then("register_boot", async move { clock.sleep(late).await });
        let _slow = world.worker("slow", store.clone());
        let key = world.session(AgentSpec::default()).await;
        let send = world.send(key, "sleep 20000").await;
        // It claims the session before there is another worker.
        world.pass(late + Duration::from_millis(300)).await;
        let _other = world.worker("other", world.store.clone());
        let records = world.settle(&[send]).await;
        assert_eq!(records[0].status, SendStatus::Completed, "{late:?}");
        assert_eq!(
            (records[0].crashes, records[0].attempts),
            (0, 1),
            "{late:?}"
        );
        assert_eq!(
            world.script.given_up("sleep 20000"),
            [Duration::ZERO; 0],
            "{late:?}"
        );
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_works_on_is_given_back() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(secs(1)).await;
    let boots = world.dump().await.boots;
    let worker = boots.iter().find(|boot| boot.role == Process::Worker);
    let boot = worker.expect("it is registered").id;
    let busy = world.session(AgentSpec::default()).await;
    let running = world.send(busy, "sleep 30000").await;
    let key = world.session(AgentSpec::default()).await;
    // Grant the session to the process by a claim that it does not know of, before any job is
    // enqueued.
    let claim = ClaimSession {
        cached_fold_end: 0,
        key,
        token: LeaseToken(Uuid::from_u128(77)),
        cached_next_seq: 0,
        cached_from_seq: 0,
        cached_version: 0,
        crashes_below: i32::MAX,
        orphans: true,
    };
    let id = world.accept(key, "hello").await;
    let claimed = world.store.claim_sessions(boot, vec![claim]).await;
    assert!(matches!(
        claimed.expect("never fails")[..],
        [ClaimOutcome::Claimed(_)]
    ));
    world.pass(secs(8)).await;
    let record = world.record(id).await;
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(record.crashes, 0);
    // A session that is being worked on stays.
    let record = world.settle(&[running]).await.remove(0);
    assert_eq!(record.attempts, 1);
    world.audit().await;
}

/// Two messages in quick succession: the second is already in the inbox when it is read, and its
/// signal is still raised when the answer ends.
#[tokio::test(start_paused = true)]
async fn words_that_were_told_are_not_waited_for_again() {
    for mode in [OnBusy::Steer, OnBusy::Interrupt] {
        let world = Arc::new(World::new().await);
        let store = faulty(&world);
        let _worker = world.worker("w", store.clone());
        let key = world.session(AgentSpec::default()).await;
        let id = world
            .send(
                key,
                r#"answers [{"ms": 5000, "text": "one"}, "two", "three"]"#,
            )
            .await;
        world.pass(secs(1)).await;
        let other = world.clone();
        store.then("append_rounds", async move {
            other.deliver(key, "second", mode).await;
        });
        world.deliver(key, "first", OnBusy::Interrupt).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed);
        assert_sound_prompts(&world, key).await;
        let said = said(&world, key).await;
        assert!(said.contains(&"first".to_owned()) && said.contains(&"second".to_owned()));
        assert_eq!(record.rounds, 1, "{said:?}");
        world.audit().await;
    }
}

/// Messages that arrive at any moment of an answer, especially at its end.
#[tokio::test(start_paused = true)]
async fn words_at_any_instant_leave_prompts_that_end_with_a_question() {
    for offset in (0..1_500).step_by(7) {
        let world = World::new().await;
        let _worker = world.worker("w", world.store.clone());
        let key = world.session(AgentSpec::default()).await;
        let id = world.send(key, "sleep 1000").await;
        world.pass(Duration::from_millis(offset)).await;
        say(&world, key, "sleep 20", OnBusy::Interrupt).await;
        world.pass(Duration::from_millis(offset % 40)).await;
        say(&world, key, "sleep 30", OnBusy::Steer).await;
        say(&world, key, "sleep 10", OnBusy::Interrupt).await;
        world.settle(&[id]).await;
        world.pass(secs(5)).await;
        assert_sound_prompts(&world, key).await;
        assert_eq!(said(&world, key).await.len(), 4);
        world.audit().await;
    }
}

/// Delivers a message, as a send of its own if nothing is running.
async fn say(world: &World, key: SessionKey, text: &str, mode: OnBusy) {
    if let DeliverOutcome::Idle = world.deliver(key, text, mode).await {
        world.send(key, text).await;
    }
}

/// The user messages of a session.
async fn said(world: &World, key: SessionKey) -> Vec<String> {
    let dump = world.dump().await;
    let session = dump.sessions.iter().find(|session| session.key == key);
    let messages = &session.expect("it exists").messages;
    let said = messages.iter().filter(|message| message.role == Role::User);
    said.map(|message| plain_text(&message.content)).collect()
}

/// Asserts that no prompt ends with an answer, and that no two answers follow each other.
async fn assert_sound_prompts(world: &World, key: SessionKey) {
    for asked in world.script.ledger() {
        let last = asked.transcript.last().map(|(role, _)| *role);
        assert_eq!(last, Some(Role::User), "{:?}", asked.transcript);
    }
    let dump = world.dump().await;
    let session = dump.sessions.iter().find(|session| session.key == key);
    let roles: Vec<_> = session
        .expect("it exists")
        .messages
        .iter()
        .map(|m| m.role)
        .collect();
    let twice = roles
        .windows(2)
        .any(|pair| pair == [Role::Assistant, Role::Assistant]);
    assert!(!twice, "{roles:?}");
}

/// When a worker's run of a send crashes, its cost and the messages it was given are kept.
#[tokio::test(start_paused = true)]
async fn a_defect_keeps_what_was_spent_and_told() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "sleep 5000").await;
    world.pass(secs(1)).await;
    // The interrupted call is paid for; the call that follows it crashes.
    world.deliver(key, "crash", OnBusy::Interrupt).await;
    world.pass(secs(1)).await;
    world.deliver(key, "later", OnBusy::Steer).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.stop_reason, Some(StopReason::Internal));
    assert_eq!(said(&world, key).await, ["sleep 5000", "crash", "later"]);
    let dump = world.dump().await;
    let rows = dump.sessions[0].usage.iter().map(|(.., attempt)| *attempt);
    assert_eq!(rows.collect::<Vec<_>>(), [1, 2]);
    let usage = record.usage;
    // Nothing was said before the interruption.
    assert!(usage.estimated && usage.input_tokens > 0, "{usage:?}");
    assert_eq!(
        usage.output_tokens,
        estimate_tokens("some words of an answer")
    );
    world.audit().await;
}

/// A provider bills what it has read and written when it breaks off: by its own count, if it has told one.
#[tokio::test(start_paused = true)]
async fn a_broken_answer_is_paid_for_as_it_was_counted_or_by_estimate() {
    for counted in [11, 0] {
        let world = World::new().await;
        let _worker = world.worker("w", world.store.clone());
        let key = world.session(AgentSpec::default()).await;
        let id = world.send(key, &format!("counted {counted}")).await;
        let usage = world.settle(&[id]).await.remove(0).usage;
        let asked = world.script.ledger();
        assert_eq!(asked.len(), 2);
        let estimate = estimate_request_tokens(&asked[0].request);
        // The second answer counts ten tokens, and writes five.
        let input = if counted == 0 { estimate } else { counted };
        assert_eq!(usage.input_tokens, 10 + input);
        let half = estimate_tokens("{\"path\": \"half of a call");
        assert_eq!(usage.output_tokens, 5 + half);
        assert!(usage.estimated);
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_stopped_loses_no_attempt_and_counts_none() {
    let world = World::new().await;
    let config = WorkerConfig {
        drain_timeout: secs(1),
        ..WorkerConfig::default()
    };
    let first = world.worker_with(config, world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "stream 10x1000").await;
    world.pass(secs(4)).await;
    first.stop();
    world.pass(secs(3)).await;
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!((record.status, record.crashes), (SendStatus::Completed, 0));
    assert_eq!(record.attempts, 2);
    let live = world.live(key);
    assert_eq!(resets(&live), [(2, "handover".to_owned())]);
    assert_eq!(Some(followed(&live).1), record.output_text);
    world.audit().await;
}

/// Runs in real time because the command is a real one.
#[tokio::test]
async fn the_news_of_a_commands_end_outlasts_an_outage() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = None;
    let world = World::with_tools(|tools, model, clock| {
        let faulty = Arc::new(Faulty::new(model.clone(), NEVER));
        store = Some(faulty.clone());
        let background = Background {
            store: faulty,
            queue: Arc::new(LocalQueue::new()),
            bus: Arc::new(LocalBus::new()),
            lifecycle: Lifecycle::new(),
        };
        let settings = Settings {
            workspace: Some(WorkspaceSettings::shared(dir.path())),
            shell: Shell::Local,
            environment: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            background: Some(background),
            ..Settings::default()
        };
        builtin::register(settings, clock.clone(), tools).expect("new names");
    })
    .await;
    let store = store.expect("it was made");
    let _worker = world.worker("w", world.store.clone());
    let mut agent = AgentSpec::default();
    agent.tools.push(ToolEntry::Named("command_start".into()));
    let key = world.session(agent).await;
    let plan = r#"plan [[["command_start", {"command": "sleep 1; echo over"}]]]"#;
    let id = world.send(key, plan).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    // The list has the command's end, and then the database is away for a while.
    let away = store.clone();
    store.then("write_list", async move { away.set_unavailable(true) });
    world.pass(secs(2)).await;
    let inbox = |dump: mainspring_shared::store::Dump| dump.sessions[0].inbox.len();
    assert_eq!(inbox(world.dump().await), 0, "it was to be away by now");
    store.set_unavailable(false);
    world.pass(secs(3)).await;
    let dump = world.dump().await;
    assert_eq!(dump.sessions[0].inbox.len(), 1);
    let text = plain_text(&dump.sessions[0].inbox[0].content);
    assert!(text.contains("over"), "{text}");
}

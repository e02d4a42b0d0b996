//! Processes whose clocks are wrong: only the database's clock decides when anything is due.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::id::{SessionKey, TenantId, TimerId};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{CreateTimerOutcome, NewTimer};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::timer::{
    CatchUp, Fate, First, Merge, Occurrence, Schedule, TimerRule, TimerStatus, TimerTarget,
};
use mainspring_shared::workflow::run::RunStatus;
use mainspring_tests::world::World;
use serde_json::json;
use uuid::Uuid;

const SECOND: Duration = Duration::from_secs(1);

/// An hour, in milliseconds.
const HOUR: i64 = 3_600_000;

/// Longest acceptable delay of an occurrence: schedulers check at least every quarter of a second.
const LATE: Duration = Duration::from_millis(300);

const SESSIONS: usize = 5;

/// Number of one-shot timers of each kind.
const ONCE: u64 = 20;

/// Number of occurrences of each recurring timer.
const TIMES: u32 = 6;

/// Two schedulers and two workers, one of each an hour ahead of the database and one an hour
/// behind.
async fn world() -> World {
    let mut world = World::new().await;
    world.leave_to_schedulers();
    for (name, skew) in [("early", HOUR), ("late", -HOUR)] {
        world.skew(skew);
        world.scheduler(name, world.store.clone()).await;
        world.worker(name, world.store.clone());
    }
    world
}

fn timer(id: usize, session: SessionKey, schedule: Schedule) -> NewTimer {
    NewTimer {
        id: TimerId(Uuid::from_u128(0x71_0000 + id as u128)),
        tenant: TenantId::DEFAULT,
        target: TimerTarget::Send {
            session: session.session,
            input: vec![ContentPart::text(format!("timer {id}"))],
            options: Box::new(SendOptions::default()),
        },
        rule: TimerRule {
            catch_up: CatchUp::All,
            on_busy: Merge::Enqueue,
            max_occurrences: schedule.is_recurring().then_some(TIMES),
            ..TimerRule::new(schedule)
        },
        armed_max: None,
    }
}

/// Asserts that every occurrence fired on time.
fn in_time(occurrences: &[Occurrence]) {
    for one in occurrences {
        assert_eq!(one.fate, Fate::Fired, "{one:?}");
        assert!(one.fired_at >= one.due_at, "early: {one:?}");
        assert!(one.fired_at.since(one.due_at) < LATE, "late: {one:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_schedulers_whose_clocks_are_two_hours_apart_fire_in_time_and_once() {
    let world = world().await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(world.session(AgentSpec::default()).await);
    }
    let now = world.store.now().await.expect("never fails");
    let schedules = (0..ONCE).flat_map(|n| {
        let wait = SECOND * 5 + SECOND * n as u32 / 2;
        let every = Schedule::Every {
            every: Span(SECOND * (2 + n as u32 % 3)),
            first: Some(First::After(Span(wait))),
        };
        [
            Schedule::At(now.after(wait)),
            Schedule::After(Span(wait)),
            every,
        ]
    });
    let timers = schedules
        .enumerate()
        .map(|(n, schedule)| (timer(n, sessions[n % SESSIONS], schedule), None));
    let made = world.store.create_timers(timers.collect()).await;
    for outcome in made.expect("never fails") {
        assert!(
            matches!(outcome, CreateTimerOutcome::Created(_)),
            "{outcome:?}"
        );
    }
    world.pass(SECOND * 4).await;
    assert!(
        world
            .dump()
            .await
            .timers
            .iter()
            .all(|(_, fired)| fired.is_empty()),
        "early"
    );
    world.pass(SECOND * 60).await;
    let mut sends = Vec::new();
    for (timer, occurrences) in world.dump().await.timers {
        let wanted = if timer.rule.schedule.is_recurring() {
            TIMES as usize
        } else {
            1
        };
        assert_eq!(occurrences.len(), wanted, "{timer:?}");
        assert_eq!(timer.state.status, TimerStatus::Done, "{timer:?}");
        in_time(&occurrences);
        sends.extend(occurrences.iter().filter_map(|one| one.send_id));
    }
    assert_eq!(sends.len(), ONCE as usize * (2 + TIMES as usize));
    for record in world.settle(&sends).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:?}");
    }
    // Leases use the database's clock, too: nobody took a session from a live worker.
    assert_eq!(world.script.ledger().len(), sends.len());
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn waits_delays_and_deadlines_are_measured_by_the_database() {
    let world = world().await;
    let key = world.session(AgentSpec::default()).await;
    let options = SendOptions {
        delay: Some(Span(SECOND * 30)),
        ..SendOptions::default()
    };
    let delayed = world.send_with(key, "delayed", options).await;
    let other = world.session(AgentSpec::default()).await;
    let options = SendOptions {
        deadline: Some(Span(SECOND * 20)),
        ..SendOptions::default()
    };
    let slow = world.send_with(other, "sleep 3600000", options).await;
    let leaf = |id: &str, ms: u32| {
        json!({ "type": "agent", "id": id, "input": format!("sleep {ms}"), "timeout": 10,
                "spec": { "name": "a", "system_prompt": "work" } })
    };
    let spec = json!({ "name": "slow", "root": { "type": "sequence", "steps": [
        leaf("quick", 9_000), { "type": "wait", "id": "pause", "seconds": 40 },
        { "type": "parallel", "on_error": "continue", "branches": [leaf("slow", 60_000)] },
    ]}});
    let run = world.start_run(&spec, None).await;
    let run = world.settle_run(run).await;
    let ended = world.settle(&[delayed, slow]).await;
    let took = |from: Timestamp, to: Option<Timestamp>| to.expect("it ended").since(from);
    let waited = took(ended[0].created_at, ended[0].started_at);
    assert_eq!(ended[0].status, SendStatus::Completed);
    assert!((SECOND * 30..SECOND * 32).contains(&waited), "{waited:?}");
    let worked = took(ended[1].created_at, ended[1].finished_at);
    assert_eq!(ended[1].status, SendStatus::Failed, "{:?}", ended[1]);
    assert!((SECOND * 20..SECOND * 22).contains(&worked), "{worked:?}");
    assert_eq!(run.status, RunStatus::Completed, "{run:?}");
    assert_eq!((run.counts.completed, run.counts.failed), (1, 1), "{run:?}");
    let all = took(run.started_at.expect("it began"), run.finished_at);
    assert!((SECOND * 59..SECOND * 63).contains(&all), "{all:?}");
    world.audit().await;
}

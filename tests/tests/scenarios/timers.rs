//! Agents that set their own alarms, in simulated time: they are woken in the session that asked,
//! as its own agent, and can cancel their alarms from within it.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::message::{Role, plain_text};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::ChangeTimer;
use mainspring_shared::timer::{Occurrence, TimerChange, TimerRecord, TimerStatus};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use serde_json::{Value, json};

/// An agent with these tools only.
fn agent(tools: &[&str]) -> AgentSpec {
    AgentSpec {
        tools: tools
            .iter()
            .map(|name| ToolEntry::Named((*name).into()))
            .collect(),
        ..AgentSpec::default()
    }
}

const WAKEUPS: [&str; 3] = ["schedule_wakeup", "list_wakeups", "cancel_wakeup"];

fn answers(list: &Value) -> String {
    format!("answers {list}")
}

async fn timers(world: &World) -> Vec<(TimerRecord, Vec<Occurrence>)> {
    world.dump().await.timers
}

/// All tool results of the session, in order.
async fn said(world: &World) -> Vec<String> {
    let session = world.dump().await.sessions.remove(0);
    let tools = session.messages.iter().filter(|m| m.role == Role::Tool);
    tools.map(|m| plain_text(&m.content)).collect()
}

/// The sends of a timer that have been accepted.
fn sent(occurrences: &[Occurrence]) -> Vec<SendId> {
    occurrences.iter().filter_map(|o| o.send_id).collect()
}

/// Waits until the first timer has this many occurrences.
async fn fired(world: &World, count: usize) -> Vec<SendId> {
    for _ in 0..100_000 {
        let (_, occurrences) = timers(world).await.remove(0);
        if occurrences.len() >= count {
            return sent(&occurrences);
        }
        world.pass(Duration::from_millis(50)).await;
    }
    panic!("the timer does not fire");
}

/// Makes the agent make this call and end its turn.
async fn ask(world: &World, key: SessionKey, tool: &str, arguments: Value) {
    let list = json!([[[tool, arguments]], "done"]);
    let id = world.send(key, &answers(&list)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_woken_with_its_note() {
    let world = World::new().await;
    let key = world.session(agent(&WAKEUPS)).await;
    let _worker = world.worker("w", world.store.clone());
    let asked = json!({ "delay_seconds": 3600, "note": " look at the mail " });
    ask(&world, key, "schedule_wakeup", asked).await;
    let (timer, _) = timers(&world).await.remove(0);
    assert_eq!(
        said(&world).await,
        [format!(
            "Scheduled as {}: you are woken in 3600 s.",
            timer.id
        )]
    );
    let set = timer.created_at;
    let sends = fired(&world, 1).await;
    let record = world.settle(&sends).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert!(record.created_at.since(set) >= Duration::from_hours(1));
    assert!(record.created_at.since(set) < Duration::from_secs(3601));
    let woken = plain_text(&record.input);
    assert!(
        woken.starts_with(&format!("<timer id={}>\n", timer.id)),
        "{woken}"
    );
    assert!(woken.ends_with("\nlook at the mail\n</timer>"), "{woken}");
    let asked = world.script.ledger().pop().expect("the model was asked");
    assert_eq!(asked.user, woken);
    assert_eq!(timers(&world).await[0].0.state.status, TimerStatus::Done);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_recurring_wake_up_ends_from_inside_the_wake() {
    let world = World::new().await;
    let key = world.session(agent(&WAKEUPS)).await;
    let _worker = world.worker("w", world.store.clone());
    let asked = json!({ "delay_seconds": 60, "note": "poll", "every_seconds": 300 });
    ask(&world, key, "schedule_wakeup", asked).await;
    let (timer, _) = timers(&world).await.remove(0);
    // The first wake-up checks, the second lists, the third cancels the timer.
    let list = json!([
        "ready", "nothing new",
        [["list_wakeups", {}]], "still nothing",
        [["cancel_wakeup", { "timer_id": timer.id }]], "over",
    ]);
    let id = world.send(key, &answers(&list)).await;
    world.settle(&[id]).await;
    let sends = fired(&world, 3).await;
    let records = world.settle(&sends).await;
    let ended: Vec<_> = records.iter().map(|r| r.output_text.as_deref()).collect();
    assert_eq!(
        ended,
        [Some("nothing new"), Some("still nothing"), Some("over")]
    );
    let said = said(&world).await;
    assert!(
        said[1].starts_with(&format!("{}: in ", timer.id)),
        "{said:?}"
    );
    assert!(
        said[1].ends_with("every 5m, woke you 2 times, armed: poll"),
        "{said:?}"
    );
    assert_eq!(said[2], format!("{} is cancelled.", timer.id));
    world.pass(Duration::from_hours(2)).await;
    let (timer, occurrences) = timers(&world).await.remove(0);
    assert_eq!(
        (timer.state.status, occurrences.len()),
        (TimerStatus::Cancelled, 3)
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_has_the_tools_of_its_session_and_no_more() {
    let world = World::new().await;
    let key = world.session(agent(&["schedule_wakeup"])).await;
    let _worker = world.worker("w", world.store.clone());
    let asked = json!({ "delay_seconds": 5, "note": "x" });
    ask(&world, key, "schedule_wakeup", asked).await;
    let list = json!(["ready", [["look", {}]], "tried"]);
    let id = world.send(key, &answers(&list)).await;
    world.settle(&[id]).await;
    let sends = fired(&world, 1).await;
    let record = world.settle(&sends).await.remove(0);
    assert_eq!(record.output_text.as_deref(), Some("tried"));
    assert_eq!(world.acts.all(), []);
    let said = said(&world).await;
    assert!(said[1].contains("look"), "{said:?}");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn wake_ups_are_bounded_and_those_of_others_out_of_reach() {
    let world = World::new().await;
    let key = world.session(agent(&WAKEUPS)).await;
    let _worker = world.worker("w", world.store.clone());
    let call = json!(["schedule_wakeup", { "delay_seconds": 100, "note": "x" }]);
    let list = json!([vec![call; 13], "done"]);
    let id = world.send(key, &answers(&list)).await;
    world.settle(&[id]).await;
    let said_now = said(&world).await;
    let refused = said_now
        .iter()
        .filter(|text| text.starts_with("Not scheduled: 10"));
    assert_eq!(refused.count(), 3);
    let made = timers(&world).await;
    assert_eq!(made.len(), 10);

    let other = world.session(agent(&WAKEUPS)).await;
    let theirs = json!({ "timer_id": made[0].0.id });
    ask(&world, other, "cancel_wakeup", theirs).await;
    ask(&world, other, "cancel_wakeup", json!({ "timer_id": "7" })).await;
    ask(&world, other, "list_wakeups", json!({})).await;
    let sessions = world.dump().await.sessions;
    let session = sessions.iter().find(|s| s.key == other).expect("is there");
    let tools = session.messages.iter().filter(|m| m.role == Role::Tool);
    let told: Vec<_> = tools.map(|m| plain_text(&m.content)).collect();
    let unknown = |id: &dyn std::fmt::Display| format!("No wake-up {id} is set here.");
    assert_eq!(
        told,
        [
            unknown(&made[0].0.id),
            unknown(&7),
            "No wake-ups are set.".to_owned()
        ]
    );
    assert_eq!(timers(&world).await[0].0.state.status, TimerStatus::Armed);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn bad_arguments_are_told_to_the_model() {
    let world = World::new().await;
    let key = world.session(agent(&WAKEUPS)).await;
    let _worker = world.worker("w", world.store.clone());
    for arguments in [
        json!({ "delay_seconds": 4, "note": "x" }),
        json!({ "delay_seconds": 2_592_001, "note": "x" }),
        json!({ "delay_seconds": 5, "note": "x", "every_seconds": 1 }),
        json!({ "delay_seconds": 5, "note": "  " }),
        json!({ "delay_seconds": 5 }),
    ] {
        ask(&world, key, "schedule_wakeup", arguments).await;
    }
    assert_eq!(timers(&world).await, []);
    assert_eq!(said(&world).await.len(), 5);
    world.audit().await;
}

/// Whichever write of the worker fails, and whenever it dies: the call is repeated under the same
/// id.
#[tokio::test(start_paused = true)]
async fn one_call_sets_one_alarm_whatever_breaks() {
    for fault in Fault::ALL {
        for position in 0.. {
            let world = World::new().await;
            let key = world.session(agent(&WAKEUPS)).await;
            let plan = FaultPlan {
                fault,
                at: position,
            };
            let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
            let _first = world.worker("first", faulty.clone());
            let list = json!([
                [["schedule_wakeup", { "delay_seconds": 60, "note": "x" }]], "done", "woken",
            ]);
            let id = world.send(key, &answers(&list)).await;
            world.pass(Duration::from_secs(1)).await;
            let _second = world.worker("second", world.store.clone());
            let record = world.settle(&[id]).await.remove(0);
            assert_eq!(
                record.status,
                SendStatus::Completed,
                "{fault:?} at {position}"
            );
            assert_eq!(timers(&world).await.len(), 1, "{fault:?} at {position}");
            let sends = fired(&world, 1).await;
            let record = world.settle(&sends).await.remove(0);
            assert_eq!(
                record.status,
                SendStatus::Completed,
                "{fault:?} at {position}"
            );
            world.audit().await;
            if !faulty.fired() {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_alarm_of_a_busy_session_waits_for_its_turn() {
    let world = World::new().await;
    let key = world.session(agent(&WAKEUPS)).await;
    let _worker = world.worker("w", world.store.clone());
    let asked = json!({ "delay_seconds": 5, "note": "x", "every_seconds": 10 });
    ask(&world, key, "schedule_wakeup", asked).await;
    let list = json!([{ "ms": 60_000, "text": "that took long" }, "woken"]);
    let long = world.send(key, &answers(&list)).await;
    world.pass(Duration::from_secs(40)).await;
    let (timer, occurrences) = timers(&world).await.remove(0);
    assert!(occurrences.len() >= 3, "{occurrences:?}");
    let first = occurrences[0].send_id;
    assert!(
        occurrences.iter().all(|o| o.send_id == first),
        "one send stands for all"
    );
    world.settle(&[long]).await;
    let record = world.settle(&sent(&occurrences[..1])).await.remove(0);
    assert_eq!(record.output_text.as_deref(), Some("woken"));
    let item = ChangeTimer {
        tenant: TenantId::DEFAULT,
        id: timer.id,
        session: None,
        change: TimerChange::Cancel,
    };
    let cancelled = world.store.change_timers(vec![item]).await;
    cancelled.expect("never fails");
    world.audit().await;
}

//! Statements that wait for a hot row's lock: they see that row as it is then, and everything else
//! as it was.

use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::store::{
    CallChange, CallStep, CompleteOutcome, ParkOutcome, ParkSend, Then,
};
use mainspring_shared::tool::CallResult;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use crate::tools::{answered, asking, ids, only_calls, outside, park_on};
use crate::world::{World, answer, to, with_world};

/// Runs a step that meets a transaction which holds the lock of its hot row and has not committed
/// what it changed.
async fn meanwhile<T>(world: &World, changes: &str, step: impl Future<Output = T>) -> T {
    let connect = || PgConnection::connect(&world.settings.url);
    let mut other = connect().await.expect("connects");
    let begun = format!("BEGIN; {changes}");
    let begun = other.execute(sqlx::raw_sql(AssertSqlSafe(begun))).await;
    begun.expect("changes");
    let mut watcher = connect().await.expect("connects");
    let commits = async {
        loop {
            let waits = watcher.fetch_one(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'",
            );
            let waiting: i64 = waits.await.expect("looks").get(0);
            if waiting > 0 {
                break;
            }
        }
        other.execute("COMMIT").await.expect("commits");
    };
    futures::future::join(step, commits).await.0
}

/// What a result from outside does to a running send.
const SETTLES: &str = r#"UPDATE session_hot SET signals = signals | 8;
    UPDATE tool_calls SET result = '{"content":[{"type":"text","text":"theirs"}]}', settled_at = 1,
        waits_on = NULL"#;

#[tokio::test]
async fn a_result_that_came_first_stays_and_its_signal_is_told() {
    with_world("waits_append", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        world.append(3, asking(&claimed, [outside()])).await;
        let call_id = ids(&claimed, 1).remove(0);
        let mut late = only_calls(&claimed);
        late.changes.push(CallChange {
            call_id: call_id.clone(),
            change: CallStep::Settled(CallResult::text("ours")),
        });
        let (_, counters) = meanwhile(world, SETTLES, world.append(4, late)).await;
        assert_eq!(counters.signals, SIGNAL_RESULT);
        assert_eq!(world.signals(key).await, 0);
        let result = world.call(&call_id).await.result;
        assert_eq!(result, Some(CallResult::text("theirs")));
        world.assert_sound(4).await;
    })
    .await;
}

#[tokio::test]
async fn a_send_does_not_wait_for_what_came_while_it_was_parked() {
    with_world("waits_park", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        world.append(3, asking(&claimed, [outside()])).await;
        let park = ParkSend {
            unless: SIGNAL_RESULT,
            ..park_on(&claimed, WaitingOn::Tool)
        };
        let woken = meanwhile(world, SETTLES, world.park(4, park)).await;
        let signals = SIGNAL_RESULT;
        assert_eq!(woken, ParkOutcome::Woken { signals });
        world.assert_sound(4).await;
    })
    .await;
}

#[tokio::test]
async fn a_send_does_not_end_over_words_that_came_while_it_was_ending() {
    with_world("waits_complete", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let last = mainspring_shared::store::CompleteSend {
            unless: SIGNAL_INBOX,
            ..answer(&claimed, Then::Continue)
        };
        let steers = "UPDATE session_hot SET signals = 2";
        let kept = meanwhile(world, steers, world.try_complete(3, last)).await;
        assert_eq!(kept, CompleteOutcome::Undelivered);
        assert_eq!(world.record(send).await.status, SendStatus::Running);
        world.assert_sound(3).await;
    })
    .await;
}

/// The statement that completed the send before is still under way when it is run again: the send
/// is final by then, and its successor, which runs under the same lease, is not to be disturbed.
#[tokio::test]
async fn a_signal_for_the_next_send_does_not_keep_one_that_has_ended() {
    with_world("waits_ended", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let round = asking(&claimed, [outside()]);
        let mut last = answer(&claimed, Then::Continue);
        last.messages = answered(&round.messages[1]);
        last.messages.push(NewMessage::user(Vec::new(), 0));
        last.unless = SIGNAL_INBOX;
        let park = ParkSend {
            unless: SIGNAL_INBOX,
            ..park_on(&claimed, WaitingOn::Tool)
        };
        let ends = "UPDATE session_hot SET signals = 2;
            UPDATE sends SET status = 'completed', finished_at = 1, stop_reason = 'end'";
        let lost = meanwhile(world, ends, world.try_complete(3, last)).await;
        assert_eq!(lost, CompleteOutcome::LeaseLost);
        assert_eq!(world.signals(key).await, SIGNAL_INBOX, "it stays raised");
        let undone = "UPDATE sends SET status = 'running', finished_at = NULL, stop_reason = NULL";
        let mut other = PgConnection::connect(&world.settings.url)
            .await
            .expect("connects");
        other.execute(undone).await.expect("changes");
        let lost = meanwhile(world, ends, world.park(4, park)).await;
        assert_eq!(lost, ParkOutcome::LeaseLost);
        assert_eq!(world.signals(key).await, SIGNAL_INBOX);
    })
    .await;
}

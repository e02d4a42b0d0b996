//! Statements that wait for a hot row's lock: afterwards they see the current version of that row,
//! and everything else as of their snapshot.

use std::time::Duration;

use mainspring_shared::budget::Spent;
use mainspring_shared::id::SendId;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::store::{
    AfterSend, CallChange, CallStep, Claimed, CompleteOutcome, CompleteSend, ParkOutcome, ParkSend,
};
use mainspring_shared::time::Span;
use mainspring_shared::tool::CallResult;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use crate::postgres::tools::{answered, asking, ids, only_calls, outside, park_on};
use crate::postgres::world::{World, answer, to, with_world};

/// Runs a step while another transaction holds the lock of its hot row with uncommitted `changes`,
/// which is committed once the step waits.
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

/// The changes that a result from outside makes to a running send.
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
        let last = CompleteSend {
            unless: SIGNAL_INBOX,
            ..answer(&claimed, AfterSend::Continue)
        };
        let steers = "UPDATE session_hot SET signals = 2";
        let kept = meanwhile(world, steers, world.try_complete(3, last)).await;
        assert_eq!(kept, CompleteOutcome::Undelivered);
        assert_eq!(world.record(send).await.status, SendStatus::Running);
        world.assert_sound(3).await;
    })
    .await;
}

/// The new row has to pass the table's checks even when it is built from the row as the statement
/// found it before it waited.
#[tokio::test]
async fn a_send_ends_although_another_one_was_queued_while_it_was_ending() {
    with_world("waits_queued", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let mut delayed = to(key);
        delayed.options.delay = Some(Span(Duration::from_millis(1)));
        world.send(2, delayed).await;
        let places = "UPDATE sends SET position = 2, alarm_at = NULL WHERE position IS NULL;
            UPDATE session_hot SET pending = 1, next_position = 3";
        let last = answer(&claimed, AfterSend::Release);
        let ended = meanwhile(world, places, world.try_complete(3, last)).await;
        let CompleteOutcome::Completed(ended) = ended else {
            panic!("it ends: {ended:?}");
        };
        assert!(ended.enqueue.is_some(), "another one is queued");
        assert_eq!(world.record(send).await.status, SendStatus::Completed);
        world.assert_sound(3).await;
    })
    .await;
}

/// A statement that completes a send is retried while its first run is still under way: by then the
/// send is final, and its successor, which runs under the same lease, must not be disturbed.
#[tokio::test]
async fn a_signal_for_the_next_send_does_not_keep_one_that_has_ended() {
    with_world("waits_ended", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let round = asking(&claimed, [outside()]);
        let mut last = answer(&claimed, AfterSend::Continue);
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
        let mut other = world.connection().await;
        other.execute(undone).await.expect("changes");
        let lost = meanwhile(world, ends, world.park(4, park)).await;
        assert_eq!(lost, ParkOutcome::LeaseLost);
        assert_eq!(world.signals(key).await, SIGNAL_INBOX);
    })
    .await;
}

/// Lets no session be held without a send that runs.
async fn refuse_idle_leases(world: &World) {
    let refuses = "CREATE FUNCTION idle() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'held without a send';
        END $$;
        CREATE TRIGGER idle BEFORE UPDATE ON session_hot FOR EACH ROW
            WHEN (NEW.active = 0 AND NEW.owner_boot IS NOT NULL)
            EXECUTE FUNCTION idle()";
    let mut raw = world.connection().await;
    raw.execute(refuses).await.expect("creates the trigger");
}

/// An end that the statement for the common case, which ends nothing with a successor, does not take.
fn end(claimed: &Claimed) -> CompleteSend {
    let mut end = answer(claimed, AfterSend::Continue);
    end.totals.session = Some(Spent::default());
    end
}

/// What is in the snapshot is not what the locked hot row counts: the step looks again, and until then
/// leaves the send running.
#[tokio::test]
async fn a_send_ends_with_the_start_of_one_that_was_queued_while_it_was_ending() {
    with_world("waits_next_queued", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let mut delayed = to(key);
        delayed.options.delay = Some(Span(Duration::from_hours(1)));
        let (next, _) = world.send(1, delayed).await;
        let claimed = world.claim(2, worker, key).await;
        refuse_idle_leases(world).await;
        let places = "UPDATE sends SET position = 2, alarm_at = NULL WHERE position IS NULL;
            UPDATE session_hot SET pending = 1, next_position = 3";
        let ended = meanwhile(world, places, world.try_complete(3, end(&claimed))).await;
        let CompleteOutcome::Completed(ended) = ended else {
            panic!("it ends: {ended:?}");
        };
        let (started, counters) = ended.next.expect("the next one runs");
        assert_eq!((started.record.id, counters.pending), (next, 0));
        assert_eq!(world.record(send).await.status, SendStatus::Completed);
        assert_eq!(world.record(next).await.status, SendStatus::Running);
        world.assert_sound(3).await;
    })
    .await;
}

#[tokio::test]
async fn a_send_ends_although_the_next_one_was_cancelled_while_it_was_ending() {
    with_world("waits_next_cancelled", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        refuse_idle_leases(world).await;
        let cancels = "UPDATE sends SET status = 'cancelled', stop_reason = 'cancelled',
                finished_at = 1, position = NULL WHERE status = 'queued';
            UPDATE session_hot SET pending = 0";
        let ended = meanwhile(world, cancels, world.try_complete(3, end(&claimed))).await;
        assert_ended_alone(world, send, ended).await;
    })
    .await;
}

/// The send has ended without a next one, and the lease was given back.
async fn assert_ended_alone(world: &World, send: SendId, ended: CompleteOutcome) {
    let CompleteOutcome::Completed(ended) = ended else {
        panic!("it ends: {ended:?}");
    };
    assert!(ended.next.is_none(), "nothing is left to run");
    assert_eq!(world.record(send).await.status, SendStatus::Completed);
    let mut raw = world.connection().await;
    let owned = "SELECT count(*) FROM session_hot WHERE owner_boot IS NOT NULL";
    let owned: i64 = sqlx::query_scalar(owned)
        .fetch_one(&mut raw)
        .await
        .expect("reads");
    assert_eq!(owned, 0);
}

/// A count that is wrong holds no send back.
#[tokio::test]
async fn a_send_ends_although_the_next_one_is_never_found() {
    with_world("waits_next_missing", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let mut raw = world.connection().await;
        let counts = "UPDATE session_hot SET pending = 1";
        raw.execute(counts).await.expect("changes");
        let ended = world.try_complete(3, end(&claimed)).await;
        assert_ended_alone(world, send, ended).await;
    })
    .await;
}

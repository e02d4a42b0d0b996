//! Statements that wait for a hot row's lock: afterwards they see the current version of that row,
//! and everything else as of their snapshot.

use std::time::Duration;

use mainspring_shared::budget::Spent;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::store::{
    AfterSend, CallChange, CallStep, CompleteOutcome, Inspect as _, ParkOutcome, ParkSend,
    SweepReady,
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
        let last = mainspring_shared::store::CompleteSend {
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

/// Makes the statement that takes a next send fail once, as if it had lost to another transaction.
async fn let_a_next_send_conflict(raw: &mut PgConnection, code: &str) {
    let breaks = format!(
        "CREATE SEQUENCE met;
        CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('met') = 1 THEN
                RAISE EXCEPTION 'someone else was first' USING ERRCODE = '{code}';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER conflict BEFORE UPDATE ON session_hot FOR EACH ROW
            WHEN (OLD.active = 0 AND NEW.active = 1 AND OLD.owner_boot IS NOT NULL)
            EXECUTE FUNCTION conflict()"
    );
    let made = raw.execute(sqlx::raw_sql(AssertSqlSafe(breaks))).await;
    made.expect("breaks it");
}

/// The ends are committed even if the next send of one session, which only the lock's holder put in
/// the queue, cannot be taken.
async fn ends_although_a_next_send_conflicts(name: &str, code: &str) {
    with_world(name, async |world| {
        let worker = world.boot(0).await;
        let (hidden, open) = (world.session().await, world.session().await);
        world.send(1, to(hidden)).await;
        let mut delayed = to(hidden);
        delayed.options.delay = Some(Span(Duration::from_hours(1)));
        let (next, _) = world.send(1, delayed).await;
        world.send(1, to(open)).await;
        world.send(1, to(open)).await;
        let mut ends = Vec::new();
        for key in [hidden, open] {
            let mut end = answer(&world.claim(2, worker, key).await, AfterSend::Continue);
            // The statement that only ends sends cannot take this one: it would leave it to one
            // that sees more.
            end.totals.session = Some(Spent::default());
            ends.push(end);
        }
        let mut raw = world.connection().await;
        let_a_next_send_conflict(&mut raw, code).await;
        let places = format!(
            "UPDATE sends SET position = 2, alarm_at = NULL WHERE position IS NULL;
            UPDATE session_hot SET pending = 1, next_position = 3 WHERE session_id = '{}'",
            hidden.session.0
        );
        let ended = meanwhile(
            world,
            &places,
            world.store.at(world.time(3)).complete_sends(ends),
        )
        .await;
        let ended = ended.expect("each has its own outcome");
        let next_of = |n: usize| match &ended[n] {
            CompleteOutcome::Completed(completed) => completed.next.is_some(),
            other => panic!("not completed: {other:?}"),
        };
        assert_eq!((next_of(0), next_of(1)), (false, true));
        let met: i64 = sqlx::query_scalar("SELECT last_value FROM met")
            .fetch_one(&mut raw)
            .await
            .expect("reads");
        assert_eq!(met, 1, "the conflict was met");

        // Nobody works on the first session: its owner gives it back with its next renewal.
        let ttl = crate::postgres::world::TTL;
        let renewed = world
            .store
            .at(world.time(4))
            .renew_boot(worker, ttl, 1)
            .await;
        renewed.expect("renews");
        let owners = "SELECT session_id FROM session_hot WHERE owner_boot IS NOT NULL";
        let owned: Vec<uuid::Uuid> = sqlx::query_scalar(owners)
            .fetch_all(&mut raw)
            .await
            .expect("reads");
        assert_eq!(owned, [open.session.0]);
        let query = SweepReady {
            pool: None,
            older_than_ms: 0,
            after: None,
            limit: 10,
        };
        let swept = world.store.at(world.time(5)).sweep_ready(query).await;
        let ready = swept.expect("sweeps").sessions;
        let ready: Vec<_> = ready.iter().map(|ready| ready.key).collect();
        assert_eq!(ready, [hidden]);
        let other = world.boot(5).await;
        assert_eq!(world.claim(6, other, hidden).await.send.record.id, next);
        world.assert_sound(6).await;
    })
    .await;
}

#[tokio::test]
async fn ends_stand_although_the_next_send_was_locked() {
    ends_although_a_next_send_conflicts("waits_next_locked", "55P03").await;
}

#[tokio::test]
async fn ends_stand_although_taking_the_next_send_closed_a_cycle() {
    ends_although_a_next_send_conflicts("waits_next_deadlock", "40P01").await;
}

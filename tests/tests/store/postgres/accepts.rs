//! The two statements that accept sends: whatever the slim one can store, both must store alike.

use mainspring_shared::agent::{AgentSpec, Priority, SendOptions};
use mainspring_shared::id::{BootId, SessionId, SessionKey};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{AcceptOutcome, AcceptSend, IdempotencyKey, Target};
use mainspring_shared::time::Span;
use sqlx::Row;

use crate::postgres::world::{TENANT, World, id, new_session, to, to_target, with_world};

const SESSIONS: u64 = 24;

/// The next of a series of numbers that look random; the series is the same each time.
fn draw(state: &mut u64, below: u64) -> u64 {
    // Knuth's multiplier for 64 bits, with the upper half as the result.
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// The outcomes as text, without their sessions.
fn said(outcomes: &[AcceptOutcome]) -> Vec<String> {
    let each = outcomes.iter().map(|outcome| match outcome {
        AcceptOutcome::Accepted(it) => {
            let ready = it.enqueue.as_ref();
            let ready = ready.map(|it| (it.pool.clone(), it.priority, it.ready_since));
            let granted = it.granted.as_ref();
            let granted = granted.map(|it| {
                let ready = (&it.ready.pool, it.ready.priority, it.ready.ready_since);
                (ready, it.epoch, it.counters, it.spent, it.agent_version)
            });
            format!(
                "{:?} {} {:?} {ready:?} {granted:?}",
                it.position, it.step, it.created_at
            )
        }
        other => format!("{other:?}"),
    });
    each.collect()
}

/// The rows of sessions in their order, without ids.
async fn rows(world: &World, keys: &[SessionKey]) -> Vec<String> {
    let mut connection = world.connection().await;
    let mut all = Vec::new();
    for key in keys {
        let rows = sqlx::query(
            "SELECT (to_jsonb(h) - 'session_id' - 'owner_boot' - 'token')::text FROM session_hot h
             WHERE session_id = $1
             UNION ALL SELECT (to_jsonb(s) - 'session_id' - 'send_id')::text FROM (
                 SELECT * FROM sends WHERE session_id = $1 ORDER BY first_step) s
             UNION ALL SELECT (to_jsonb(t) - 'session_id' - 'send_id' - 'boot')::text FROM (
                 SELECT * FROM steps WHERE session_id = $1 ORDER BY n) t",
        )
        .bind(key.session.0)
        .fetch_all(&mut connection)
        .await
        .expect("reads");
        all.extend(rows.iter().map(|row| row.get::<String, _>(0)));
    }
    all
}

fn item(state: &mut u64, key: SessionKey, keeper: BootId) -> AcceptSend {
    let priority = [Priority::High, Priority::Low][draw(state, 2) as usize];
    let deadline = (draw(state, 3) == 0).then(|| {
        let millis = 1_000 + draw(state, 5_000);
        Span(std::time::Duration::from_millis(millis))
    });
    AcceptSend {
        options: SendOptions {
            priority,
            deadline,
            ..SendOptions::default()
        },
        queued_max: draw(state, 7) as i64,
        keeper: (draw(state, 2) == 0).then_some(keeper),
        ..to(key)
    }
}

#[tokio::test]
async fn both_statements_store_the_same() {
    with_world("accepts", async |world| {
        let (mut plain, mut general) = (Vec::new(), Vec::new());
        for _ in 0..SESSIONS {
            plain.push(world.session().await);
            general.push(world.session().await);
        }
        let beside = world.session().await;
        let boot = world.boot(0).await;
        // One session runs, one is closed, one does not exist, the others are idle.
        for keys in [&mut plain, &mut general] {
            world.accept(1, vec![to(keys[0])]).await;
            world.claim(2, boot, keys[0]).await;
            sqlx::query("UPDATE session_hot SET lifecycle = 1 WHERE session_id = $1")
                .bind(keys[1].session.0)
                .execute(&mut world.connection().await)
                .await
                .expect("closes");
            keys[2] = SessionKey {
                tenant: TENANT,
                session: SessionId(id()),
            };
        }
        let (mut stored, mut refused, mut granted) = (0, 0, 0);
        for turn in 0..40 {
            let seed = 77 + turn as u64;
            let group = |keys: &[SessionKey]| -> Vec<AcceptSend> {
                let mut state = seed;
                let count = 1 + draw(&mut state, 12);
                let each = (0..count).map(|_| {
                    let key = keys[draw(&mut state, SESSIONS) as usize];
                    item(&mut state, key, boot)
                });
                each.collect()
            };
            let slim = world.accept(10 + turn, group(&plain)).await;
            let mut with_key = group(&general);
            with_key.push(AcceptSend {
                idempotency: Some(IdempotencyKey {
                    tenant: TENANT,
                    route: "sends".to_owned(),
                    key: format!("k{turn}"),
                    body_hash: [1; 32],
                }),
                ..to(beside)
            });
            let mut full = world.accept(10 + turn, with_key).await;
            full.pop();
            assert_eq!(said(&slim), said(&full), "turn {turn}");
            let is_stored = |it: &&AcceptOutcome| matches!(it, AcceptOutcome::Accepted(_));
            stored += slim.iter().filter(is_stored).count();
            refused += slim.iter().filter(|it| !is_stored(it)).count();
            let is_granted = |it: &&AcceptOutcome| match it {
                AcceptOutcome::Accepted(it) => it.granted.is_some(),
                _ => false,
            };
            granted += slim.iter().filter(is_granted).count();
        }
        assert!(stored > 10 && refused > 50, "{stored} and {refused}");
        assert!(granted > 0, "{granted}");
        assert_eq!(rows(world, &plain).await, rows(world, &general).await);
        world.assert_sound(100).await;
    })
    .await;
}

/// Makes the server have no memory for any send but the first of the test.
const FAILS_LATER: &str = "
    CREATE FUNCTION fails_later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF EXISTS (SELECT FROM sends WHERE session_id = NEW.session_id) THEN
            RAISE EXCEPTION 'no memory' USING ERRCODE = '53200';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER fails_later BEFORE INSERT ON sends FOR EACH ROW EXECUTE FUNCTION fails_later()";

#[tokio::test]
async fn what_is_stored_is_told_although_the_database_fails_later_in_the_group() {
    with_world("half", async |world| {
        let other = world.session().await;
        let mut connection = world.connection().await;
        sqlx::raw_sql(FAILS_LATER)
            .execute(&mut connection)
            .await
            .expect("fails later");
        // A send to a session that the group creates needs another statement.
        let new = to_target(Target::New(Box::new(new_session(AgentSpec::default()))));
        let key = new.target.key();
        let group = vec![new, to(other), to(key)];
        let outcomes = world.store.accept_sends(BootId(id()), group).await;
        let outcomes = outcomes.expect("a part of it is stored");
        assert!(
            matches!(outcomes[0], AcceptOutcome::Accepted(_)),
            "{outcomes:?}"
        );
        assert!(
            matches!(outcomes[1], AcceptOutcome::Accepted(_)),
            "{outcomes:?}"
        );
        assert_eq!(outcomes[2], AcceptOutcome::Locked);
        // Nothing of it was stored, and all of it fails.
        let outcome = world.store.accept_sends(BootId(id()), vec![to(key)]).await;
        assert!(outcome.is_err(), "{outcome:?}");
    })
    .await;
}

#[tokio::test]
async fn what_a_boot_still_owns_that_stopped_counts_no_crash() {
    with_world("stopped", async |world| {
        for (dead_at, crashes) in [("lease_until", 0), ("lease_until + 1", 1)] {
            let (old, new) = (world.boot(0).await, world.boot(0).await);
            let key = world.session().await;
            world.accept(1, vec![to(key)]).await;
            world.claim(2, old, key).await;
            let ends = format!(
                "UPDATE boots SET dead_at = {dead_at} WHERE boot_id = '{}'",
                old.0
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(ends))
                .execute(&mut world.connection().await)
                .await
                .expect("ends");
            let claimed = world.claim(3, new, key).await;
            assert_eq!(claimed.send.record.crashes, crashes, "{dead_at}");
        }
    })
    .await;
}

//! Work under a lease.

use mainspring_shared::id::SendId;
use mainspring_shared::message::{NewMessage, Role, ToolCall};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AppendOutcome, CallBegin, ClaimOutcome, ClaimSession, CompleteOutcome, ParkOutcome, ParkSend,
    ParkUntil, ReleaseSession, Renewal, SweepReady, Then,
};
use mainspring_shared::tool::{Approval, CallRecord, CallResult, Repeat};
use serde_json::json;

use crate::tools::asking;
use crate::world::{World, answer, cold, first_round, forgetful, says, to, totals, with_world};

async fn reasons(world: &World, key: mainspring_shared::id::SessionKey) -> Vec<Option<String>> {
    let steps = world.store.read_steps(key, 0, 100).await.expect("reads");
    let resumed = steps.into_iter().filter(|s| s.kind == StepKind::Resumed);
    resumed.map(|step| step.refs.reason).collect()
}

#[tokio::test]
async fn a_completed_send_hands_its_lease_to_the_next() {
    with_world("next", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (first, _) = world.send(1, to(key)).await;
        let (second, _) = world.send(1, to(key)).await;
        world.send(1, to(key)).await;
        let mut claimed = world.claim(2, worker, key).await;
        assert_eq!(
            (claimed.send.record.id, claimed.counters.pending),
            (first, 2)
        );
        let done = world.complete(3, answer(&claimed, Then::Continue)).await;
        let (next, counters) = done.next.expect("goes on");
        assert_eq!((next.record.id, counters.pending), (second, 1));
        assert_eq!(counters.next_seq, 3);
        assert_eq!(next.record.status, SendStatus::Running);
        assert!(done.ring.is_none());
        world.assert_sound(3).await;

        claimed.send = next;
        let done = world.complete(4, answer(&claimed, Then::Release)).await;
        assert!(done.next.is_none());
        assert_eq!(
            Some(done.ring.expect("work is left").ready_since),
            world.at(4)
        );
        let lost = world.try_complete(5, answer(&claimed, Then::Release)).await;
        assert_eq!(lost, CompleteOutcome::LeaseLost);
        world.assert_sound(5).await;
    })
    .await;
}

/// What a commit promised, as a trigger saw it just before.
async fn promised(world: &World) -> Vec<String> {
    let mut connection = world.connection().await;
    let seen = sqlx::query_scalar("SELECT level FROM seen ORDER BY n");
    let seen = seen.fetch_all(&mut connection).await.expect("reads");
    sqlx::raw_sql("TRUNCATE seen")
        .execute(&mut connection)
        .await
        .expect("forgets");
    seen
}

#[tokio::test]
async fn a_claim_that_writes_a_step_is_durable_and_another_need_not_be() {
    with_world("durable", async |world| {
        let mut connection = world.connection().await;
        let watch = sqlx::raw_sql(
            "CREATE TABLE seen (n bigint GENERATED ALWAYS AS IDENTITY, level text);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO seen (level) VALUES (current_setting('synchronous_commit'));
                 RETURN NULL;
             END $$;
             CREATE CONSTRAINT TRIGGER see AFTER UPDATE ON session_hot
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see();",
        );
        watch.execute(&mut connection).await.expect("watches");
        let (old, new) = (world.boot(0).await, world.boot(20_000).await);
        let key = world.session().await;
        world.send(1, to(key)).await;
        promised(world).await;
        world.claim(2, old, key).await;
        assert_eq!(promised(world).await, ["off"]);
        world.claim(20_001, new, key).await;
        assert_eq!(promised(world).await, ["on"]);
        // It holds for that commit alone.
        let other = world.session().await;
        world.send(20_002, to(other)).await;
        promised(world).await;
        world.claim(20_003, new, other).await;
        assert_eq!(promised(world).await, ["off"]);
    })
    .await;
}

#[tokio::test]
async fn a_live_lease_is_respected_and_an_expired_one_taken_and_fenced() {
    with_world("takeover", async |world| {
        let (old, new) = (world.boot(0).await, world.boot(5_000).await);
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let stale = world.claim(2, old, key).await;
        let busy = world.try_claim(9_999, new, key).await;
        assert_eq!(busy, ClaimOutcome::Busy);

        let taken = world.claim(10_500, new, key).await;
        assert_eq!((taken.send.record.id, taken.send.record.crashes), (send, 1));
        assert!(taken.send.resumed.is_some());
        assert_eq!(taken.lease.epoch, 2);
        assert_eq!(reasons(world, key).await, [Some("takeover".to_owned())]);

        let renewed = world
            .store
            .renew_boot(world.at(10_501), old, crate::world::TTL, 0);
        assert_eq!(renewed.await.expect("answers"), Renewal::Dead);
        let appended = world
            .store
            .append_rounds(world.at(10_502), vec![first_round(&stale)]);
        let appended = appended.await.expect("answers");
        assert_eq!(appended, [AppendOutcome::LeaseLost]);
        let lost = world.try_complete(10_502, answer(&stale, Then::Continue));
        assert_eq!(lost.await, CompleteOutcome::LeaseLost);
        let release = ReleaseSession {
            key,
            lease: stale.lease,
            lost: false,
        };
        let released = world.store.release_sessions(None, vec![release]).await;
        assert_eq!(released.expect("answers"), [false]);

        let appended = world.try_append(10_503, first_round(&taken)).await;
        assert!(matches!(
            appended,
            AppendOutcome::Appended {
                first_seq: 1,
                step: 3,
                ..
            }
        ));
        assert_eq!(
            world.record(send).await.crashes,
            0,
            "a durable step resets it"
        );
        world.assert_sound(10_503).await;
    })
    .await;
}

#[tokio::test]
async fn a_late_boot_that_nobody_missed_goes_on() {
    with_world("late", async |world| {
        let boot = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, boot, key).await;
        let renewed = world
            .store
            .renew_boot(world.at(60_000), boot, crate::world::TTL, 3);
        let alive = Renewal::Renewed {
            at: world.time(60_000),
            signals: Vec::new(),
        };
        assert_eq!(renewed.await.expect("answers"), alive);
        let other = world.boot(60_000).await;
        let busy = world.try_claim(60_001, other, key).await;
        assert_eq!(busy, ClaimOutcome::Busy);
        world
            .complete(60_002, answer(&claimed, Then::Continue))
            .await;
        let boots = world
            .store
            .list_boots(world.at(60_003))
            .await
            .expect("lists");
        let record = boots.iter().find(|record| record.id == boot);
        assert_eq!(record.expect("is listed").in_flight, 3);
    })
    .await;
}

#[tokio::test]
async fn a_released_send_is_ready_at_once_and_counts_no_crash() {
    with_world("release", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let release = ReleaseSession {
            key,
            lease: claimed.lease,
            lost: false,
        };
        let released = world.store.release_sessions(None, vec![release]).await;
        assert_eq!(released.expect("answers"), [true]);
        let query = SweepReady {
            pool: Some("default".to_owned()),
            older_than_ms: 0,
            after: None,
            limit: 10,
        };
        let swept = world
            .store
            .sweep_ready(world.at(3), query)
            .await
            .expect("sweeps");
        assert_eq!(swept.sessions.len(), 1);
        world.assert_sound(3).await;
        let again = world.claim(4, worker, key).await;
        assert_eq!((again.send.record.id, again.send.record.crashes), (send, 0));
        assert!(again.send.resumed.is_some());
        assert_eq!(reasons(world, key).await, [Some("handover".to_owned())]);
        world.assert_sound(4).await;
    })
    .await;
}

#[tokio::test]
async fn two_claims_of_one_session_in_a_group_grant_it_once() {
    with_world("twice", async |world| {
        let worker = world.boot(0).await;
        let (key, idle) = (world.session().await, world.session().await);
        world.send(1, to(key)).await;
        let items = vec![cold(key), cold(key), cold(idle)];
        let claimed = world.store.claim_sessions(world.at(2), worker, items).await;
        let claimed = claimed.expect("claims");
        assert!(matches!(claimed[0], ClaimOutcome::Claimed(_)));
        assert_eq!(claimed[1..], [ClaimOutcome::Busy, ClaimOutcome::Idle]);
    })
    .await;
}

#[tokio::test]
async fn a_round_stores_messages_calls_and_references() {
    with_world("round", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let mut round = asking(&claimed, [CallBegin::Settled(CallResult::text("seen"))]);
        let call = round.messages[1].tool_calls[0].clone();
        round.messages.push(NewMessage {
            tool_call_id: Some(call.id.clone()),
            name: Some("look".to_owned()),
            failed: true,
            asked_back: Some(1),
            ..says(Role::Tool, "seen", 0)
        });
        let asked = round.round.clone();
        let (_, counters) = world.append(3, round).await;
        assert_eq!(counters.next_seq, 4);
        let dump = world.store.dump().await.expect("dumps");
        let session = &dump.sessions[0];
        assert_eq!(session.messages[1].tool_calls, std::slice::from_ref(&call));
        assert_eq!(session.messages[2].asked_at_seq, Some(2));
        assert!(session.messages[2].failed && !session.messages[1].failed);
        let stored = CallRecord {
            call_id: call.id,
            session: key.session,
            send_id: send,
            round: 0,
            place: 0,
            name: "look".to_owned(),
            arguments: json!({ "at": 0 }),
            repeat: Repeat::Safe,
            waits_on: None,
            approval: Approval::None,
            started_epoch: None,
            attempt: 0,
            deadline_at: None,
            result: Some(CallResult::text("seen")),
            requested_at: world.time(3),
            settled_at: world.at(3),
        };
        assert_eq!(session.calls, [stored]);
        assert_eq!(session.usage, [(send, 0, 1)]);
        let refs = StepRefs {
            first_seq: Some(1),
            messages: 3,
            round: asked,
            ..StepRefs::default()
        };
        assert_eq!(session.steps[1].refs, refs);
        world.assert_sound(3).await;
    })
    .await;
}

/// Completes a send that asks a tool in each of `rounds` rounds.
async fn talk(
    world: &World,
    worker: mainspring_shared::id::BootId,
    key: mainspring_shared::id::SessionKey,
) -> SendId {
    let (send, _) = world.send(1, to(key)).await;
    let claimed = world.claim(2, worker, key).await;
    let mut item = answer(&claimed, Then::Continue);
    let call = ToolCall {
        id: format!("c{}", claimed.counters.next_seq),
        name: "look".to_owned(),
        arguments: json!({}),
    };
    let asks = NewMessage {
        tool_calls: vec![call.clone()],
        ..says(Role::Assistant, "let me look", 0)
    };
    let tells = NewMessage {
        tool_call_id: Some(call.id),
        name: Some(call.name),
        asked_back: Some(1),
        ..says(Role::Tool, "seen", 0)
    };
    item.messages.splice(1..1, [asks, tells]);
    world.complete(3, item).await;
    send
}

async fn window(
    world: &World,
    worker: mainspring_shared::id::BootId,
    item: ClaimSession,
) -> Vec<i64> {
    let claimed = world.store.claim_sessions(world.at(5), worker, vec![item]);
    let ClaimOutcome::Claimed(claimed) = claimed.await.expect("claims").remove(0) else {
        panic!("not claimed");
    };
    let release = ReleaseSession {
        key: claimed.key,
        lease: claimed.lease,
        lost: false,
    };
    let released = world.store.release_sessions(None, vec![release]).await;
    assert_eq!(released.expect("answers"), [true]);
    claimed.window.iter().map(|message| message.seq).collect()
}

#[tokio::test]
async fn a_claim_brings_what_the_cache_lacks_of_the_window() {
    with_world("window", async |world| {
        let worker = world.boot(0).await;
        // Four messages each: user, asking assistant, tool, assistant.
        let (all, bounded) = (world.session().await, world.session_of(forgetful(2)).await);
        for key in [all, bounded] {
            talk(world, worker, key).await;
            talk(world, worker, key).await;
            world.send(4, to(key)).await;
        }
        let item = |key, from, next| ClaimSession {
            cached_from_seq: from,
            cached_version: 0,
            cached_next_seq: next,
            ..cold(key)
        };
        let nothing: [i64; 0] = [];
        assert_eq!(
            window(world, worker, item(all, 0, 0)).await,
            [1, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!(window(world, worker, item(all, 1, 5)).await, [5, 6, 7, 8]);
        assert_eq!(window(world, worker, item(all, 1, 9)).await, nothing);
        assert_eq!(window(world, worker, item(all, 3, 9)).await.len(), 8);
        // The last two are the tool's answer and the assistant: the window begins at the asking.
        assert_eq!(window(world, worker, item(bounded, 0, 0)).await, [6, 7, 8]);
        assert_eq!(window(world, worker, item(bounded, 6, 8)).await, [8]);
        assert_eq!(window(world, worker, item(bounded, 6, 9)).await, nothing);
        assert_eq!(window(world, worker, item(bounded, 1, 5)).await, [6, 7, 8]);
    })
    .await;
}

#[tokio::test]
async fn a_parked_send_blocks_the_next_ones_and_holds_nothing() {
    with_world("park", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let park = ParkSend {
            key,
            lease: claimed.lease,
            send_id: send,
            on: WaitingOn::Recovery,
            until: ParkUntil::Asked,
            unless: 0,
            usage: Vec::new(),
            totals: totals(0),
        };
        let parked = world
            .store
            .park_sends(world.at(3), vec![park.clone()])
            .await;
        assert_eq!(parked.expect("parks"), [ParkOutcome::Parked { step: 2 }]);
        let parked = world.store.park_sends(world.at(3), vec![park]).await;
        assert_eq!(parked.expect("answers"), [ParkOutcome::LeaseLost]);
        let (_, accepted) = world.send(4, to(key)).await;
        assert_eq!(accepted.ring, None, "nothing can go on yet");
        assert_eq!(world.try_claim(5, worker, key).await, ClaimOutcome::Idle);
        world.assert_sound(5).await;

        let resumed = world.store.resume_recovery(world.at(6), worker, key).await;
        assert_eq!(resumed.expect("resumes"), Some(send));
        let again = world.claim(7, worker, key).await;
        assert_eq!((again.send.record.id, again.counters.pending), (send, 1));
        assert_eq!(again.send.record.waiting_on, None);
        assert_eq!(reasons(world, key).await, [Some("resume".to_owned())]);
        let nobody = world.store.resume_recovery(world.at(8), worker, key).await;
        assert_eq!(nobody.expect("answers"), None);
        world.assert_sound(8).await;
    })
    .await;
}

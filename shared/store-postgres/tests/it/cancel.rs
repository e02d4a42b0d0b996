//! Cancelling sends.

use mainspring_shared::message::{ContentPart, Role};
use mainspring_shared::send::{SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::SIGNAL_CANCEL;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    CancelOutcome, ParkOutcome, ParkSend, ParkUntil, ReadMessages, ReleaseSession, Renewal, Then,
};

use crate::world::{TENANT, TTL, World, answer, to, totals, with_world};

async fn cancel(world: &World, at: i64, id: mainspring_shared::id::SendId) -> CancelOutcome {
    let scheduler = mainspring_shared::id::BootId(crate::world::id());
    let items = vec![(TENANT, id)];
    let cancelled = world.store.cancel_sends(world.at(at), scheduler, items);
    cancelled.await.expect("answers").remove(0)
}

#[tokio::test]
async fn a_queued_send_ends_where_it_stands() {
    with_world("cancel_queued", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (first, _) = world.send(1, to(key)).await;
        let (second, _) = world.send(1, to(key)).await;
        let CancelOutcome::Cancelled { send, step, ring } = cancel(world, 2, first).await else {
            panic!("not cancelled");
        };
        assert_eq!((send.status, step, ring), (SendStatus::Cancelled, 3, None));
        assert_eq!(send.stop_reason, Some(StopReason::Cancelled));
        world.assert_sound(2).await;
        let claimed = world.claim(3, worker, key).await;
        assert_eq!(claimed.send.record.id, second, "the head moved on");
        world.complete(4, answer(&claimed, Then::Continue)).await;
        let again = cancel(world, 5, first).await;
        assert!(matches!(again, CancelOutcome::AlreadyFinal(_)));
        let unknown = mainspring_shared::id::SendId(crate::world::id());
        assert_eq!(cancel(world, 5, unknown).await, CancelOutcome::NotFound);

        let (last, _) = world.send(6, to(key)).await;
        cancel(world, 7, last).await;
        let claimed = world.try_claim(8, worker, key).await;
        assert_eq!(claimed, mainspring_shared::store::ClaimOutcome::Idle);
        world.assert_sound(8).await;
    })
    .await;
}

#[tokio::test]
async fn a_running_send_is_signalled_and_its_result_gives_way() {
    with_world("cancel_running", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let signalled = cancel(world, 3, send).await;
        assert!(
            matches!(&signalled, CancelOutcome::Signalled { owner, send } if *owner == worker && send.cancel_requested),
            "{signalled:?}"
        );
        let renewed = world.store.renew_boot(world.at(4), worker, TTL, 1).await;
        let signals = vec![(key, SIGNAL_CANCEL)];
        let at = world.time(4);
        assert_eq!(renewed.expect("renews"), Renewal::Renewed { at, signals });
        let done = world.complete(5, answer(&claimed, Then::Continue)).await;
        assert_eq!(done.status, SendStatus::Cancelled);
        let record = world.record(send).await;
        assert_eq!((record.output_text, record.rounds), (None, 1));
        let renewed = world.store.renew_boot(world.at(6), worker, TTL, 0).await;
        let none = Renewal::Renewed {
            at: world.time(6),
            signals: Vec::new(),
        };
        assert_eq!(renewed.expect("renews"), none);
        world.assert_sound(6).await;
    })
    .await;
}

#[tokio::test]
async fn a_send_that_nobody_runs_ends_under_a_grant_with_its_input_said() {
    with_world("cancel_unowned", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (first, _) = world.send(1, to(key)).await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let release = ReleaseSession {
            key,
            lease: claimed.lease,
            lost: false,
        };
        let released = world.store.release_sessions(None, vec![release]).await;
        assert_eq!(released.expect("answers"), [true]);
        let CancelOutcome::Cancelled { ring, .. } = cancel(world, 3, first).await else {
            panic!("not cancelled");
        };
        assert_eq!(
            Some(ring.expect("the next can go on").ready_since),
            world.at(3)
        );
        let query = ReadMessages {
            key,
            after: 0,
            limit: 10,
        };
        let messages = world.store.read_messages(query).await.expect("reads");
        assert_eq!(messages.len(), 1);
        assert_eq!((messages[0].role, messages[0].epoch), (Role::User, 2));
        assert_eq!(messages[0].content, [ContentPart::text("hello")]);
        world.assert_sound(3).await;
        let next = world.claim(4, worker, key).await;
        assert_eq!((next.lease.epoch, next.window.len()), (3, 1));
        world.complete(5, answer(&next, Then::Continue)).await;
        world.assert_sound(5).await;
    })
    .await;
}

#[tokio::test]
async fn a_waiting_send_ends_and_lets_the_next_go_on() {
    with_world("cancel_waiting", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (first, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let park = ParkSend {
            key,
            lease: claimed.lease,
            send_id: first,
            on: WaitingOn::Retry,
            until: ParkUntil::After(std::time::Duration::from_secs(9)),
            unless: 0,
            usage: Vec::new(),
            totals: totals(0),
        };
        let parked = world.store.park_sends(world.at(3), vec![park]).await;
        assert!(matches!(
            parked.expect("parks")[..],
            [ParkOutcome::Parked { .. }]
        ));
        world.send(4, to(key)).await;
        let CancelOutcome::Cancelled { ring, send, .. } = cancel(world, 5, first).await else {
            panic!("not cancelled");
        };
        assert!(ring.is_some() && send.waiting_on.is_none() && send.alarm_at.is_none());
        world.assert_sound(5).await;
        let next = world.claim(6, worker, key).await;
        assert!(next.send.resumed.is_none());
    })
    .await;
}

#[tokio::test]
async fn a_cancel_before_the_park_ends_the_send_instead() {
    with_world("cancel_park", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (first, _) = world.send(1, to(key)).await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        cancel(world, 3, first).await;
        let park = ParkSend {
            key,
            lease: claimed.lease,
            send_id: first,
            on: WaitingOn::Retry,
            until: ParkUntil::Asked,
            unless: 0,
            usage: Vec::new(),
            totals: totals(0),
        };
        let parked = world.store.park_sends(world.at(4), vec![park]).await;
        let parked = parked.expect("answers").remove(0);
        assert!(
            matches!(
                parked,
                ParkOutcome::Cancelled {
                    step: 3,
                    ring: Some(_)
                }
            ),
            "{parked:?}"
        );
        assert_eq!(world.record(first).await.status, SendStatus::Cancelled);
        world.assert_sound(4).await;
    })
    .await;
}

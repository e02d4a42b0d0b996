//! Accepting sends.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy, Priority, SendOptions};
use mainspring_shared::id::{SendId, SessionId, SessionKey};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, IdempotencyKey, RefuseReason, Target, Then,
};
use mainspring_shared::time::Span;

use crate::world::{TENANT, World, answer, id, new_session, to, to_target, with_world};

fn keyed(item: AcceptSend, key: &str, body: u8) -> AcceptSend {
    AcceptSend {
        idempotency: Some(IdempotencyKey {
            tenant: TENANT,
            route: "POST /v1/sends".to_owned(),
            key: key.to_owned(),
            body_hash: [body; 32],
        }),
        ..item
    }
}

fn rejecting(item: AcceptSend) -> AcceptSend {
    AcceptSend {
        options: SendOptions {
            on_busy: OnBusy::Reject,
            ..item.options
        },
        ..item
    }
}

fn positions(outcomes: &[AcceptOutcome]) -> Vec<Option<i64>> {
    let accepted = outcomes.iter().map(|outcome| match outcome {
        AcceptOutcome::Accepted(accepted) => accepted.position,
        other => panic!("not accepted: {other:?}"),
    });
    accepted.collect()
}

async fn messages(world: &World, key: SessionKey) -> i64 {
    let session = world.store.get_session(key).await.expect("reads");
    session.expect("exists").messages
}

#[tokio::test]
async fn a_send_is_accepted_claimed_and_completed() {
    with_world("path", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, accepted) = world.send(1, to(key)).await;
        assert_eq!((accepted.position, accepted.step), (Some(1), 1));
        let ring = accepted.ring.expect("the session became ready");
        assert_eq!((ring.key, ring.pool.as_str()), (key, "default"));
        assert_eq!(ring.priority, Priority::High);
        world.assert_sound(1).await;

        let claimed = world.claim(2, worker, key).await;
        assert_eq!(claimed.send.record.id, send);
        assert_eq!(claimed.send.record.started_at, world.at(2));
        assert_eq!(claimed.send.record.agent_version, Some(1));
        assert!(claimed.send.resumed.is_none());
        assert!(claimed.window.is_empty());
        assert_eq!((claimed.lease.epoch, claimed.counters.pending), (1, 0));
        world.assert_sound(2).await;

        let done = world.complete(3, answer(&claimed, Then::Continue)).await;
        assert_eq!((done.first_seq, done.step), (1, 2));
        assert!(done.next.is_none() && done.ring.is_none());
        let record = world.record(send).await;
        assert_eq!(record.output_text.as_deref(), Some("hi"));
        assert_eq!(record.usage.output_tokens, 5);
        assert_eq!(record.finished_at, world.at(3));
        assert_eq!(messages(world, key).await, 2);
        world.assert_sound(3).await;
    })
    .await;
}

#[tokio::test]
async fn a_group_keeps_the_order_of_each_session_and_rings_once() {
    with_world("group", async |world| {
        let (a, b) = (world.session().await, world.session().await);
        let new = new_session(AgentSpec {
            name: Some("helper".to_owned()),
            pool: Some("gpu".to_owned()),
            ..AgentSpec::default()
        });
        let new_key = new.key;
        let items = vec![
            to(a),
            to(b),
            to(a),
            to_target(Target::New(Box::new(new))),
            to(a),
            to(new_key),
        ];
        let outcomes = world.accept(1, items).await;
        let places = positions(&outcomes);
        let expected = [Some(1), Some(1), Some(2), Some(1), Some(3), Some(2)];
        assert_eq!(places, expected);
        let rings: Vec<_> = outcomes
            .iter()
            .map(|outcome| match outcome {
                AcceptOutcome::Accepted(accepted) => {
                    accepted.ring.as_ref().map(|ring| ring.pool.as_str())
                }
                _ => None,
            })
            .collect();
        let default = Some("default");
        assert_eq!(rings, [default, default, None, Some("gpu"), None, None]);
        let session = world.store.get_session(new_key).await.expect("reads");
        assert_eq!(
            session.expect("exists").agent.name.as_deref(),
            Some("helper")
        );
        world.assert_sound(1).await;
    })
    .await;
}

#[tokio::test]
async fn refused_sends_leave_nothing_behind() {
    with_world("refused", async |world| {
        let key = world.session().await;
        let unknown = SessionKey {
            tenant: TENANT,
            session: SessionId(id()),
        };
        let bounded = |item| AcceptSend {
            queued_max: 2,
            ..item
        };
        let items = vec![
            rejecting(to(key)),
            keyed(rejecting(to(key)), "k", 1),
            bounded(to(key)),
            bounded(to(key)),
            to(unknown),
        ];
        let outcomes = world.accept(1, items).await;
        assert!(matches!(outcomes[0], AcceptOutcome::Accepted(_)));
        let refused = |reason| AcceptOutcome::Refused(reason);
        assert_eq!(outcomes[1], refused(RefuseReason::Busy));
        assert!(matches!(outcomes[2], AcceptOutcome::Accepted(_)));
        assert_eq!(outcomes[3], refused(RefuseReason::QueueFull));
        assert_eq!(outcomes[4], refused(RefuseReason::SessionNotFound));
        // The refused key is free, even for a later send of the same group.
        let items = vec![keyed(rejecting(to(key)), "k", 1), keyed(to(key), "k", 2)];
        let later = world.accept(2, items).await;
        assert_eq!(later[0], refused(RefuseReason::Busy));
        assert_eq!(positions(&later[1..]), [Some(3)]);
        world.assert_sound(2).await;
    })
    .await;
}

#[tokio::test]
async fn a_delayed_send_makes_its_session_busy_but_not_ready() {
    with_world("delayed_busy", async |world| {
        let key = world.session().await;
        let delayed = AcceptSend {
            options: SendOptions {
                delay: Some(Span(Duration::from_secs(5))),
                ..SendOptions::default()
            },
            ..to(key)
        };
        let (_, accepted) = world.send(1, delayed).await;
        assert_eq!((accepted.position, accepted.ring), (None, None));
        let outcomes = world.accept(2, vec![rejecting(to(key))]).await;
        assert_eq!(outcomes, [AcceptOutcome::Refused(RefuseReason::Busy)]);
        world.assert_sound(2).await;
    })
    .await;
}

#[tokio::test]
async fn one_key_makes_one_send_whatever_comes_between() {
    with_world("idempotent", async |world| {
        let key = world.session().await;
        let first = keyed(to(key), "k", 1);
        let id = first.id;
        let twin = keyed(to(key), "k", 1);
        let other = keyed(to(key), "k", 2);
        let outcomes = world.accept(1, vec![first, twin, other]).await;
        assert!(matches!(outcomes[0], AcceptOutcome::Accepted(_)));
        assert_eq!(outcomes[1], AcceptOutcome::Replayed(id));
        assert_eq!(outcomes[2], AcceptOutcome::Mismatch);
        // A repeat is answered even where a new send would be refused.
        let full = AcceptSend {
            queued_max: 0,
            ..keyed(to(key), "k", 1)
        };
        let again = world
            .accept(2, vec![full, rejecting(keyed(to(key), "k", 1))])
            .await;
        let replayed = || AcceptOutcome::Replayed(id);
        assert_eq!(again, [replayed(), replayed()]);
        // Nor does a repeat in front of it take the place of a send that fits.
        let fits = AcceptSend {
            queued_max: 2,
            ..to(key)
        };
        let mixed = world.accept(3, vec![keyed(to(key), "k", 1), fits]).await;
        assert_eq!(mixed[0], replayed());
        assert_eq!(positions(&mixed[1..]), [Some(2)]);
        world.assert_sound(3).await;
    })
    .await;
}

#[tokio::test]
async fn a_key_that_a_refused_send_leaves_free_is_not_taken_before_it_was_refused() {
    with_world("idempotent_order", async |world| {
        let (full, other) = (world.session().await, world.session().await);
        let known = || AcceptSend {
            queued_max: 3,
            ..keyed(to(full), "known", 1)
        };
        let first = known();
        let first_id = first.id;
        world.accept(1, vec![first, to(full)]).await;
        // Counted with the repeat, which is not stored, the second one would not fit.
        let fits = AcceptSend {
            queued_max: 3,
            ..keyed(to(full), "k", 1)
        };
        let fits_id = fits.id;
        let outcomes = world
            .accept(2, vec![known(), fits, keyed(to(other), "k", 1)])
            .await;
        assert_eq!(outcomes[0], AcceptOutcome::Replayed(first_id));
        assert_eq!(positions(&outcomes[1..2]), [Some(3)]);
        assert_eq!(outcomes[2], AcceptOutcome::Replayed(fits_id));

        let refused = AcceptSend {
            queued_max: 3,
            ..keyed(to(full), "l", 1)
        };
        let outcomes = world
            .accept(3, vec![known(), refused, keyed(to(other), "l", 1)])
            .await;
        let full = AcceptOutcome::Refused(RefuseReason::QueueFull);
        assert_eq!(outcomes[1], full);
        assert_eq!(positions(&outcomes[2..]), [Some(1)]);
        world.assert_sound(3).await;
    })
    .await;
}

#[tokio::test]
async fn a_repeat_of_a_new_session_makes_no_second_one() {
    with_world("idempotent_new", async |world| {
        let item = || {
            let new = new_session(AgentSpec::default());
            keyed(to_target(Target::New(Box::new(new))), "k", 1)
        };
        let (first, second) = (item(), item());
        let (id, unused) = (first.id, second.target.key());
        let outcomes = world.accept(1, vec![first]).await;
        assert!(matches!(outcomes[0], AcceptOutcome::Accepted(_)));
        let outcomes = world.accept(2, vec![second]).await;
        assert_eq!(outcomes, [AcceptOutcome::Replayed(id)]);
        let session = world.store.get_session(unused).await;
        assert_eq!(session.expect("reads"), None);
    })
    .await;
}

#[tokio::test]
async fn racing_repeats_agree_on_one_send() {
    with_world("racing_keys", async |world| {
        let key = world.session().await;
        let tasks = (0..8).map(|_| world.accept(1, vec![keyed(to(key), "k", 1)]));
        let outcomes: Vec<_> = futures::future::join_all(tasks).await.concat();
        let sends: Vec<SendId> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                AcceptOutcome::Replayed(id) => Some(*id),
                _ => None,
            })
            .collect();
        assert_eq!(sends.len(), 7, "{outcomes:?}");
        assert!(sends.iter().all(|id| *id == sends[0]));
        world.record(sends[0]).await;
        world.assert_sound(1).await;
    })
    .await;
}

#[tokio::test]
async fn text_that_postgres_cannot_store_is_stored_with_a_replacement() {
    with_world("nul", async |world| {
        let mut new = new_session(AgentSpec {
            name: Some("a\0b".to_owned()),
            ..AgentSpec::default()
        });
        new.metadata.insert("k".to_owned(), "v\0".into());
        let key = new.key;
        let created = world.store.create_sessions(None, vec![(new, None)]).await;
        created.expect("creates");
        let session = world.store.get_session(key).await.expect("reads");
        assert_eq!(session.expect("exists").metadata["k"], "v\u{fffd}");
        let worker = world.boot(0).await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let mut item = answer(&claimed, Then::Continue);
        item.result.output_text = Some("x\0y".to_owned());
        world.complete(3, item).await;
        let record = world.record(claimed.send.record.id).await;
        assert_eq!(record.output_text.as_deref(), Some("x\u{fffd}y"));
    })
    .await;
}

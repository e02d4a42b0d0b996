//! Sessions: creating, changing, listing, deleting.

use std::collections::BTreeMap;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::{Lifecycle, SessionStatus};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, ClaimOutcome, CompleteOutcome, CreateOutcome, DeleteOutcome, IdempotencyKey,
    ListSends, ListSessions, ReadMessages, RefuseReason, SessionPatch, Then, UpdateOutcome,
};

use crate::world::{TENANT, World, answer, new_session, to, with_world};

fn named(name: &str) -> AgentSpec {
    AgentSpec {
        name: Some(name.to_owned()),
        ..AgentSpec::default()
    }
}

async fn status(world: &World, key: mainspring_shared::id::SessionKey) -> SessionStatus {
    let session = world.store.get_session(key).await.expect("reads");
    session.expect("exists").status
}

#[tokio::test]
async fn one_key_creates_one_session() {
    with_world("create_once", async |world| {
        let key = |body| IdempotencyKey {
            tenant: TENANT,
            route: "r".to_owned(),
            key: "k".to_owned(),
            body_hash: [body; 32],
        };
        let items = [key(1), key(1), key(2)].map(|key| (new_session(named("a")), Some(key)));
        let id = items[0].0.key.session;
        let created = world.store.create_sessions(None, items.to_vec()).await;
        let created = created.expect("creates");
        assert!(matches!(created[0], CreateOutcome::Created(_)));
        assert_eq!(created[1], CreateOutcome::Replayed(id));
        assert_eq!(created[2], CreateOutcome::Mismatch);
        world.assert_sound(0).await;
    })
    .await;
}

#[tokio::test]
async fn a_new_agent_is_a_version_that_later_sends_get() {
    with_world("versions", async |world| {
        let worker = world.boot(0).await;
        let key = world.session_of(named("one")).await;
        world.send(1, to(key)).await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let patch = SessionPatch {
            agent: Some(AgentSpec {
                pool: Some("gpu".to_owned()),
                ..named("two")
            }),
            ..SessionPatch::default()
        };
        let updated = world.store.update_session(world.at(3), key, patch).await;
        let UpdateOutcome::Updated(record) = updated.expect("updates") else {
            panic!("not found");
        };
        assert_eq!(
            (record.agent_version, record.status),
            (2, SessionStatus::Running)
        );
        assert_eq!(Some(record.updated_at), world.at(3));
        let done = world.complete(4, answer(&claimed, Then::Continue)).await;
        let (next, _) = done.next.expect("goes on");
        assert_eq!(next.record.agent_version, Some(2));
        assert_eq!(next.agent.name.as_deref(), Some("two"));
        let stats = world.store.queue_stats(world.at(5)).await.expect("counts");
        assert_eq!(stats[0].pool, "gpu");
    })
    .await;
}

#[tokio::test]
async fn a_closed_session_finishes_its_work_and_takes_no_more() {
    with_world("closed", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        assert_eq!(status(world, key).await, SessionStatus::Idle);
        world.send(1, to(key)).await;
        assert_eq!(status(world, key).await, SessionStatus::Queued);
        let close = |closed| SessionPatch {
            closed: Some(closed),
            ..SessionPatch::default()
        };
        let closed = world
            .store
            .update_session(world.at(2), key, close(true))
            .await;
        assert!(matches!(closed.expect("closes"), UpdateOutcome::Updated(_)));
        assert_eq!(status(world, key).await, SessionStatus::Closed);
        let refused = world.accept(3, vec![to(key)]).await;
        assert_eq!(
            refused,
            [AcceptOutcome::Refused(RefuseReason::SessionClosed)]
        );
        let claimed = world.claim(4, worker, key).await;
        world.complete(5, answer(&claimed, Then::Continue)).await;
        world
            .store
            .update_session(world.at(6), key, close(false))
            .await
            .expect("opens");
        world.send(7, to(key)).await;
        world.assert_sound(7).await;
    })
    .await;
}

#[tokio::test]
async fn a_deleted_session_is_a_tombstone_and_its_worker_is_fenced() {
    with_world("delete", async |world| {
        let (worker, scheduler) = (world.boot(0).await, world.boot(0).await);
        let key = world.session().await;
        let (done, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        world.complete(3, answer(&claimed, Then::Continue)).await;
        let (runs, _) = world.send(4, to(key)).await;
        let (queued, _) = world.send(4, to(key)).await;
        let stale = world.claim(5, worker, key).await;
        let deleted = world
            .store
            .delete_session(world.at(6), key, scheduler)
            .await;
        let expected = DeleteOutcome::Deleted {
            cancelled: vec![runs, queued],
            owner: Some(worker),
            last_step: 6,
        };
        assert_eq!(deleted.expect("deletes"), expected);
        let again = world
            .store
            .delete_session(world.at(7), key, scheduler)
            .await;
        assert_eq!(again.expect("answers"), DeleteOutcome::NotFound);

        let lost = world.try_complete(8, answer(&stale, Then::Continue)).await;
        assert_eq!(lost, CompleteOutcome::LeaseLost);
        assert_eq!(world.store.get_session(key).await.expect("reads"), None);
        let query = ReadMessages {
            key,
            after: 0,
            limit: 10,
        };
        assert_eq!(world.store.read_messages(query).await.expect("reads"), []);
        let refused = world.accept(9, vec![to(key)]).await;
        assert_eq!(
            refused,
            [AcceptOutcome::Refused(RefuseReason::SessionNotFound)]
        );
        assert_eq!(world.try_claim(9, worker, key).await, ClaimOutcome::Idle);
        assert_eq!(world.record(done).await.status, SendStatus::Completed);
        assert_eq!(world.record(runs).await.status, SendStatus::Cancelled);
        let dump = world.store.dump().await.expect("dumps");
        let hot = &dump.sessions[0].hot;
        assert_eq!((hot.lifecycle, hot.epoch), (Lifecycle::Deleted, 3));
        world.assert_sound(9).await;
    })
    .await;
}

#[tokio::test]
async fn lists_are_newest_first_in_pages_and_filtered() {
    with_world("lists", async |world| {
        let mut keys = Vec::new();
        for (name, color) in [("a", "red"), ("b", "blue"), ("a", "blue"), ("a", "red")] {
            let mut new = new_session(named(name));
            new.metadata.insert("color".to_owned(), color.into());
            new.metadata.insert("n".to_owned(), 1.into());
            keys.push(new.key);
            let created = world.store.create_sessions(None, vec![(new, None)]).await;
            created.expect("creates");
        }
        world.send(1, to(keys[0])).await;
        let all = ListSessions {
            tenant: TENANT,
            status: None,
            agent: None,
            metadata: BTreeMap::new(),
            before: None,
            limit: 3,
        };
        let list = async |query: ListSessions| {
            let page = world.store.list_sessions(query).await.expect("lists");
            let ids: Vec<_> = page.data.iter().map(|session| session.key).collect();
            (ids, page.more)
        };
        let (first, more) = list(all.clone()).await;
        assert_eq!(
            (first.as_slice(), more),
            (&[keys[3], keys[2], keys[1]][..], true)
        );
        let rest = ListSessions {
            before: Some(keys[1].session),
            ..all.clone()
        };
        assert_eq!(list(rest).await, (vec![keys[0]], false));
        let red = ListSessions {
            agent: Some("a".to_owned()),
            metadata: BTreeMap::from([("color".to_owned(), "red".to_owned())]),
            ..all.clone()
        };
        assert_eq!(list(red).await, (vec![keys[3], keys[0]], false));
        let queued = ListSessions {
            status: Some(SessionStatus::Queued),
            ..all
        };
        assert_eq!(list(queued).await, (vec![keys[0]], false));

        let (second, _) = world.send(2, to(keys[0])).await;
        let (third, _) = world.send(2, to(keys[1])).await;
        let sends = ListSends {
            tenant: TENANT,
            session: None,
            status: Some(SendStatus::Queued),
            before: None,
            limit: 2,
        };
        let page = world.store.list_sends(sends.clone()).await.expect("lists");
        let ids: Vec<_> = page.data.iter().map(|send| send.id).collect();
        assert_eq!((ids, page.more), (vec![third, second], true));
        let of_one = ListSends {
            session: Some(keys[0].session),
            before: Some(second),
            ..sends
        };
        let page = world.store.list_sends(of_one).await.expect("lists");
        assert_eq!((page.data.len(), page.more), (1, false));
    })
    .await;
}

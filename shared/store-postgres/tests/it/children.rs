//! Children that report to their parents.

use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::inbox::{Fate, ItemKind};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Claimed, Parent, PostOutcome, ReportOutcome, Target, Then,
};
use mainspring_shared::tool::{CallResult, child_item, child_result};

use crate::tools::{ids, outside, result, waits, words};
use crate::world::{TENANT, World, answer, id, new_session, to, to_target, with_world};

/// Creates a child of a session for a call of its, with a send that reports to it.
async fn child(world: &World, at: i64, parent: SessionKey, call_id: &str) -> (SessionKey, SendId) {
    let mut session = new_session(AgentSpec::default());
    session.parent = Some(Parent {
        session: parent.session,
        call_id: call_id.to_owned(),
        root: parent.session,
        depth: 1,
    });
    let key = session.key;
    let item = AcceptSend {
        reports_to: Some(call_id.to_owned()),
        run: None,
        ..to_target(Target::New(Box::new(session)))
    };
    let (send, _) = world.send(at, item).await;
    (key, send)
}

async fn report(
    world: &World,
    at: i64,
    sends: Option<&[SendId]>,
    limit: u32,
) -> Vec<ReportOutcome> {
    let sends = sends.map(|sends| sends.iter().map(|id| (TENANT, *id)).collect());
    let reported = world.store.report_children(world.at(at), sends, limit);
    reported.await.expect("reports")
}

async fn cancel(world: &World, at: i64, send: SendId) {
    let cancelled = world
        .store
        .cancel_sends(world.at(at), BootId(id()), vec![(TENANT, send)]);
    cancelled.await.expect("cancels");
}

fn agent() -> mainspring_shared::store::CallBegin {
    waits(WaitingOn::Agent, false)
}

#[tokio::test]
async fn the_end_of_a_child_is_the_result_of_its_call() {
    with_world("child", async |world| {
        let (parent, worker) = world.waiting(WaitingOn::Agent, [agent(), agent()]).await;
        let key = parent.key;
        let calls = ids(&parent, 2);
        let (first, first_send) = child(world, 5, key, &calls[0]).await;
        let (second, second_send) = child(world, 6, key, &calls[1]).await;
        let children = world.store.list_children(key).await.expect("lists");
        assert_eq!(children, [first, second]);
        let record = world.record(first_send).await;
        assert_eq!(record.reports_to.as_deref(), Some(calls[0].as_str()));
        let stored = world
            .store
            .get_session(first)
            .await
            .expect("reads")
            .expect("exists");
        assert_eq!(
            stored.parent.map(|parent| (parent.session, parent.depth)),
            Some((key.session, 1))
        );
        assert_eq!(report(world, 7, None, 10).await, [], "neither has ended");

        let claimed = world.claim(8, worker, first).await;
        world.complete(9, answer(&claimed, Then::Continue)).await;
        cancel(world, 10, second_send).await;
        assert_eq!(report(world, 11, Some(&[id_of(&parent)]), 10).await, []);
        let told = report(world, 11, None, 1).await;
        let quiet = ReportOutcome {
            send_id: first_send,
            parent: key,
            ring: None,
            owner: None,
        };
        assert_eq!(told, [quiet], "the oldest, and one call still waits");
        let result = world.call(&calls[0]).await.result.expect("is settled");
        assert_eq!(result, child_result(&world.record(first_send).await));
        let told = report(world, 12, Some(&[first_send, second_send]), 10).await;
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].send_id, second_send);
        let ring = told[0].ring.as_ref().expect("the parent can go on");
        assert_eq!((ring.key, ring.ready_since), (key, world.time(12)));
        let result = world.call(&calls[1]).await.result.expect("is settled");
        assert_eq!(result.code, Some(Code::ToolFailed));
        assert_eq!(
            report(world, 13, None, 10).await,
            [],
            "each is reported once"
        );
        world.assert_sound(70_000).await;
        let again = world.claim(14, worker, key).await;
        assert_eq!(again.counters.signals, SIGNAL_RESULT);
    })
    .await;
}

fn id_of(claimed: &Claimed) -> SendId {
    claimed.send.record.id
}

#[tokio::test]
async fn the_end_of_a_child_in_the_background_is_an_item() {
    with_world("child_item", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        let (send, _) = world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let begins = [mainspring_shared::store::CallBegin::Settled(
            CallResult::text("began"),
        )];
        let round = crate::tools::asking(&claimed, begins);
        let asked = round.messages[1].clone();
        world.append(3, round).await;
        let call_id = ids(&claimed, 1).remove(0);
        let (_, done) = child(world, 4, key, &call_id).await;
        let (_, late) = child(world, 4, key, &call_id).await;
        cancel(world, 5, done).await;
        let told = report(world, 6, Some(&[done]), 10).await;
        assert_eq!((told[0].owner, &told[0].ring), (Some(worker), &None));
        let items = world.inbox(key, true).await;
        let (item_id, content) = child_item(&world.record(done).await, &call_id);
        assert_eq!(
            (items[0].id.as_str(), &items[0].content),
            (item_id.as_str(), &content)
        );
        assert_eq!(
            (items[0].kind, items[0].mode),
            (ItemKind::Child, OnBusy::Steer)
        );
        assert_eq!(
            (items[0].fate, items[0].send_id),
            (Fate::Pending, Some(send))
        );
        assert_eq!(world.signals(key).await, SIGNAL_INBOX);

        let mut last = answer(&claimed, Then::Continue);
        last.messages = crate::tools::answered(&asked);
        last.usage.clear();
        last.round = None;
        world.complete(7, last).await;
        cancel(world, 8, late).await;
        let told = report(world, 9, None, 10).await;
        assert_eq!(
            (told[0].owner, &told[0].ring),
            (None, &None),
            "nobody has work"
        );
        let items = world.inbox(key, true).await;
        assert_eq!((items.len(), items[1].send_id), (2, None));
        world.assert_sound(70_000).await;
    })
    .await;
}

#[tokio::test]
async fn a_parent_that_is_gone_is_told_nothing_and_one_that_is_there_hears_of_a_deleted_child() {
    with_world("child_gone", async |world| {
        let (gone, _) = world.waiting(WaitingOn::Agent, [agent()]).await;
        let (_, orphan) = child(world, 5, gone.key, &ids(&gone, 1)[0]).await;
        let (parent, _) = world.waiting(WaitingOn::Agent, [agent()]).await;
        let (deleted, lost) = child(world, 5, parent.key, &ids(&parent, 1)[0]).await;
        for key in [gone.key, deleted] {
            let done = world
                .store
                .delete_session(world.at(6), key, BootId(id()))
                .await;
            done.expect("deletes");
        }
        cancel(world, 7, orphan).await;
        let told = report(world, 8, None, 10).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].send_id, told[0].parent), (lost, parent.key));
        assert!(told[0].ring.is_some(), "its parent waited for it");
        assert_eq!(report(world, 9, None, 10).await, []);
        world.assert_sound(70_000).await;
    })
    .await;
}

#[tokio::test]
async fn an_ancestor_may_answer_the_calls_below_it_and_a_sibling_may_not() {
    with_world("child_post", async |world| {
        let worker = world.boot(0).await;
        let (root, _) = world.waiting(WaitingOn::Agent, [agent(), agent()]).await;
        let calls = ids(&root, 2);
        let (key, _) = child(world, 5, root.key, &calls[0]).await;
        let (sibling, _) = child(world, 5, root.key, &calls[1]).await;
        let claimed = world.claim(6, worker, key).await;
        let round = crate::tools::asking(&claimed, [outside(), outside()]);
        world.append(7, round).await;
        let asked = ids(&claimed, 2);
        let refused = world.post(8, vec![result(sibling, &asked[0], "x")]).await;
        assert_eq!(refused, [PostOutcome::Unknown]);
        let items = vec![
            result(root.key, &asked[0], "x"),
            result(key, &asked[1], "y"),
        ];
        for outcome in world.post(9, items).await {
            assert!(
                matches!(&outcome, PostOutcome::Accepted { key: home, owner: Some(owner), .. }
                    if *home == key && *owner == worker),
                "{outcome:?}"
            );
        }
        let upwards = world.post(10, vec![result(key, &calls[0], "z")]).await;
        assert_eq!(upwards, [PostOutcome::Unknown]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_reporters_report_each_child_once() {
    with_world("child_many", async |world| {
        let mut parents = Vec::new();
        let mut sends = Vec::new();
        for _ in 0..6 {
            let (parent, _) = world.waiting(WaitingOn::Agent, [agent(), agent()]).await;
            for call_id in ids(&parent, 2) {
                let (_, send) = child(world, 5, parent.key, &call_id).await;
                sends.push(send);
            }
            parents.push(parent.key);
        }
        for send in &sends {
            cancel(world, 6, *send).await;
        }
        let reporters = (0..4).map(|n| {
            let named = (n % 2 == 1).then(|| sends.iter().map(|id| (TENANT, *id)).collect());
            world.store.report_children(world.at(7), named, 5)
        });
        let mut told: Vec<SendId> = Vec::new();
        let mut rung = 0;
        for outcomes in futures::future::join_all(reporters).await {
            for outcome in outcomes.expect("reports") {
                told.push(outcome.send_id);
                rung += usize::from(outcome.ring.is_some());
            }
        }
        for outcome in report(world, 8, None, 100).await {
            told.push(outcome.send_id);
            rung += usize::from(outcome.ring.is_some());
        }
        told.sort();
        sends.sort();
        assert_eq!(told, sends);
        assert_eq!(rung, parents.len(), "each parent went on once");
        world.assert_sound(70_000).await;
    })
    .await;
}

#[tokio::test]
async fn a_child_may_be_created_without_a_send() {
    with_world("child_bare", async |world| {
        let parent = world.session().await;
        let mut session = new_session(AgentSpec::default());
        let given = Parent {
            session: parent.session,
            call_id: "call_x".to_owned(),
            root: parent.session,
            depth: 1,
        };
        session.parent = Some(given.clone());
        let key = session.key;
        world
            .store
            .create_sessions(None, vec![(session, None)])
            .await
            .expect("creates");
        let dump = world.store.dump().await.expect("dumps");
        let stored = dump.sessions.iter().find(|session| session.key == key);
        assert_eq!(stored.expect("exists").parent, Some(given));
        let accepted = world.accept(1, vec![to(key)]).await;
        assert!(matches!(accepted[..], [AcceptOutcome::Accepted(_)]));
        let outcome = world.deliver(2, vec![words(key, "a", OnBusy::Steer)]).await;
        assert_eq!(outcome.len(), 1);
    })
    .await;
}

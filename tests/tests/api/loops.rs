//! The background loops: lost sends are enqueued again, and what is due is served.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::{AgentSpec, Priority};
use mainspring_shared::id::{BootId, SessionId, SessionKey, TenantId};
use mainspring_shared::queue::{Activation, Disposition, Handler, Lane, Queue};
use mainspring_shared::store::{NewSession, NewTenant, Parent, TenantPatch};
use mainspring_shared::tenant::{Limits, Retention};
use mainspring_shared::time::Span;
use serde_json::{Map, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::world::{World, key, nothing};

/// Hands every job to a test.
struct Jobs(mpsc::UnboundedSender<Activation>);

#[async_trait]
impl Handler for Jobs {
    async fn handle(&self, activation: Activation) -> Disposition {
        let _ = self.0.send(activation);
        Disposition::Done
    }
}

fn listen(world: &World) -> mpsc::UnboundedReceiver<Activation> {
    let (send, jobs) = mpsc::unbounded_channel();
    let queue = world.queue.clone();
    tokio::spawn(async move {
        queue
            .run(
                "default",
                Arc::new(Jobs(send)),
                Box::pin(futures::future::pending()),
            )
            .await;
    });
    jobs
}

async fn next(jobs: &mut mpsc::UnboundedReceiver<Activation>) -> Activation {
    tokio::time::timeout(Duration::from_secs(20), jobs.recv())
        .await
        .expect("in time")
        .expect("a job")
}

#[tokio::test]
async fn an_accepted_send_rings_once_for_its_session() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.sweep_age = Duration::from_mins(1))
        .await;
    api.until_ready().await;
    let mut jobs = listen(&world);
    let id = api.session().await;
    api.send(&id, "one").await;
    assert_eq!(next(&mut jobs).await.sessions, [key(&id)]);
    // The session is already ready, so its second send needs no job.
    api.send(&id, "two").await;
    let other = api.session().await;
    api.send(&other, "three").await;
    assert_eq!(next(&mut jobs).await.sessions, [key(&other)]);
}

#[tokio::test]
async fn priority_chooses_the_lane() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.sweep_age = Duration::from_mins(1))
        .await;
    api.until_ready().await;
    let body = json!({ "input": "hi", "options": { "priority": -1 }, "session": {} });
    api.post("/v1/sends", &body).await.ok(202);
    let lane = Lane {
        pool: "default".to_owned(),
        priority: Priority::Low,
    };
    while world.queue.depth(&lane).await != Some(1) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_lost_ring_is_made_up_for_by_the_sweep() {
    let world = World::new().await;
    let accepting = world
        .scheduler_with(|c| c.sweep_age = Duration::from_mins(1))
        .await;
    accepting.until_ready().await;
    let id = accepting.session().await;
    accepting.send(&id, "hi").await;
    let lane = Lane {
        pool: "default".to_owned(),
        priority: Priority::High,
    };
    while world.queue.depth(&lane).await != Some(1) {
        tokio::task::yield_now().await;
    }
    // The job is taken and forgotten.
    let mut jobs = listen(&world);
    assert_eq!(next(&mut jobs).await.sessions, [key(&id)]);
    let _sweeping = world
        .scheduler_with(|config| {
            config.sweep_age = Duration::ZERO;
            config.sweep_interval = Duration::from_millis(10);
        })
        .await;
    for _ in 0..3 {
        assert_eq!(next(&mut jobs).await.sessions, [key(&id)]);
    }
    // A session that a worker owns is not swept.
    let claimed = world.claim(&id).await;
    world.complete(&claimed, 0, "done").await;
}

#[tokio::test]
async fn a_sweep_feeds_a_lane_only_as_far_as_it_wants() {
    let world = World::new().await;
    let accepting = world
        .scheduler_with(|c| c.sweep_age = Duration::from_mins(1))
        .await;
    accepting.until_ready().await;
    let item = json!({ "input": "hi" });
    let sends = json!({ "sends": vec![item; 1_000] });
    accepting.post("/v1/sends:batch", &sends).await.ok(200);
    let mut jobs = listen(&world);
    let mut rung = 0;
    while rung < 1_000 {
        rung += next(&mut jobs).await.sessions.len();
    }
    drop(accepting);
    // Nobody claimed them. Each pass of the sweep enqueues two jobs of 16, and the next pass
    // continues after them.
    let _sweeping = world
        .scheduler_with(|config| {
            config.sweep_age = Duration::ZERO;
            config.sweep_interval = Duration::from_millis(10);
            config.sweep_depth_high = 2;
        })
        .await;
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 1_000 {
        seen.extend(next(&mut jobs).await.sessions);
    }
}

#[tokio::test]
async fn a_delayed_send_gets_its_turn_when_it_is_due() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.sweep_age = Duration::from_mins(1))
        .await;
    api.until_ready().await;
    let mut jobs = listen(&world);
    let id = api.session().await;
    let body = json!({ "input": "hi", "options": { "delay": "50ms" } });
    let send = api
        .post(&format!("/v1/sessions/{id}/sends"), &body)
        .await
        .ok(202);
    assert_eq!(send["position"], json!(null));
    assert_eq!(next(&mut jobs).await.sessions, [key(&id)]);
    let claimed = world.claim(&id).await;
    assert_eq!(claimed.send.record.id.to_string(), send["id"]);
}

#[tokio::test]
async fn a_send_that_nobody_takes_fails_at_its_deadline() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let body = json!({ "input": "hi", "options": { "deadline": "50ms" } });
    let path = format!("/v1/sessions/{id}/sends?wait=20s");
    let send = api.post(&path, &body).await.ok(200);
    assert_eq!(
        (&send["status"], &send["stop_reason"]),
        (&json!("failed"), &json!("deadline"))
    );
    assert_eq!(send["error"]["code"], "send.deadline");
    let path = format!("/v1/sends/{}/events", send["id"].as_str().expect("an id"));
    let events = api.events(&path).await.rest().await;
    assert_eq!(events.last().expect("events").name, "send.failed");
}

#[tokio::test]
async fn forgotten_idempotency_keys_can_be_used_again() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| {
            config.idempotency_keep = Duration::ZERO;
            config.retention_interval = Duration::from_millis(10);
        })
        .await;
    api.until_ready().await;
    let post = |input: &str| {
        let call = api.call("POST", "/v1/sends").header("idempotency-key", "k");
        call.json(&json!({ "input": input })).send()
    };
    post("one").await.ok(202);
    while post("two").await.status == 422 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_old_is_not_found_any_more() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| {
            config.idempotency_keep = Duration::ZERO;
            config.send_keep = Some(Duration::ZERO);
            config.run_keep = Some(Duration::ZERO);
            config.retention_interval = Duration::from_millis(10);
        })
        .await;
    api.until_ready().await;
    let get = |path: String| api.call("GET", &path).send();
    let open = api
        .call("POST", "/v1/sends")
        .json(&json!({ "input": "stays" }));
    let open = open.send().await.ok(202);
    let sent = api
        .call("POST", "/v1/sends")
        .json(&json!({ "input": "goes" }));
    let sent = sent.send().await.ok(202);
    let leaf = json!({"type": "agent", "id": "a", "spec": {"name": "a", "system_prompt": "s"}});
    let body = json!({ "spec": { "name": "flow", "root": leaf } });
    let run = api
        .call("POST", "/v1/runs")
        .json(&body)
        .send()
        .await
        .ok(202);
    let run = run["id"].as_str().expect("an id").to_owned();
    let leaf = loop {
        let nodes = get(format!("/v1/runs/{run}/nodes")).await.ok(200);
        if let Some(session) = nodes["data"][0]["session_id"].as_str() {
            break session.to_owned();
        }
        tokio::task::yield_now().await;
    };
    let path =
        |value: &serde_json::Value| format!("/v1/sends/{}", value["id"].as_str().expect("an id"));
    api.call("POST", &format!("{}/cancel", path(&sent)))
        .send()
        .await
        .ok(200);
    api.call("POST", &format!("/v1/runs/{run}/cancel"))
        .send()
        .await;
    for gone in [
        path(&sent),
        format!("/v1/runs/{run}"),
        format!("/v1/sessions/{leaf}"),
    ] {
        while get(gone.clone()).await.status != 404 {
            tokio::task::yield_now().await;
        }
    }
    get(path(&open)).await.ok(200);
    let session = sent["session_id"].as_str().expect("an id");
    get(format!("/v1/sessions/{session}")).await.ok(200);
}

#[tokio::test]
async fn a_deletion_that_broke_off_is_finished() {
    let world = World::new().await;
    let api = world.ready().await;
    let (above, below) = (api.session().await, nothing("ses_"));
    let new = NewSession {
        key: key(&below),
        agent: AgentSpec::default(),
        metadata: Map::new(),
        parent: Some(Parent {
            session: key(&above).session,
            call_id: "call".to_owned(),
            root: key(&above).session,
            depth: 1,
        }),
    };
    let created = world.store.create_sessions(vec![(new, None)]).await;
    created.expect("the store answers");
    let send = api.send(&below, "hi").await;
    let waiting = api.call("GET", &format!("/v1/sends/{send}?wait=20s"));
    let waiting = tokio::spawn(waiting.send());
    // The scheduler that was asked to delete it got no further than this.
    let boot = BootId(key(&below).session.0);
    let deleted = world.store.delete_session(key(&above), boot).await;
    deleted.expect("the store answers");
    assert_eq!(waiting.await.expect("joins").ok(200)["status"], "cancelled");
    let gone = api.get(&format!("/v1/sessions/{below}")).await;
    gone.problem(404, "session.not_found");
}

#[tokio::test]
async fn idle_sessions_go_by_their_tenants_own_retention_unless_it_is_on_hold() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| {
            config.idempotency_keep = Duration::ZERO;
            config.retention_interval = Duration::from_millis(10);
        })
        .await;
    api.until_ready().await;
    let tenant = |name: &str| NewTenant {
        name: name.to_owned(),
        limits: Limits::default(),
        weight: 1,
        retention: Retention {
            sessions: Some(Span(Duration::ZERO)),
            hold: name == "held",
            ..Retention::default()
        },
        pools: mainspring_shared::tenant::Pools::default(),
    };
    // A pass visits tenants by number: first the one on hold, then the other.
    for name in ["held", "blue"] {
        let created = world.store.create_tenant(tenant(name), None).await;
        created.expect("the store answers");
    }
    let id = |n: u128| SessionId(Uuid::from_u128(n));
    let session = |tenant: i32, n: u128, metadata: serde_json::Value| NewSession {
        key: SessionKey {
            tenant: TenantId(tenant),
            session: id(n),
        },
        agent: AgentSpec::default(),
        metadata: serde_json::from_value(metadata).expect("an object"),
        parent: None,
    };
    let new = [
        session(2, 1, json!({})),
        session(3, 3, json!({ "keep": true })),
        session(3, 2, json!({})),
    ];
    let created = world
        .store
        .create_sessions(new.map(|new| (new, None)).into())
        .await;
    created.expect("the store answers");
    let get = async |tenant: i32, n: u128| {
        let key = session(tenant, n, json!({})).key;
        world
            .store
            .get_session(key)
            .await
            .expect("the store answers")
    };
    while get(3, 2).await.is_some() {
        tokio::task::yield_now().await;
    }
    assert!(get(3, 3).await.is_some(), "somebody keeps it");
    assert!(get(2, 1).await.is_some(), "its tenant is on hold");
    let off = TenantPatch {
        retention: Some(Retention {
            hold: false,
            ..tenant("held").retention
        }),
        ..TenantPatch::default()
    };
    let changed = world.store.update_tenant(TenantId(2), off).await;
    changed.expect("the store answers");
    while get(2, 1).await.is_some() {
        tokio::task::yield_now().await;
    }
}

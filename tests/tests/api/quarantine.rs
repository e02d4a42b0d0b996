//! Runs that their schedulers do not survive, and loops that block.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use mainspring_queue_local::LocalBus;
use mainspring_runtime::SystemClock;
use mainspring_shared::bus::{Bus, Notice, Topic};
use mainspring_shared::entropy::Entropy as _;
use mainspring_shared::id::{BootId, RunId, RunKey, TenantId};
use mainspring_shared::store::{ClaimRuns, NewBoot, NewRun, PROTOCOL, Role};
use mainspring_shared::tool::Published;
use mainspring_shared::workflow::run::{DSL_VERSION, RunOptions};
use mainspring_shared::workflow::validate::validate;
use mainspring_store_model::ModelStore;
use serde_json::json;
use uuid::Uuid;

use crate::runs::{answer, finished, queued, started, two_steps};
use crate::world::World;

/// A scheduler that claims a run and dies before it advances it.
async fn claims_and_dies(world: &World, n: u128) -> i32 {
    let boot = BootId(Uuid::from_u128(0xdead_0000 + n));
    let new = NewBoot {
        id: boot,
        role: Role::Scheduler,
        name: format!("victim {n}"),
        pool: "default".to_owned(),
        concurrency: 1,
        ttl: Duration::from_mins(1),
        protocol: PROTOCOL,
        tools: Published::default(),
    };
    world.store.register_boot(new).await.expect("registers");
    let claim = ClaimRuns {
        boot,
        limit: 10,
        ends_max: 10,
        leaves_max: None,
        dsl_max: DSL_VERSION,
        aside: Vec::new(),
    };
    let claimed = world.store.claim_runs(claim).await.expect("claims");
    world.store.stop_boot(boot).await.expect("stops");
    claimed.runs.first().map_or(0, |news| news.claims)
}

/// A run that no scheduler has looked at.
async fn fresh(world: &World) -> String {
    let spec = validate(&two_steps()).expect("is valid");
    let key = RunKey {
        tenant: TenantId::DEFAULT,
        run: RunId(world.entropy.ordered_id()),
    };
    let new = NewRun {
        key,
        name: spec.envelope.name.clone(),
        spec: spec.to_value(),
        dsl_version: DSL_VERSION,
        input: json!("tea"),
        options: RunOptions::default(),
        session: None,
        reports_to: None,
        depth: 1,
        idempotency: None,
    };
    world.store.create_runs(vec![new]).await.expect("creates");
    format!("/v1/runs/{}", key.run)
}

#[tokio::test]
async fn a_run_that_three_schedulers_did_not_survive_is_failed_by_the_fourth() {
    let world = World::new().await;
    let poison = fresh(&world).await;
    for n in 1..=3 {
        assert_eq!(
            claims_and_dies(&world, n).await,
            i32::try_from(n).expect("is small")
        );
    }
    let api = world.ready().await;
    let shown = finished(&api, &poison).await;
    assert_eq!(shown["status"], "failed");
    assert_eq!(shown["error"]["code"], "workflow.quarantined", "{shown}");
    let good = started(&api, &json!({ "spec": two_steps(), "input": "tea" })).await;
    queued(&api, &good, "first").await;
}

#[tokio::test]
async fn a_run_whose_schedulers_were_unlucky_twice_goes_on() {
    let world = World::new().await;
    let run = fresh(&world).await;
    for n in 1..=2 {
        claims_and_dies(&world, n).await;
    }
    let api = world.ready().await;
    answer(&world, &api, &run, "first", "green").await;
    answer(&world, &api, &run, "second", "black").await;
    assert_eq!(finished(&api, &run).await["status"], "completed");
}

/// A bus that blocks the thread of whoever subscribes to the news of runs, until it is opened.
#[derive(Debug)]
struct Blocking {
    bus: LocalBus,
    blocked: Mutex<bool>,
    opened: Condvar,
}

impl Blocking {
    fn open(&self) {
        *self.blocked.lock().expect("no panic") = false;
        self.opened.notify_all();
    }
}

#[async_trait]
impl Bus for Blocking {
    fn publish(&self, topic: Topic, payload: Bytes) {
        self.bus.publish(topic, payload);
    }

    async fn tell(&self, topic: Topic, payload: Bytes) -> bool {
        self.bus.tell(topic, payload).await
    }

    async fn subscribe(&self, topic: Topic) -> BoxStream<'static, Notice> {
        if topic == Topic::Runs {
            let blocked = self.blocked.lock().expect("no panic");
            let waiting = self.opened.wait_while(blocked, |blocked| *blocked);
            drop(waiting.expect("no panic"));
        }
        self.bus.subscribe(topic).await
    }

    fn is_available(&self) -> bool {
        self.bus.is_available()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_loop_that_blocks_its_thread_stops_no_request_and_no_shutdown() {
    let bus = Arc::new(Blocking {
        bus: LocalBus::new(),
        blocked: Mutex::new(true),
        opened: Condvar::new(),
    });
    let store = Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
    let world = World::over(store, bus.clone()).await;
    let served = async {
        let mut api = world.ready().await;
        for path in ["/livez", "/readyz", "/v1/runs", "/v1/sends"] {
            assert_eq!(api.get(path).await.status, 200, "{path}");
        }
        let session = api.session().await;
        api.send(&session, "hi").await;
        let claimed = world.claim(&session).await;
        world.complete(&claimed, 0, "done").await;
        started(&api, &json!({ "spec": two_steps(), "input": "tea" })).await;
        api.lifecycle.stop();
        (&mut api.task)
            .await
            .expect("ends")
            .expect("without a fault");
    };
    let served = tokio::time::timeout(Duration::from_secs(30), served).await;
    bus.open();
    served.expect("a blocked loop stops everything");
}

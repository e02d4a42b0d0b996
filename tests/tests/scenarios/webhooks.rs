//! Webhook endpoints that are notified of the ends of sends: each event reaches each endpoint that
//! wants it, whatever the endpoint and the schedulers do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_runtime::{OsEntropy, Sealer, SystemClock};
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{SendId, TenantId, WebhookId};
use mainspring_shared::store::{
    ChangeWebhook, ClaimDeliveries, CreateWebhookOutcome, ListDeliveries, NewSecret, NewWebhook,
};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_shared::webhook::{
    ATTEMPTS_MAX, DeliveryRecord, DeliveryStatus, Filter, Outgoing, Posted, Poster, SigningKey,
};
use mainspring_tests::world::{FaultPlan, Faulty, World};
use mainspring_tools::http::WebhookPoster;
use serde_json::Value;
use uuid::Uuid;

const TENANT: TenantId = TenantId::DEFAULT;

/// How an endpoint answers.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// With this status.
    Status(u16),
    /// The connection fails.
    Nothing,
    /// With 200, after this long.
    Late(Duration),
    /// With 200, but the scheduler that posted dies before it receives it.
    Deadly,
}

/// Endpoints that answer as scripted, then with 200.
#[derive(Debug)]
struct Endpoints {
    clock: Arc<dyn Clock>,
    script: Mutex<BTreeMap<String, VecDeque<Answer>>>,
    seen: Mutex<Vec<(Timestamp, Outgoing)>>,
    /// The store of the scheduler that a deadly answer kills.
    dies: Mutex<Option<Arc<Faulty>>>,
}

#[async_trait]
impl Poster for Endpoints {
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn post(&self, message: Outgoing) -> Posted {
        let url = message.url.clone();
        self.seen
            .lock()
            .expect("no panic")
            .push((self.clock.now(), message));
        let answer = {
            let mut script = self.script.lock().expect("no panic");
            script.get_mut(&url).and_then(VecDeque::pop_front)
        };
        let status = match answer {
            None => 200,
            Some(Answer::Status(status)) => status,
            Some(Answer::Nothing) => {
                return Posted::Failed {
                    why: "there is no connection to it".to_owned(),
                };
            }
            Some(Answer::Late(late)) => {
                self.clock.sleep(late).await;
                200
            }
            Some(Answer::Deadly) => {
                let dies = self.dies.lock().expect("no panic").take();
                dies.expect("somebody dies").kill();
                200
            }
        };
        Posted::Answered {
            status,
            retry_after: None,
        }
    }
}

/// A world with endpoints.
struct Bed {
    world: World,
    endpoints: Arc<Endpoints>,
    sealer: Arc<Sealer>,
}

impl Bed {
    async fn new() -> Self {
        let mut world = World::new().await;
        let endpoints = Arc::new(Endpoints {
            clock: world.clock(),
            script: Mutex::default(),
            seen: Mutex::default(),
            dies: Mutex::default(),
        });
        let sealer = Sealer::parse(&Sealer::new_key(&OsEntropy)).expect("a key");
        let sealer = Arc::new(sealer);
        world.webhooks = WebhookParts {
            poster: Some(endpoints.clone()),
            sealer: Some(sealer.clone()),
        };
        Self {
            world,
            endpoints,
            sealer,
        }
    }

    /// Creates an endpoint that gives these answers, then 200.
    async fn endpoint(&self, n: u8, events: &[&str], answers: &[Answer]) -> WebhookId {
        let url = url(n);
        let script = answers.iter().copied().collect();
        self.endpoints
            .script
            .lock()
            .expect("no panic")
            .insert(url.clone(), script);
        self.create(n, url, events).await
    }

    async fn create(&self, n: u8, url: String, events: &[&str]) -> WebhookId {
        let id = WebhookId(Uuid::from_u128(u128::from(n)));
        let new = NewWebhook {
            tenant: TENANT,
            id,
            url,
            events: events.iter().map(|text| Filter::stored(text)).collect(),
            secret: self.sealed(id, &key(n)),
        };
        let created = self.world.store.create_webhook(new, None).await;
        let created = created.expect("the store answers");
        assert!(matches!(created, CreateWebhookOutcome::Created { .. }));
        id
    }

    fn sealed(&self, id: WebhookId, key: &SigningKey) -> String {
        let sealed = self.world.webhooks.seal(&OsEntropy, TENANT, id, key);
        sealed.expect("there is a key")
    }

    /// Creates this many sends and waits until they have completed.
    async fn sends(&self, count: usize) -> Vec<SendId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            let session = self.world.session(AgentSpec::default()).await;
            ids.push(self.world.send(session, "hello").await);
        }
        self.world.settle(&ids).await;
        ids
    }

    async fn deliveries(&self, id: WebhookId) -> Vec<DeliveryRecord> {
        let query = ListDeliveries {
            tenant: TENANT,
            webhook: id,
            status: None,
            before: None,
            limit: 1_000,
        };
        let page = self.world.store.list_deliveries(query).await;
        page.expect("the store answers").data
    }

    /// Waits until this many deliveries of an endpoint are settled.
    async fn settled(&self, id: WebhookId, count: usize) -> Vec<DeliveryRecord> {
        for _ in 0..10_000 {
            let all = self.deliveries(id).await;
            let settled = all.iter().filter(|it| it.settled_at.is_some());
            if settled.count() >= count {
                return all;
            }
            self.world.pass(Duration::from_secs(20)).await;
        }
        panic!("not settled: {:#?}", self.deliveries(id).await);
    }

    /// What an endpoint has seen.
    fn seen(&self, n: u8) -> Vec<(Timestamp, Outgoing)> {
        let seen = self.endpoints.seen.lock().expect("no panic");
        let mine = seen.iter().filter(|(_, message)| message.url == url(n));
        mine.cloned().collect()
    }
}

fn url(n: u8) -> String {
    format!("https://{n}.example/hook")
}

fn key(n: u8) -> SigningKey {
    SigningKey::new(vec![n; 32]).expect("a secret")
}

fn body(message: &Outgoing) -> Value {
    serde_json::from_slice(&message.body).expect("it is JSON")
}

#[tokio::test(start_paused = true)]
async fn each_end_is_told_once_to_each_endpoint_that_wants_it() {
    let bed = Bed::new().await;
    let all = bed.endpoint(1, &["send.*"], &[]).await;
    bed.endpoint(2, &["send.failed"], &[]).await;
    let _worker = bed.world.worker("w", bed.world.store.clone());
    // Two schedulers compete for the same events.
    let _first = bed.world.scheduler("a", bed.world.store.clone()).await;
    let _second = bed.world.scheduler("b", bed.world.store.clone()).await;
    let ids = bed.sends(20).await;
    bed.settled(all, 20).await;
    bed.world.pass(Duration::from_mins(5)).await;
    let seen = bed.seen(1);
    assert_eq!(seen.len(), 20, "each once");
    let told: BTreeSet<String> = seen
        .iter()
        .map(|(_, message)| {
            body(message)["data"]["id"]
                .as_str()
                .expect("an id")
                .to_owned()
        })
        .collect();
    let expected: BTreeSet<String> = ids.iter().map(SendId::to_string).collect();
    assert_eq!(told, expected);
    let (_, message) = &seen[0];
    let said = body(message);
    assert_eq!(said["type"], "send.completed");
    assert_eq!(said["data"]["status"], "completed");
    assert!(
        said["timestamp"]
            .as_str()
            .is_some_and(|at| at.ends_with('Z')),
        "{said}"
    );
    assert_eq!(message.keys, [key(1)]);
    assert_eq!(bed.seen(2).len(), 0);
    bed.world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_fails_is_tried_again_under_the_same_id() {
    let bed = Bed::new().await;
    let answers = [
        Answer::Status(500),
        Answer::Nothing,
        Answer::Status(302),
        Answer::Late(Duration::from_secs(16)),
    ];
    let id = bed.endpoint(1, &["*"], &answers).await;
    let _worker = bed.world.worker("w", bed.world.store.clone());
    let _scheduler = bed.world.scheduler("s", bed.world.store.clone()).await;
    bed.sends(1).await;
    let settled = bed.settled(id, 1).await.remove(0);
    assert_eq!(
        (settled.status, settled.attempts),
        (DeliveryStatus::Delivered, 5)
    );
    assert_eq!((settled.answer, settled.error), (Some(200), None));
    let seen = bed.seen(1);
    let ids: BTreeSet<&str> = seen
        .iter()
        .map(|(_, message)| message.id.as_str())
        .collect();
    assert_eq!((seen.len(), ids.len()), (5, 1));
    let times: Vec<i64> = seen.iter().map(|(at, _)| at.0).collect();
    let waits: Vec<i64> = times
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) / 1_000)
        .collect();
    for (wait, expected) in waits.iter().zip([5, 30, 120]) {
        let bounds = expected * 8 / 10..=expected * 12 / 10 + 2;
        assert!(bounds.contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_endpoint_is_given_up_and_told_again_on_request() {
    let bed = Bed::new().await;
    let id = bed.endpoint(1, &["*"], &[Answer::Nothing]).await;
    let _worker = bed.world.worker("w", bed.world.store.clone());
    bed.sends(1).await;
    bed.world
        .store
        .fan_out(10)
        .await
        .expect("the store answers");
    // Use up all attempts except the last, without waiting the day that they take.
    for _ in 1..ATTEMPTS_MAX {
        let claim = ClaimDeliveries {
            lease: Duration::ZERO,
            each: 1,
            limit: 1,
            busy: Vec::new(),
            busy_tenants: Vec::new(),
        };
        let claimed = bed.world.store.claim_deliveries(claim).await;
        assert_eq!(claimed.expect("the store answers").deliveries.len(), 1);
    }
    let _scheduler = bed.world.scheduler("s", bed.world.store.clone()).await;
    let dead = bed.settled(id, 1).await.remove(0);
    assert_eq!(
        (dead.status, dead.attempts),
        (DeliveryStatus::Dead, ATTEMPTS_MAX)
    );
    let again = bed.world.store.redeliver(TENANT, id, dead.event).await;
    again.expect("the store answers").expect("it is there");
    let delivered = bed.settled(id, 1).await.remove(0);
    assert_eq!(delivered.status, DeliveryStatus::Delivered);
    let ids: BTreeSet<String> = bed.seen(1).into_iter().map(|(_, it)| it.id).collect();
    assert_eq!((bed.seen(1).len(), ids.len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_gone_is_disabled() {
    let bed = Bed::new().await;
    let id = bed.endpoint(1, &["*"], &[Answer::Status(410)]).await;
    let _worker = bed.world.worker("w", bed.world.store.clone());
    let _scheduler = bed.world.scheduler("s", bed.world.store.clone()).await;
    bed.sends(1).await;
    let dead = bed.settled(id, 1).await.remove(0);
    assert_eq!(
        (dead.status, dead.answer),
        (DeliveryStatus::Dead, Some(410))
    );
    bed.world.pass(Duration::from_secs(5)).await;
    let webhook = bed.world.store.get_webhook(TENANT, id).await;
    let webhook = webhook.expect("the store answers").expect("it is there");
    let why = webhook.disabled.expect("it is disabled").reason;
    assert!(why.contains("410"), "{why}");
    bed.sends(2).await;
    bed.world.pass(Duration::from_mins(5)).await;
    assert_eq!(bed.seen(1).len(), 1, "it gets nothing any more");
}

#[tokio::test(start_paused = true)]
async fn a_slow_endpoint_does_not_hold_up_another_one() {
    let bed = Bed::new().await;
    let slow = [Answer::Late(Duration::from_secs(14)); 40];
    bed.endpoint(1, &["*"], &slow).await;
    let fast = bed.endpoint(2, &["*"], &[]).await;
    let _worker = bed.world.worker("w", bed.world.store.clone());
    let _scheduler = bed.world.scheduler("s", bed.world.store.clone()).await;
    bed.sends(40).await;
    bed.world.pass(Duration::from_secs(10)).await;
    let delivered = bed.deliveries(fast).await;
    let delivered = delivered.iter().filter(|it| it.settled_at.is_some());
    assert_eq!(delivered.count(), 40);
    assert!(
        bed.seen(1).len() <= 8,
        "a bounded number is under way to one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_dies_after_a_post_leaves_it_to_another_one() {
    let bed = Bed::new().await;
    let id = bed.endpoint(1, &["*"], &[Answer::Deadly]).await;
    let _worker = bed.world.worker("w", bed.world.store.clone());
    let dying = Arc::new(Faulty::new(bed.world.store.clone(), FaultPlan::NEVER));
    *bed.endpoints.dies.lock().expect("no panic") = Some(dying.clone());
    let _first = bed.world.scheduler("a", dying).await;
    bed.sends(1).await;
    bed.world.pass(Duration::from_secs(5)).await;
    assert_eq!(bed.seen(1).len(), 1);
    let _second = bed.world.scheduler("b", bed.world.store.clone()).await;
    let delivered = bed.settled(id, 1).await.remove(0);
    assert_eq!(
        (delivered.status, delivered.attempts),
        (DeliveryStatus::Delivered, 2)
    );
    let ids: BTreeSet<String> = bed.seen(1).into_iter().map(|(_, it)| it.id).collect();
    assert_eq!(
        (bed.seen(1).len(), ids.len()),
        (2, 1),
        "twice, under one id"
    );
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_dies_after_any_of_its_steps_loses_no_message() {
    for step in ["fan_out", "claim_deliveries", "settle_deliveries"] {
        let bed = Bed::new().await;
        let id = bed.endpoint(1, &["*"], &[Answer::Status(503)]).await;
        let _worker = bed.world.worker("w", bed.world.store.clone());
        bed.sends(2).await;
        let dying = Arc::new(Faulty::new(bed.world.store.clone(), FaultPlan::NEVER));
        let died = Arc::new(AtomicBool::new(false));
        let (killed, noted) = (dying.clone(), died.clone());
        dying.then(step, async move {
            noted.store(true, Ordering::SeqCst);
            killed.kill();
            std::future::pending::<()>().await;
        });
        let _first = bed.world.scheduler("a", dying).await;
        bed.world.pass(Duration::from_secs(5)).await;
        assert!(died.load(Ordering::SeqCst), "{step}");
        let _second = bed.world.scheduler("b", bed.world.store.clone()).await;
        let all = bed.settled(id, 2).await;
        let arrived = all.iter().all(|it| it.status == DeliveryStatus::Delivered);
        assert!(arrived, "{step}: {all:#?}");
        assert_eq!(all.len(), 2, "{step}");
    }
}

/// The database of one tenant is away between a post and its record: nobody else's messages wait.
#[tokio::test(start_paused = true)]
async fn outcomes_that_cannot_be_recorded_hold_up_no_delivery() {
    let bed = Bed::new().await;
    let id = bed.endpoint(1, &["*"], &[]).await;
    let _worker = bed.world.worker("w", bed.world.store.clone());
    let faulty = Arc::new(Faulty::new(bed.world.store.clone(), FaultPlan::NEVER));
    faulty.fail_writes(Some("settle_deliveries"));
    let _scheduler = bed.world.scheduler("s", faulty.clone()).await;
    for sends in 1..=3 {
        bed.sends(1).await;
        bed.world.pass(Duration::from_secs(5)).await;
        assert_eq!(bed.seen(1).len(), sends, "each message is posted");
    }
    faulty.fail_writes(None);
    let delivered = bed.settled(id, 3).await;
    assert!(
        delivered.iter().all(|it| it.attempts == 1),
        "{delivered:#?}"
    );
    assert_eq!(bed.seen(1).len(), 3, "and posted once");
}

#[tokio::test(start_paused = true)]
async fn both_secrets_sign_while_one_replaces_the_other() {
    let bed = Bed::new().await;
    let id = bed.endpoint(1, &["*"], &[]).await;
    let _worker = bed.world.worker("w", bed.world.store.clone());
    let _scheduler = bed.world.scheduler("s", bed.world.store.clone()).await;
    let change = ChangeWebhook {
        secret: Some(NewSecret {
            sealed: bed.sealed(id, &key(9)),
            overlap_ms: 3_600_000,
        }),
        ..ChangeWebhook::nothing(TENANT, id)
    };
    let changed = bed.world.store.change_webhook(change).await;
    changed.expect("the store answers").expect("it is there");
    bed.sends(1).await;
    bed.settled(id, 1).await;
    bed.world.pass(Duration::from_hours(2)).await;
    bed.sends(1).await;
    bed.settled(id, 2).await;
    let keys: Vec<_> = bed.seen(1).into_iter().map(|(_, it)| it.keys).collect();
    assert_eq!(keys, [vec![key(9), key(1)], vec![key(9)]]);
    assert!(
        format!("{:?}", bed.sealer).starts_with('['),
        "ids of keys only"
    );
}

/// Receives one message over a real connection, and answers it; returns what it got.
async fn receive(listener: tokio::net::TcpListener) -> (axum::http::HeaderMap, Vec<u8>) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let router = axum::Router::new().route(
        "/hook",
        axum::routing::post(
            async move |headers: axum::http::HeaderMap, body: axum::body::Bytes| {
                let _ = tell.send((headers, body.to_vec()));
                "thanks"
            },
        ),
    );
    let serving = axum::serve(listener, router).into_future();
    tokio::select! {
        ended = serving => panic!("it ended: {ended:?}"),
        got = told.recv() => got.expect("a message"),
    }
}

#[tokio::test]
async fn what_arrives_is_verified_by_the_library_of_the_standard() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut bed = Bed::new().await;
    let poster = WebhookPoster::new(
        &["127.0.0.1".to_owned()],
        Duration::from_secs(15),
        Arc::new(SystemClock::new()),
    );
    bed.world.webhooks.poster = Some(Arc::new(poster.expect("good settings")));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let at = listener.local_addr().expect("an address");
    bed.create(1, format!("http://{at}/hook"), &["send.completed"])
        .await;
    let _worker = bed.world.worker("w", bed.world.store.clone());
    let _scheduler = bed.world.scheduler("s", bed.world.store.clone()).await;
    let ids = bed.sends(1).await;
    let (headers, body) = receive(listener).await;
    let verifier = standardwebhooks::Webhook::new(&key(1).reveal()).expect("a secret");
    verifier
        .verify(&body, &headers)
        .expect("the signature is good");
    let other = standardwebhooks::Webhook::new(&key(2).reveal()).expect("a secret");
    assert!(other.verify(&body, &headers).is_err());
    let said: Value = serde_json::from_slice(&body).expect("it is JSON");
    assert_eq!(said["data"]["id"], ids[0].to_string());
}

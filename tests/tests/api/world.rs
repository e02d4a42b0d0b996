//! A store, a queue, any number of schedulers, and a worker driven by hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainspring_api::{Access, Documents, Serving, run};
use mainspring_queue_local::{LocalBus, LocalQueue};
use mainspring_runtime::{Lifecycle, OsEntropy, SystemClock};
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_scheduler::{Parts, SchedulerConfig};
use mainspring_shared::blob::Depot;
use mainspring_shared::bus::{Bus, StepNotice, Topic};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::event::{Delta, LiveEvent, LiveKind};
use mainspring_shared::id::{BootId, LeaseToken, SessionId, SessionKey, TenantId};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{Arguments, ContentPart, NewMessage, Role as Speaker, ToolCall};
use mainspring_shared::send::{SendResult, SendStatus, StopReason, WaitingOn};
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::{
    AfterSend, AppendOutcome, AppendRound, CallBegin, CallChange, CallStep, ClaimOutcome,
    ClaimSession, Claimed, CompleteOutcome, CompleteSend, Inspect, NewBoot, NewCall, ParkOutcome,
    ParkSend, ParkUntil, Role, SendTotals, UsageRow,
};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_shared::tool::{Asked, Repeat, call_id};
use mainspring_shared::usage::Usage;
use mainspring_store_model::ModelStore;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::client::{Answer, Call, Events};

/// The arguments of a call, in the words of a model that writes on several lines.
pub(crate) const SAID: &str = "{\r\n  \"to\": \"x\",\"n\": 1.50\n}";

/// The whole system except its HTTP clients.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Inspect>,
    pub(crate) queue: Arc<LocalQueue>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) boot: BootId,
    pub(crate) entropy: OsEntropy,
    /// Blob stores of schedulers that are started from now on.
    pub(crate) blobs: Arc<Depot>,
    /// Webhook parts of schedulers that are started from now on.
    pub(crate) webhooks: WebhookParts,
    /// Offset of schedulers' clocks, in milliseconds.
    pub(crate) skew: i64,
}

/// A clock whose time of day is off by some milliseconds.
#[derive(Debug)]
struct Skewed(SystemClock, i64);

#[async_trait::async_trait]
impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.now().0 + self.1)
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration).await;
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let store = Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
        Self::over(store, Arc::new(LocalBus::new())).await
    }

    pub(crate) async fn over(store: Arc<dyn Inspect>, bus: Arc<dyn Bus>) -> Self {
        let entropy = OsEntropy;
        let boot = BootId(entropy.random_id());
        let worker = NewBoot {
            id: boot,
            role: Role::Worker,
            name: "by-hand".to_owned(),
            pool: "default".to_owned(),
            concurrency: 4,
            ttl: Duration::from_mins(1),
            protocol: mainspring_shared::store::PROTOCOL,
            tools: mainspring_shared::tool::Published::default(),
        };
        store.register_boot(worker).await.expect("registers");
        Self {
            blobs: Arc::new(Depot::in_database(store.clone(), Arc::new(OsEntropy))),
            webhooks: WebhookParts::default(),
            skew: 0,
            store,
            queue: Arc::new(LocalQueue::new()),
            bus,
            boot,
            entropy,
        }
    }

    /// Starts a scheduler with the default configuration.
    pub(crate) async fn scheduler(&self) -> Scheduler {
        self.scheduler_with(|_| {}).await
    }

    /// Starts a scheduler with a changed configuration.
    pub(crate) async fn scheduler_with(
        &self,
        change: impl FnOnce(&mut SchedulerConfig),
    ) -> Scheduler {
        self.scheduler_for(Access::Open, change).await
    }

    /// Starts a scheduler with access control, and waits until it accepts sends.
    pub(crate) async fn ready_for(&self, access: Access) -> Scheduler {
        let scheduler = self.scheduler_for(access, |_| {}).await;
        scheduler.until_ready().await;
        scheduler
    }

    pub(crate) async fn scheduler_for(
        &self,
        access: Access,
        change: impl FnOnce(&mut SchedulerConfig),
    ) -> Scheduler {
        let mut config = SchedulerConfig::default();
        change(&mut config);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("binds");
        let (tell, told) = oneshot::channel();
        let parts = Parts {
            store: self.store.clone(),
            blobs: self.blobs.clone(),
            queue: self.queue.clone(),
            bus: self.bus.clone(),
            clock: Arc::new(Skewed(SystemClock::new(), self.skew)),
            entropy: Arc::new(OsEntropy),
            config,
            webhooks: self.webhooks.clone(),
        };
        let serving = Serving {
            metrics: Some(Arc::new(|| "# no metrics\n".to_owned())),
            documents: Some(Documents {
                page: mainspring_docs::page,
                search: mainspring_docs::search,
                query_bytes_max: mainspring_docs::QUERY_BYTES_MAX,
            }),
            on_accepting: Some(Box::new(move |addr| {
                let _ = tell.send(addr);
            })),
            access,
        };
        let lifecycle = Lifecycle::new();
        let task = tokio::spawn(run(parts, serving, listener, lifecycle.clone()));
        let addr = told.await.expect("accepts");
        Scheduler {
            addr,
            lifecycle,
            task,
        }
    }

    /// Number of run leaves whose sends are not final.
    pub(crate) async fn open_leaves(&self) -> usize {
        let dump = self.store.dump().await.expect("the store answers");
        let sends = dump.sessions.iter().flat_map(|session| &session.sends);
        let open = sends.filter(|send| send.run.is_some() && !send.status.is_final());
        open.count()
    }

    /// Starts a scheduler and waits until it has registered, so that it accepts sends.
    pub(crate) async fn ready(&self) -> Scheduler {
        let scheduler = self.scheduler().await;
        scheduler.until_ready().await;
        scheduler
    }

    /// Claims a session's head send.
    pub(crate) async fn claim(&self, session: &str) -> Claimed {
        self.claim_of(key(session)).await
    }

    /// Claims the head send of a session of any tenant.
    pub(crate) async fn claim_of(&self, key: SessionKey) -> Claimed {
        let claim = ClaimSession {
            cached_fold_end: 0,
            key,
            token: LeaseToken(self.entropy.random_id()),
            cached_next_seq: 0,
            cached_from_seq: 0,
            cached_version: 0,
            crashes_below: i32::MAX,
            orphans: true,
        };
        let mut outcomes = self
            .store
            .claim_sessions(self.boot, vec![claim])
            .await
            .expect("claims");
        match outcomes.pop() {
            Some(ClaimOutcome::Claimed(claimed)) => *claimed,
            other => panic!("not claimed: {other:?}"),
        }
    }

    /// Publishes a live delta.
    pub(crate) fn delta(&self, claimed: &Claimed, round: i32, offset: u64, text: &str) {
        stream(self.bus.as_ref(), claimed, round, offset, text);
    }

    /// The lease as its next write carries it: the holder numbers its writes.
    async fn lease(&self, key: SessionKey, lease: Lease) -> Lease {
        let dump = self.store.dump().await.expect("dumps");
        let found = dump.sessions.into_iter().find(|found| found.key == key);
        let write = found.map_or(0, |found| found.hot.writes);
        Lease { write, ..lease }
    }

    /// Stores a round without tool calls: an answer after which the send continues.
    pub(crate) async fn append(&self, claimed: &Claimed, round: i32, text: &str) {
        let append = AppendRound {
            fold: None,
            key: claimed.key,
            lease: self.lease(claimed.key, claimed.lease).await,
            send_id: claimed.send.record.id,
            messages: written(claimed, round, text),
            calls: Vec::new(),
            changes: Vec::new(),
            deliveries: Vec::new(),
            usage: vec![paid(round)],
            round: Some(round_ref(round)),
            totals: totals(round + 1),
        };
        let mut outcomes = self
            .store
            .append_rounds(vec![append])
            .await
            .expect("appends");
        match outcomes.pop() {
            Some(AppendOutcome::Appended { step, .. }) => self.publish(claimed, step, false),
            other => panic!("not appended: {other:?}"),
        }
    }

    /// Stores a first round with one call that waits for an external result, and parks the send.
    pub(crate) async fn ask(&self, claimed: &Claimed, on: WaitingOn, approval: bool) -> String {
        let begins = CallBegin::Waits {
            on,
            approval,
            deadline: None,
        };
        self.ask_with(claimed, (on, begins, Vec::new())).await
    }

    /// Stores a round with a call whose tool asks a person this, and parks the send.
    pub(crate) async fn inquire(&self, claimed: &Claimed, asked: Vec<Asked>) -> String {
        let asks = CallChange {
            call_id: call_id(claimed.send.record.id, 0, 0),
            change: CallStep::Asks {
                asked,
                deadline: None,
            },
        };
        let on = WaitingOn::Human;
        self.ask_with(claimed, (on, CallBegin::Started, vec![asks]))
            .await
    }

    async fn ask_with(
        &self,
        claimed: &Claimed,
        (on, begins, changes): (WaitingOn, CallBegin, Vec<CallChange>),
    ) -> String {
        let id = call_id(claimed.send.record.id, 0, 0);
        let mut messages = written(claimed, 0, "calling");
        messages[1]
            .tool_calls
            .push(ToolCall::new(id.clone(), "outside", Arguments::read(SAID)));
        let append = AppendRound {
            fold: None,
            key: claimed.key,
            lease: self.lease(claimed.key, claimed.lease).await,
            send_id: claimed.send.record.id,
            messages,
            calls: vec![NewCall {
                call_id: id.clone(),
                round: 0,
                place: 0,
                name: "outside".to_owned(),
                arguments: Arguments::read(SAID),
                repeat: Repeat::Keyed,
                begins,
            }],
            changes,
            deliveries: Vec::new(),
            usage: vec![paid(0)],
            round: Some(round_ref(0)),
            totals: totals(1),
        };
        let appended = self.store.append_rounds(vec![append]).await;
        assert!(matches!(
            appended.expect("appends").pop(),
            Some(AppendOutcome::Appended { .. })
        ));
        self.park(claimed, on, 1).await;
        id
    }

    /// Makes an approved call wait for its result from outside, as a worker does, and parks the send.
    pub(crate) async fn hand_out(&self, claimed: &Claimed, call: &str) {
        let on = WaitingOn::Tool;
        let append = AppendRound {
            fold: None,
            key: claimed.key,
            lease: self.lease(claimed.key, claimed.lease).await,
            send_id: claimed.send.record.id,
            messages: Vec::new(),
            calls: Vec::new(),
            changes: vec![CallChange {
                call_id: call.to_owned(),
                change: CallStep::Waits { on, deadline: None },
            }],
            deliveries: Vec::new(),
            usage: Vec::new(),
            round: None,
            totals: totals(1),
        };
        let appended = self.store.append_rounds(vec![append]).await;
        assert!(matches!(
            appended.expect("appends").pop(),
            Some(AppendOutcome::Appended { .. })
        ));
        self.park(claimed, on, 1).await;
    }

    /// Ends the send with an answer, and publishes the step.
    pub(crate) async fn complete(&self, claimed: &Claimed, round: i32, text: &str) -> SendStatus {
        let (status, step) = self.complete_silently(claimed, round, text).await;
        self.publish(claimed, step, true);
        status
    }

    /// Ends the send with an answer without publishing the step, like a worker that dies right
    /// after.
    pub(crate) async fn complete_silently(
        &self,
        claimed: &Claimed,
        round: i32,
        text: &str,
    ) -> (SendStatus, i64) {
        let answered = CompleteSend {
            messages: written(claimed, round, text),
            usage: vec![paid(round)],
            round: Some(round_ref(round)),
            totals: totals(round + 1),
            ..ended(
                claimed,
                SendResult::completed(StopReason::End, text.to_owned()),
            )
        };
        self.end(answered).await
    }

    /// Ends the send with an answer that cost this many US dollars.
    pub(crate) async fn complete_for(&self, claimed: &Claimed, dollars: f64) {
        let mut row = paid(0);
        row.usage.cost_usd = Some(dollars);
        let answered = CompleteSend {
            messages: written(claimed, 0, "done"),
            usage: vec![row],
            round: Some(round_ref(0)),
            totals: totals(1),
            ..ended(
                claimed,
                SendResult::completed(StopReason::End, "done".to_owned()),
            )
        };
        self.end(answered).await;
    }

    /// Ends the send as failed, as after a model call that is not possible.
    pub(crate) async fn fail(&self, claimed: &Claimed, code: Code, message: &str) {
        let failure = Failure::new(code, message);
        let failed = ended(
            claimed,
            SendResult::failed(StopReason::ProviderError, failure),
        );
        let (_, step) = self.end(failed).await;
        self.publish(claimed, step, true);
    }

    async fn end(&self, mut item: CompleteSend) -> (SendStatus, i64) {
        item.lease = self.lease(item.key, item.lease).await;
        let mut outcomes = self
            .store
            .complete_sends(vec![item])
            .await
            .expect("completes");
        match outcomes.pop() {
            Some(CompleteOutcome::Completed(done)) => (done.status, done.step),
            other => panic!("not completed: {other:?}"),
        }
    }

    /// Parks a send after this many rounds.
    pub(crate) async fn park(&self, claimed: &Claimed, on: WaitingOn, rounds: i32) {
        let park = ParkSend {
            key: claimed.key,
            lease: self.lease(claimed.key, claimed.lease).await,
            send_id: claimed.send.record.id,
            on,
            until: ParkUntil::Asked,
            unless: 0,
            usage: Vec::new(),
            totals: totals(rounds),
        };
        let mut outcomes = self.store.park_sends(vec![park]).await.expect("parks");
        match outcomes.pop() {
            Some(ParkOutcome::Parked { step }) => self.publish(claimed, step, true),
            other => panic!("not parked: {other:?}"),
        }
    }

    /// Publishes a step notice.
    pub(crate) fn publish(&self, claimed: &Claimed, n: i64, settled: bool) {
        let notice = StepNotice::new(claimed.key, claimed.send.record.id, n, settled);
        let json = serde_json::to_vec(&[notice]).expect("json");
        self.bus.publish(Topic::Steps, Bytes::from(json));
    }
}

/// Publishes a live delta.
pub(crate) fn stream(bus: &dyn Bus, claimed: &Claimed, round: i32, offset: u64, text: &str) {
    let delta = Delta {
        round,
        attempt: 1,
        offset,
        text: text.to_owned(),
    };
    let event = LiveEvent {
        send_id: claimed.send.record.id,
        kind: LiveKind::MessageDelta(delta),
    };
    let json = serde_json::to_vec(&[event]).expect("json");
    bus.publish(Topic::Live(claimed.key), Bytes::from(json));
}

fn written(claimed: &Claimed, round: i32, text: &str) -> Vec<NewMessage> {
    let mut messages = Vec::new();
    if round == 0 {
        messages.push(NewMessage::user(claimed.send.record.input.clone(), 0));
    }
    messages.push(NewMessage {
        role: Speaker::Assistant,
        content: vec![ContentPart::text(text)],
        tool_calls: Vec::new(),
        tool_call_id: None,
        name: None,
        failed: false,
        round,
        asked_back: None,
    });
    messages
}

fn paid(round: i32) -> UsageRow {
    UsageRow {
        round,
        attempt: round + 1,
        model: "demo".to_owned(),
        usage: usage(1),
    }
}

fn round_ref(round: i32) -> RoundRef {
    RoundRef {
        index: round,
        model: "demo".to_owned(),
        usage: usage(1),
        digest: None,
        folded: None,
        aged_to: None,
        recalled: None,
    }
}

fn usage(rounds: u64) -> Usage {
    Usage {
        input_tokens: 10 * rounds,
        output_tokens: 5 * rounds,
        ..Usage::default()
    }
}

fn totals(rounds: i32) -> SendTotals {
    SendTotals {
        usage: usage(rounds as u64),
        rounds,
        attempts: rounds,
        ..SendTotals::default()
    }
}

/// A running scheduler. Dropping it stops it.
pub(crate) struct Scheduler {
    pub(crate) addr: SocketAddr,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) task: tokio::task::JoinHandle<Result<(), mainspring_api::Error>>,
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.lifecycle.abort();
    }
}

impl Scheduler {
    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        Call::new(self.addr, method, path)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path).json(body).send().await
    }

    pub(crate) async fn events(&self, path: &str) -> Events {
        self.call("GET", path).stream().await
    }

    /// Waits until it reports ready.
    pub(crate) async fn until_ready(&self) {
        while self.get("/readyz").await.status != 200 {
            tokio::task::yield_now().await;
        }
    }

    /// Creates a session; returns its id.
    pub(crate) async fn session(&self) -> String {
        let json = self
            .post("/v1/sessions", &serde_json::json!({}))
            .await
            .ok(201);
        json["id"].as_str().expect("an id").to_owned()
    }

    /// Creates a send; returns its id.
    pub(crate) async fn send(&self, session: &str, input: &str) -> String {
        let path = format!("/v1/sessions/{session}/sends");
        let json = self
            .post(&path, &serde_json::json!({ "input": input }))
            .await
            .ok(202);
        json["id"].as_str().expect("an id").to_owned()
    }
}

/// A well-formed id that refers to nothing.
pub(crate) fn nothing(prefix: &str) -> String {
    format!("{prefix}{:032x}", 42)
}

/// The key of a session of the default tenant.
pub(crate) fn key(session: &str) -> SessionKey {
    let session: SessionId = session.parse().expect("a session's id");
    SessionKey {
        tenant: TenantId::DEFAULT,
        session,
    }
}

/// The end of a send without messages.
fn ended(claimed: &Claimed, result: SendResult) -> CompleteSend {
    CompleteSend {
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        messages: Vec::new(),
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: Vec::new(),
        round: None,
        totals: totals(0),
        unless: 0,
        projections: Vec::new(),
        result,
        then: AfterSend::Release,
    }
}

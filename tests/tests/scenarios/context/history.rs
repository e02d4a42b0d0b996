//! Conversations generated from a seed, and three ways to run one: on a worker that stays, on
//! workers that have nothing of the session cached, and on workers that die at any of their writes.

use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::Lifecycle;
use mainspring_shared::agent::{
    AgentSpec, ContextSpec, FoldSpec, FoldStrategy, MemorySpec, OnBusy, Representation,
    SendOptions, ToolContext,
};
use mainspring_shared::id::{MemoryId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::list::ListName;
use mainspring_shared::message::{ContentPart, ImageSource};
use mainspring_shared::model::Digest;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::preview::Answered;
use mainspring_shared::store::{
    ImportSession, NewMemory, NewSession, PruneSession, PruneTo, ReadMessages, SaveMemory,
    SessionPatch, Store,
};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::simulation::Chance;
use mainspring_tests::world::{Asked, Fault, FaultPlan, Faulty, ModelBehaviour, Replays, World};
use mainspring_worker::WorkerConfig;
use serde_json::{Map, Value, json};

use crate::context::wires::without_ids;

/// An operation on a conversation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// A user message, perhaps with another one while the send is running.
    Say {
        input: Vec<ContentPart>,
        steer: Option<String>,
    },
    /// Old messages are removed.
    Prune(u32),
    /// The conversation continues in a copy.
    Fork,
    /// A memory about its user is added.
    Remember(String),
    /// Its agent is changed.
    Change(Box<AgentSpec>),
}

/// How many pictures are replaced at once in some steady conversations.
pub(crate) const BLOCK: u32 = 2;

/// A conversation.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) seed: u64,
    pub(crate) agent: AgentSpec,
    pub(crate) ops: Vec<Op>,
}

/// Which workers run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Warm,
    Cold,
    TakenOver,
}

const WORDS: [&str; 12] = [
    "tea",
    "boat",
    "garden",
    "letter",
    "stone",
    "number",
    "blue",
    "winter",
    "bread",
    "музыка",
    "茶",
    "\"quoted\" {x}",
];

fn words(chance: &mut Chance, count: u64) -> String {
    let words = (0..count).map(|_| chance.pick(&WORDS));
    words.collect::<Vec<_>>().join(" ")
}

/// A to-do list whose first items are done.
fn to_do(chance: &mut Chance, n: u64) -> Value {
    let done = chance.below(3);
    let items = (0..chance.between(1, 4)).map(|at| {
        let status = if at < done { "completed" } else { "pending" };
        json!({"text": format!("item {n}.{at}: {}", words(chance, 3)), "status": status})
    });
    items.collect()
}

fn calls(chance: &mut Chance, place: usize) -> Value {
    let rounds = chance.between(1, 3);
    let round = |chance: &mut Chance, round: u64| {
        let calls = chance.between(1, 3);
        let call = |chance: &mut Chance, call: u64| {
            let n = place as u64 * 100 + round * 10 + call;
            match chance.below(8) {
                0 if call == 1 => {
                    json!(["note_add", {"content": format!("note {n}: {}", words(chance, 4))}])
                }
                1 if call == 0 => {
                    json!(["memory_save", {"text": format!("fact {n}: {}", words(chance, 4))}])
                }
                2 => {
                    json!(["spawn_agent", {"task": format!("plan [[[\"look\", {{\"n\": {n}}}]]]")}])
                }
                3 => json!(["put", {"n": n}]),
                4 => json!(["look", {"n": n, "fail": true}]),
                5 => json!(["look", {"n": n, "image": 400}]),
                6 if call == 0 => json!(["todo", {"items": to_do(chance, n)}]),
                _ => json!(["look", {"n": n, "chars": chance.between(10, 3_000)}]),
            }
        };
        let calls: Vec<Value> = (0..calls).map(|n| call(chance, n)).collect();
        Value::from(calls)
    };
    let rounds: Vec<Value> = (0..rounds).map(|n| round(chance, n)).collect();
    Value::from(rounds)
}

fn picture(n: usize) -> ContentPart {
    ContentPart::Image {
        source: ImageSource::Base64 {
            media_type: "image/png".to_owned(),
            data: "iVBORw0KGgo".to_owned() + &"A".repeat(n % 7 * 4 + 1),
        },
    }
}

fn say(chance: &mut Chance, place: usize) -> Op {
    let about = words(chance, 3);
    let mut steer = None;
    let text = match chance.below(6) {
        0 => format!("say {place}: {}", words(chance, 30)),
        1 => format!("{place} {}", words(chance, 2)),
        2 => {
            steer = Some(format!("plan []\n\nand {}", words(chance, 3)));
            let rounds = json!([[["put", {"n": place}]], [["look", {"n": place, "ms": 3_000}]]]);
            format!("plan {rounds}\n\n{about}")
        }
        _ => format!("plan {}\n\nabout {about}", calls(chance, place)),
    };
    let mut input = vec![ContentPart::text(text)];
    if chance.one_in(5) {
        input.push(picture(place));
    }
    Op::Say { input, steer }
}

/// An agent with every feature that changes requests from send to send.
pub(crate) fn agent() -> AgentSpec {
    let names = [
        "note_add",
        "todo",
        "look",
        "put",
        "spawn_agent",
        "memory_save",
    ];
    AgentSpec {
        system_prompt: Some("be brief and kind.".to_owned()),
        tools: names.map(|name| ToolEntry::Named(name.into())).to_vec(),
        memory: Some(MemorySpec::new("user/{{metadata.user_id}}")),
        ..AgentSpec::default()
    }
}

fn drawn_agent(chance: &mut Chance) -> AgentSpec {
    let mut agent = agent();
    let strategy = chance.pick(&[
        FoldStrategy::None,
        FoldStrategy::Projection,
        FoldStrategy::Summary,
        FoldStrategy::Summary,
    ]);
    let hard = chance.pick(&[0.005, 0.01, 0.03]);
    let mut context = ContextSpec {
        last_messages: chance.pick(&[None, None, Some(8), Some(14)]),
        representation: chance.pick(&[Representation::Verbatim, Representation::Projection]),
        fold: FoldSpec {
            strategy,
            hard: Some(hard),
            keep_sends: Some(chance.between(1, 3) as u32),
            ..FoldSpec::default()
        },
        ..ContextSpec::default()
    };
    if chance.one_in(2) {
        let policies = [
            ToolContext::Truncate,
            ToolContext::Archive,
            ToolContext::Summary,
        ];
        let policy = chance.pick(&policies);
        context.tools.insert("look".to_owned(), policy);
    }
    context.images.keep = chance.pick(&[None, Some(0), Some(1), Some(2)]);
    agent.context = context;
    agent
}

impl History {
    /// The conversation of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let agent = drawn_agent(&mut chance);
        let count = chance.between(4, 12) as usize;
        let mut ops = Vec::new();
        for place in 0..count {
            match chance.below(16) {
                0 => ops.push(Op::Prune(chance.between(2, 9) as u32)),
                1 => ops.push(Op::Fork),
                2 => {
                    let text = format!("likes {place} {}", words(&mut chance, 4));
                    ops.push(Op::Remember(text));
                }
                3 => {
                    let mut changed = drawn_agent(&mut chance);
                    changed.system_prompt = Some(format!("as of {place}"));
                    ops.push(Op::Change(Box::new(changed)));
                }
                _ => {}
            }
            ops.push(say(&mut chance, place));
        }
        Self { seed, agent, ops }
    }

    /// The same without anything that changes what was shown before: no folds, prunes, copies or
    /// other agents. Every third one replaces old pictures by lines, in blocks; the others show as
    /// many pictures as agents do by default.
    pub(crate) fn steady(seed: u64) -> Self {
        let mut all = Self::of(seed);
        all.agent = agent();
        if seed.is_multiple_of(3) {
            all.agent.context.images.keep = Some(BLOCK);
        }
        all.agent.context.fold.strategy = FoldStrategy::None;
        let is_steady = |op: &Op| matches!(op, Op::Say { .. } | Op::Remember(_));
        all.ops.retain(is_steady);
        all
    }
}

/// What came of a conversation.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The model calls, in order.
    pub(crate) asked: Vec<Asked>,
    /// The previewed digest of a send's first round with the recorded one, for sends before which
    /// nothing was folded.
    pub(crate) previewed: Vec<(Digest, Digest)>,
    /// Number of workers that died.
    pub(crate) deaths: usize,
    /// Number of rounds of its own sends.
    pub(crate) rounds: usize,
    /// Each fold: the number of rounds before it, and the first and last message that it covers.
    pub(crate) folds: Vec<(usize, i64, i64)>,
    /// The texts of its folds.
    pub(crate) texts: Vec<String>,
    /// Number of copies and prunes.
    pub(crate) changes: usize,
    /// The requests of its last copy, rendered again.
    pub(crate) replays: Replays,
}

/// Runs one conversation in a world, which may run many one after the other.
pub(crate) struct Runner<'w> {
    world: &'w World,
    way: Way,
    user: String,
    key: SessionKey,
    chance: Chance,
    outcome: Outcome,
    worker: Option<Lifecycle>,
}

/// Name of the worker that only renders previews and never runs anything.
pub(crate) const VIEWER: &str = "viewer";

impl<'w> Runner<'w> {
    /// Runs a conversation to its end. The world has a worker named [`VIEWER`] in a pool that
    /// nothing else uses.
    pub(crate) async fn run(world: &'w World, history: &History, way: Way) -> Outcome {
        let begun = world.script.asked();
        let user = format!("u{}", world.entropy().random_id().simple());
        let metadata = Map::from_iter([("user_id".to_owned(), json!(user))]);
        let key = SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(world.entropy().ordered_id()),
        };
        let new = NewSession {
            key,
            agent: history.agent.clone(),
            metadata,
            parent: None,
        };
        let created = world.store.create_sessions(vec![(new, None)]).await;
        created.expect("the store takes it");
        let mut runner = Self {
            world,
            way,
            user,
            key,
            chance: Chance::new(history.seed ^ 0xdead),
            outcome: Outcome {
                asked: Vec::new(),
                previewed: Vec::new(),
                deaths: 0,
                rounds: 0,
                folds: Vec::new(),
                texts: Vec::new(),
                changes: 0,
                replays: Replays::default(),
            },
            worker: None,
        };
        if way == Way::Warm {
            runner.worker = Some(worker(world, "warm", world.store.clone()));
            world.pass(Duration::from_millis(100)).await;
        }
        for op in &history.ops {
            runner.act(op).await;
        }
        if let Some(worker) = runner.worker.take() {
            retire(&worker).await;
        }
        runner.keep_texts().await;
        runner.outcome.replays = world.replayed(runner.key).await;
        runner.outcome.asked = world.script.ledger_behind(begun);
        runner.outcome
    }

    async fn act(&mut self, op: &Op) {
        match op {
            Op::Say { input, steer } => self.say(input, steer.as_deref()).await,
            Op::Prune(keep) => {
                let item = PruneSession {
                    key: self.key,
                    to: PruneTo::KeepLast(*keep),
                    dry_run: false,
                    limit: 10_000,
                };
                let pruned = self.world.store.prune_session(item).await;
                pruned.expect("the store takes it");
                self.outcome.changes += 1;
            }
            Op::Fork => self.fork().await,
            Op::Remember(text) => {
                let item = SaveMemory {
                    tenant: TenantId::DEFAULT,
                    entry: NewMemory {
                        id: MemoryId(self.world.entropy().ordered_id()),
                        namespace: format!("user/{}", self.user).parse().expect("a namespace"),
                        text: text.clone(),
                        metadata: Map::new(),
                        source: None,
                        expires_at: None,
                    },
                    idempotency: None,
                };
                let saved = self.world.store.save_memory(item).await;
                saved.expect("the store takes it");
            }
            Op::Change(agent) => {
                let patch = SessionPatch {
                    agent: Some((**agent).clone()),
                    ..SessionPatch::default()
                };
                let changed = self.world.store.update_session(self.key, patch).await;
                changed.expect("the store takes it");
            }
        }
    }

    /// Records the texts of the session's folds.
    async fn keep_texts(&mut self) {
        let folds = self.world.store.read_folds(self.key).await;
        let folds = folds.expect("the store answers").into_iter();
        let texts = folds.map(|fold| without_ids(fold.text.as_bytes()));
        self.outcome.texts.extend(texts);
    }

    async fn fork(&mut self) {
        self.keep_texts().await;
        let store = &self.world.store;
        let session = store.get_session(self.key).await.expect("it answers");
        let session = session.expect("it is there");
        let query = ReadMessages {
            key: self.key,
            after: 0,
            limit: 100_000,
        };
        let messages = store.read_messages(query).await.expect("it answers");
        let folds = store.read_folds(self.key).await.expect("it answers");
        let before = messages.first().map_or(0, |first| first.seq - 1);
        let last = messages.last().map_or(0, |last| last.seq);
        let key = SessionKey {
            session: SessionId(self.world.entropy().ordered_id()),
            ..self.key
        };
        let list = |name| store.read_list(TenantId::DEFAULT, name);
        let notes = list(ListName::Notes(self.key.session)).await;
        let todo = list(ListName::Todo(self.key.session)).await;
        let item = ImportSession {
            session: NewSession {
                key,
                agent: session.agent,
                metadata: session.metadata,
                parent: None,
            },
            messages,
            projections: Vec::new(),
            folds: mainspring_shared::session::fold::copies(folds, before, last),
            todo: todo.expect("it answers"),
            notes: notes.expect("it answers"),
            idempotency: None,
            behind: 0,
            more: false,
        };
        store
            .import_session(item)
            .await
            .expect("the store takes it");
        self.key = key;
        self.outcome.changes += 1;
    }

    /// Runs one send to its end.
    async fn say(&mut self, input: &[ContentPart], steer: Option<&str>) {
        let world = self.world;
        let mut previews = Vec::new();
        let words = match &input[0] {
            ContentPart::Text { text } if input.len() == 1 => Some(text.clone()),
            _ => None,
        };
        if let (Way::Warm, Some(words)) = (self.way, &words) {
            for worker in ["warm", VIEWER] {
                match world.preview(worker, self.key, Some(words)).await {
                    Answered::Preview(preview) => previews.push(preview.digest),
                    Answered::Refused { code, detail } => panic!("{code}: {detail}"),
                }
            }
        }
        let before = world
            .store
            .last_steps(vec![self.key])
            .await
            .expect("it answers")[0];
        let first = self.begin();
        let id = world
            .send_parts(self.key, input.to_vec(), SendOptions::default())
            .await;
        if let Some(faulty) = first {
            self.survive(id, &faulty, steer).await;
        } else {
            self.steered(id, steer).await;
        }
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        if self.way != Way::Warm
            && let Some(worker) = self.worker.take()
        {
            retire(&worker).await;
        }
        let steps = world.store.read_steps(self.key, before, 1_000).await;
        let (mut digest, mut is_previewed) = (None, true);
        for step in steps.expect("it answers") {
            if let Some(fold) = step.refs.fold {
                let place = (self.outcome.rounds, fold.from_seq, fold.to_seq);
                self.outcome.folds.push(place);
            }
            // A preview does not include a fold made before the first round.
            is_previewed &= step.refs.fold.is_none();
            if let Some(round) = step.refs.round {
                self.outcome.rounds += 1;
                digest = digest.or(round.digest.filter(|_| is_previewed));
                is_previewed = false;
            }
        }
        if let Some(recorded) = digest {
            let previewed = previews.into_iter().map(|seen| (seen, recorded));
            self.outcome.previewed.extend(previewed);
        }
    }

    /// Starts the worker of the next send. If it is to die at some write, returns its store.
    fn begin(&mut self) -> Option<Arc<Faulty>> {
        match self.way {
            Way::Warm => None,
            Way::Cold => {
                self.worker = Some(worker(self.world, "cold", self.world.store.clone()));
                None
            }
            Way::TakenOver => {
                let fault = self.chance.pick(&[Fault::DieBefore, Fault::DieAfter]);
                let at = self.chance.below(7) as usize;
                let plan = FaultPlan { at, fault };
                let faulty = Arc::new(Faulty::new(self.world.store.clone(), plan));
                self.worker = Some(worker(self.world, "dies", faulty.clone()));
                Some(faulty)
            }
        }
    }

    /// Starts another worker once the first one is dead, or once the send has ended regardless.
    async fn survive(&mut self, id: SendId, faulty: &Faulty, steer: Option<&str>) {
        let world = self.world;
        let mut told = steer;
        let begun = world.clock().monotonic();
        loop {
            let record = world.record(id).await;
            if told.is_some() && record.rounds >= 2 {
                self.tell_more(told.take().expect("it is there")).await;
            }
            if record.status.is_final() {
                return;
            }
            if faulty.failed_method().is_some() {
                break;
            }
            world.pass_before_look(begun).await;
        }
        self.outcome.deaths += 1;
        if let Some(dead) = self.worker.take() {
            dead.abort();
        }
        self.worker = Some(worker(world, "takes over", world.store.clone()));
        self.steered(id, told).await;
    }

    async fn steered(&self, id: SendId, steer: Option<&str>) {
        let Some(words) = steer else { return };
        let begun = self.world.clock().monotonic();
        while self.world.record(id).await.rounds < 2 {
            self.world.pass_before_look(begun).await;
        }
        self.tell_more(words).await;
    }

    async fn tell_more(&self, words: &str) {
        let _ = self.world.deliver(self.key, words, OnBusy::Steer).await;
    }
}

/// A worker that makes few background calls to the store.
fn worker(world: &World, name: &str, store: Arc<dyn Store>) -> Lifecycle {
    let config = WorkerConfig {
        name: name.to_owned(),
        lease_ttl: Duration::from_secs(3),
        // Nothing is paused in these tests.
        pause_interval: Duration::from_hours(1),
        ..WorkerConfig::default()
    };
    world.worker_with(config, store)
}

async fn retire(worker: &Lifecycle) {
    worker.shut_down(Duration::from_secs(1)).await;
    worker.abort();
}

/// Starts a worker that only renders previews.
pub(crate) fn viewer(world: &World) {
    let config = WorkerConfig {
        name: VIEWER.to_owned(),
        pool: "nobodys".to_owned(),
        lease_ttl: Duration::from_hours(1),
        pause_interval: Duration::from_hours(1),
        ..WorkerConfig::default()
    };
    world.worker_with(config, world.store.clone());
    // Providers' token counts adjust the estimates: by the stored calibration, on every worker.
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.3),
        // Makes memories that are saved in two rounds have different times.
        answer_takes: Duration::from_millis(3),
        ..ModelBehaviour::default()
    });
}

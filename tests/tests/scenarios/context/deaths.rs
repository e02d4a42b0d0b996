//! Deaths at every write of a conversation with everything that can happen besides its rounds: a
//! fold during a send and one of its own rounds, a recall with the question's vector, entries that
//! the model saves, an extraction, vectors of entries, and an output that goes into a blob; on
//! every store.
//!
//! In the end the transcript and the memory are as if nothing had happened, and each billed answer
//! has exactly one usage row, except answers requested by the worker that died.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::{
    AgentSpec, ContextSpec, ExtractMode, FoldSpec, FoldStrategy, MemorySpec,
};
use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::memory::{Embedded, Embedder, Embedding, PaidCall};
use mainspring_shared::model::expect_tokens;
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{Dump, NewSession, TenantUsageQuery, UsageRow};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::usage::{Purpose, Usage};
use mainspring_tests::pairing;
use mainspring_tests::suites::store::harness::environment;
use mainspring_tests::world::{
    Backing, Bill, Bills, Fault, FaultPlan, Faulty, ModelBehaviour, World, alone, differences,
    essence,
};
use mainspring_worker::WorkerConfig;
use mainspring_worker::llm::FactsOverride;
use serde_json::{Value, json};
use uuid::Uuid;

/// Embeddings that bill what they read, as seen by one worker.
#[derive(Debug)]
struct Vectors {
    clock: Arc<dyn Clock>,
    bills: Arc<Bills>,
    by: String,
}

fn paid(texts: &[String], estimated: bool) -> PaidCall {
    PaidCall {
        model: "vectors".to_owned(),
        usage: Usage {
            input_tokens: texts.iter().map(|text| expect_tokens(text) + 1).sum(),
            estimated,
            ..Usage::default()
        },
    }
}

#[async_trait]
impl Embedder for Vectors {
    async fn embed(&self, texts: Vec<String>) -> Embedded {
        self.clock.sleep(Duration::from_millis(50)).await;
        let paid = paid(&texts, false);
        self.bills.add(Bill {
            by: self.by.clone(),
            purpose: Purpose::Embed,
            usage: paid.usage,
        });
        let vector = |text: &String| Embedding {
            model: "vectors".to_owned(),
            vector: vec![1.0, text.len() as f32],
        };
        Embedded {
            vectors: Ok(texts.iter().map(vector).collect()),
            paid: Some(paid),
        }
    }

    fn expected(&self, texts: &[String]) -> PaidCall {
        paid(texts, true)
    }
}

struct Conversation {
    world: World,
    vectors: Arc<Bills>,
    key: SessionKey,
}

fn agent() -> AgentSpec {
    AgentSpec {
        tools: ["look", "put"]
            .map(|name| ToolEntry::Named(name.into()))
            .into(),
        max_tokens: Some(1_000),
        memory: Some(MemorySpec {
            extract: ExtractMode::AfterSend,
            ..MemorySpec::new("user/{{metadata.user_id}}")
        }),
        context: ContextSpec {
            fold: FoldSpec {
                strategy: FoldStrategy::Summary,
                soft: Some(0.03),
                hard: Some(0.3),
                keep_sends: Some(1),
                ..FoldSpec::default()
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

impl Conversation {
    async fn begin(backing: &Backing) -> Self {
        let mut world = World::over(backing, |_, _, _| {}).await;
        let facts = FactsOverride {
            window: Some(60_000),
            ..FactsOverride::default()
        };
        world.facts.insert("model".to_owned(), facts);
        world.script.set_behaviour(ModelBehaviour {
            counts: Some(1.0),
            summary_chars: 400,
            summary_takes: Duration::from_secs(2),
            ..ModelBehaviour::default()
        });
        let key = SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(0x5e55 << 64 | 1)),
        };
        let new = NewSession {
            key,
            agent: agent(),
            metadata: [("user_id".to_owned(), json!("ann"))].into_iter().collect(),
            parent: None,
        };
        let created = world.store.create_sessions(vec![(new, None)]).await;
        created.expect("the store takes it");
        Self {
            world,
            vectors: Arc::default(),
            key,
        }
    }

    fn worker(&mut self, name: &str, faulty: Option<Arc<Faulty>>) {
        let vectors = Vectors {
            clock: self.world.clock(),
            bills: self.vectors.clone(),
            by: name.to_owned(),
        };
        self.world.embedder = Some((Arc::new(vectors), Duration::from_millis(500)));
        let config = WorkerConfig {
            name: name.into(),
            extract_timeout: Duration::from_secs(5),
            ..WorkerConfig::default()
        };
        match faulty {
            Some(faulty) => self.world.worker_with(config, faulty),
            None => self.world.worker_with(config, self.world.store.clone()),
        };
    }

    /// Runs the conversation. The first worker has the fault; another one is started once the fault
    /// has struck, or before the last send.
    async fn hold(&mut self, faulty: &Arc<Faulty>) {
        self.worker("first", Some(faulty.clone()));
        let words = "what was decided about it, and why. ".repeat(100);
        let facts = json!({"memories": [
            {"text": "the dog is called Rex"},
            {"text": "Ann drinks green tea"},
        ]});
        let mut said = vec![format!("extract {facts}")];
        said.extend((0..3).map(|n| format!("say {n} of tea {words}")));
        let rounds = json!([
            [["memory_save", {"text": "the plan was made in May"}]],
            [["look", {"n": 1, "chars": 70_000, "ms": 3_000}], ["put", {"n": 1}]],
            [["memory_search", {"query": "plan"}]],
            [["look", {"n": 2, "chars": 30_000, "ms": 3_000}]],
            [["look", {"n": 3, "chars": 30_000, "ms": 3_000}], ["put", {"n": 3}]],
        ]);
        said.push(format!("plan {rounds}"));
        let mut has_second = false;
        for (n, text) in said.iter().enumerate() {
            let id = self.world.send(self.key, text).await;
            self.world.pass(Duration::from_millis(100)).await;
            if !has_second && (faulty.failed_method().is_some() || n + 1 == said.len()) {
                self.worker("second", None);
                has_second = true;
            }
            let record = self.world.settle(&[id]).await.remove(0);
            assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
            // Time enough for a fold that is written between two sends.
            self.world.pass(Duration::from_secs(3)).await;
        }
        self.world.pass(Duration::from_secs(5)).await;
        // Extractions of dead workers are found once their leases have expired.
        for _ in 0..40 {
            if self.world.dump().await.extractions.is_empty() {
                break;
            }
            self.world.pass(Duration::from_secs(5)).await;
        }
    }

    /// The part of the final state that must be the same whatever happened.
    async fn outcome(&self) -> Value {
        let dump = self.world.dump().await;
        assert_eq!(dump.extractions, []);
        let essence = essence(&dump);
        let session = &essence["sessions"][0];
        let mut texts: Vec<_> = dump.memories.iter().map(|(_, it)| &it.text).collect();
        texts.sort();
        json!({
            "messages": session["messages"], "calls": session["calls"], "memories": texts,
        })
    }

    /// Asserts that each usage row is an answer that was billed, and returns the bills without a
    /// row.
    async fn unpaid(&self, dump: &Dump) -> Vec<Bill> {
        let mut bills = self.world.script.bills();
        bills.extend(self.vectors.all());
        let mut rows = 0;
        for session in &dump.sessions {
            for ((_, round, attempt), usage) in session.usage.iter().zip(&session.paid) {
                rows += 1;
                let purpose = UsageRow {
                    round: *round,
                    attempt: *attempt,
                    model: String::new(),
                    usage: *usage,
                }
                .purpose();
                let fits = |bill: &&Bill| {
                    bill.purpose == purpose
                        && bill.usage.input_tokens == usage.input_tokens
                        && bill.usage.output_tokens == usage.output_tokens
                };
                // Of equal bills take the last: the worker that asks again after a death stores it.
                let its_own = bills.iter().rposition(|bill| fits(&bill));
                let place = its_own.unwrap_or_else(|| {
                    panic!("nobody billed this {purpose:?} ({round}, {attempt}): {usage:?} of {bills:#?}")
                });
                bills.remove(place);
            }
        }
        let all = TenantUsageQuery {
            tenant: TenantId::DEFAULT,
            from: Uuid::nil(),
            until: Uuid::max(),
        };
        let used = self.world.store.tenant_usage(all).await;
        assert_eq!(used.expect("it answers").calls, rows, "paid by no send");
        bills
    }

    async fn check(&self, faulty: &Faulty, sound: &Value) {
        let plan = (faulty, faulty.failed_method());
        let differ = differences(&self.outcome().await, sound);
        assert!(differ.is_empty(), "{plan:?}: {differ:#?}");
        for asked in self.world.script.ledger() {
            pairing::stored(&asked.messages).expect("no call is parted from its result");
        }
        let dump = self.world.dump().await;
        let lost = self.unpaid(&dump).await;
        // Only calls of the dead worker: the send's, a fold's, an extraction's and those for
        // vectors.
        let theirs = lost.iter().all(|bill| bill.by == "first");
        assert!(theirs && lost.len() <= 4, "{plan:?}: {lost:#?}");
        let mut by: BTreeMap<Purpose, usize> = BTreeMap::new();
        for bill in &lost {
            *by.entry(bill.purpose).or_default() += 1;
        }
        let one_each = by.iter().all(|(purpose, n)| match purpose {
            Purpose::Embed => *n <= 3,
            Purpose::Round | Purpose::Fold | Purpose::Extract => *n <= 1,
        });
        assert!(one_each, "{plan:?}: {lost:#?}");
        self.world.audit().await;
    }
}

/// The outcome of an undisturbed conversation, and its number of writes.
fn undisturbed(backing: &Backing) -> (Value, usize) {
    alone(async {
        let mut talk = Conversation::begin(backing).await;
        let faulty = Arc::new(Faulty::new(talk.world.store.clone(), FaultPlan::NEVER));
        talk.hold(&faulty).await;
        let dump = talk.world.dump().await;
        assert_eq!(talk.unpaid(&dump).await, []);
        let session = &dump.sessions[0];
        let last = session.sends.last().expect("it has sends").id;
        let of_last = |seq: i64| {
            let message = session.messages.iter().find(|it| it.seq == seq);
            message.is_some_and(|it| it.send_id == last)
        };
        let inside = session.folds.iter().filter(|fold| of_last(fold.to_seq));
        let inside = inside.count();
        assert!(
            inside > 0 && session.folds.len() > inside,
            "{:#?}",
            session.folds
        );
        let purposes: Vec<_> = talk.world.script.bills();
        for purpose in [Purpose::Round, Purpose::Fold, Purpose::Extract] {
            assert!(purposes.iter().any(|bill| bill.purpose == purpose));
        }
        let vectors = talk.vectors.all().len();
        assert!(vectors > 5, "{vectors} vectors");
        assert!(!dump.blobs.is_empty(), "the long output is in a blob");
        (talk.outcome().await, faulty.writes())
    })
}

/// Runs `dose` deaths spread over all writes, alternately before and after the write.
fn deaths(open: impl Fn() -> Backing, dose: usize) {
    let (sound, writes) = undisturbed(&open());
    assert!(writes > 30, "{writes} writes");
    let every = match environment("MAINSPRING_TEST_DEATHS").as_deref() {
        Some("all") => 1,
        _ => writes / dose,
    };
    let faults = [Fault::DieBefore, Fault::DieAfter];
    for at in (every / 2..writes).step_by(every) {
        let turn = at / every % 2;
        let both = if every == 1 {
            &faults[..]
        } else {
            &faults[turn..=turn]
        };
        for fault in both {
            let backing = open();
            alone(async {
                let mut talk = Conversation::begin(&backing).await;
                let plan = FaultPlan { at, fault: *fault };
                let faulty = Arc::new(Faulty::new(talk.world.store.clone(), plan));
                talk.hold(&faulty).await;
                talk.check(&faulty, &sound).await;
            });
        }
    }
}

#[test]
fn a_death_at_any_write_leaves_transcript_memory_and_accounts_whole() {
    deaths(|| Backing::Model, 24);
}

#[test]
fn the_same_on_sqlite() {
    deaths(Backing::sqlite, 3);
}

#[test]
fn the_same_on_postgres() {
    if Backing::has_postgres() {
        deaths(|| Backing::postgres().expect("it was there"), 2);
    }
}

#[test]
fn the_same_on_mysql() {
    if Backing::has_mysql() {
        deaths(|| Backing::mysql().expect("it was there"), 2);
    }
}

//! The cost of extractions, how they use memory behind a URL or of an embedding program, and what
//! tools report when memory is unavailable.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::{AgentSpec, ExtractMode, MemorySpec, SendOptions};
use mainspring_shared::blob::Depot;
use mainspring_shared::budget::{Budget, Spent};
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::memory::{
    Account, Forget, Memory, MemoryError, OnBehalfOf, Recall, Recalled, Remember,
};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::preview::Answered;
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::usage::Purpose;
use mainspring_tests::world::{ModelBehaviour, World, alone};
use mainspring_tools::memory::register;
use mainspring_worker::memory::Memories;
use mainspring_worker::tool::{Invocation, Skills, Tools};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::memory::{done, memory, personal, rememberer, session_of};

fn extracting() -> MemorySpec {
    MemorySpec {
        extract: ExtractMode::AfterSend,
        ..personal()
    }
}

/// What a session with this budget used in the end: by its usage rows, by what it has spent, and
/// whether anything was extracted. Each send has this many words.
async fn used(tokens: u64, words: usize) -> (u64, u64, bool) {
    let world = World::new().await;
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.0),
        ..ModelBehaviour::default()
    });
    let _worker = world.worker("w", world.store.clone());
    let agent = AgentSpec {
        budget: Some(Budget {
            tokens: Some(tokens),
            ..Budget::default()
        }),
        ..rememberer(extracting())
    };
    let key = session_of(&world, 1, Some("ann"), agent).await;
    let facts = json!({"memories": [{"text": "the dog is called Rex"}]});
    let text = format!("extract {facts}\n\n{}", "about the dog ".repeat(words));
    for _ in 0..3 {
        let send = world.send(key, &text).await;
        world.settle(&[send]).await;
        // The next send comes while the extraction is running, or after it.
        world.pass(Duration::from_millis(500)).await;
    }
    world.pass(Duration::from_mins(10)).await;
    world.audit().await;
    let dump = world.dump().await;
    assert_eq!(dump.extractions, []);
    let session = &dump.sessions[0];
    let rows = session.paid.iter();
    let rows = rows.map(|usage| usage.input_tokens + usage.output_tokens);
    let spent = session.hot.spent.unwrap_or_default().tokens;
    let bills = world.script.bills();
    let extracted = bills.iter().any(|bill| bill.purpose == Purpose::Extract);
    assert_eq!(bills.len(), session.usage.len());
    (rows.sum(), spent, extracted)
}

#[test]
fn an_extraction_never_passes_the_budget_of_its_session() {
    let (mut with, mut without) = (0, 0);
    for words in [10, 400] {
        for tokens in (500..9_000).step_by(1_700) {
            let (rows, spent, extracted) = alone(used(tokens, words));
            assert!(rows <= tokens, "{rows} of {tokens}");
            assert!(spent <= tokens, "{spent} of {tokens}");
            // Unused reservations were given back; what the extraction used stays spent.
            assert!(spent >= rows, "{spent} spent, {rows} used");
            assert!(spent - rows < 10, "{spent} spent, {rows} used");
            if extracted {
                with += 1;
            } else {
                without += 1;
            }
        }
    }
    assert!(with > 2 && without > 0, "{with} with, {without} without");
}

#[tokio::test(start_paused = true)]
async fn an_extraction_keeps_to_the_budget_of_its_send() {
    let world = World::new().await;
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.0),
        ..ModelBehaviour::default()
    });
    let _worker = world.worker("w", world.store.clone());
    let key = session_of(&world, 1, Some("ann"), rememberer(extracting())).await;
    let mut extracted = 0;
    for tokens in (2_000..20_000).step_by(3_000) {
        let before = world.script.bills().len();
        let facts = json!({"memories": []});
        let input = vec![ContentPart::text(format!(
            "extract {facts}\n\n{}",
            "about the dog ".repeat(100)
        ))];
        let options = SendOptions {
            budget: Some(Budget {
                tokens: Some(tokens),
                ..Budget::default()
            }),
            ..Default::default()
        };
        let send = world.send_parts(key, input, options).await;
        world.settle(&[send]).await;
        world.pass(Duration::from_mins(10)).await;
        let bills = world.script.bills();
        let own = bills[before..].iter();
        let sum: u64 = own
            .map(|bill| bill.usage.input_tokens + bill.usage.output_tokens)
            .sum();
        assert!(sum <= tokens, "{sum} of {tokens}");
        extracted += bills[before..]
            .iter()
            .filter(|bill| bill.purpose == Purpose::Extract)
            .count();
    }
    assert!(extracted > 1, "{extracted}");
    world.audit().await;
}

/// A custom provider that knows one thing and records what it is asked to keep.
#[derive(Debug, Default)]
struct Own(Mutex<Vec<Remember>>);

#[async_trait]
impl Memory for Own {
    async fn recall(&self, _ask: Recall) -> Result<Vec<Recalled>, MemoryError> {
        Ok(vec![Recalled {
            id: "note-1".to_owned(),
            text: "Ann likes coffee".to_owned(),
            updated_at: None,
        }])
    }

    async fn remember(&self, entry: Remember) -> Result<String, MemoryError> {
        let mut kept = self.0.lock().expect("nobody panics under it");
        kept.push(entry);
        Ok(format!("note-{}", kept.len() + 1))
    }

    async fn forget(&self, _entry: Forget) -> Result<bool, MemoryError> {
        Ok(false)
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_told_which_entry_a_fact_brings_up_to_date() {
    let mut world = World::new().await;
    let own = Arc::new(Own::default());
    world.memories.push(("own".to_owned(), own.clone()));
    let _worker = world.worker("w", world.store.clone());
    let spec = MemorySpec {
        provider: "own".to_owned(),
        ..extracting()
    };
    let key = session_of(&world, 1, Some("ann"), rememberer(spec)).await;
    let facts = json!({"memories": [
        {"text": "Ann drinks only tea now", "replaces": 1},
        {"text": "the dog is called Rex"},
        {"text": "the cat is called Tom", "replaces": 7},
    ]});
    let send = world.send(key, &format!("extract {facts}")).await;
    done(&world, send).await;
    world.pass(Duration::from_mins(1)).await;
    let kept = own.0.lock().expect("nobody panics under it");
    let told: Vec<_> = kept
        .iter()
        .map(|entry| (entry.text.as_str(), entry.replaces.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            ("Ann drinks only tea now", Some("note-1")),
            ("the dog is called Rex", None),
            ("the cat is called Tom", None),
        ]
    );
    let source = kept[0].source.expect("it says where it comes from");
    assert_eq!((source.from_seq, source.to_seq), (Some(1), Some(2)));
}

/// A provider that records who asks for what.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<(&'static str, OnBehalfOf)>>);

impl Told {
    fn add(&self, what: &'static str, on_behalf_of: OnBehalfOf) {
        let mut told = self.0.lock().expect("nobody panics under it");
        told.push((what, on_behalf_of));
    }

    /// Takes what was recorded since the last call, in order.
    fn take(&self) -> Vec<(&'static str, OnBehalfOf)> {
        std::mem::take(&mut *self.0.lock().expect("nobody panics under it"))
    }
}

#[async_trait]
impl Memory for Told {
    async fn recall(&self, ask: Recall) -> Result<Vec<Recalled>, MemoryError> {
        self.add("recall", ask.on_behalf_of);
        Ok(Vec::new())
    }

    async fn remember(&self, _entry: Remember) -> Result<String, MemoryError> {
        Ok("note-1".to_owned())
    }

    async fn forget(&self, entry: Forget) -> Result<bool, MemoryError> {
        self.add("forget", entry.on_behalf_of);
        Ok(true)
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_told_which_send_asks() {
    let mut world = World::new().await;
    let told = Arc::new(Told::default());
    world.memories.push(("own".to_owned(), told.clone()));
    let _worker = world.worker("w", world.store.clone());
    let spec = MemorySpec {
        provider: "own".to_owned(),
        ..extracting()
    };
    let key = session_of(&world, 1, Some("ann"), rememberer(spec)).await;
    world.pass(Duration::from_millis(100)).await;
    let imagined = world.preview("w", key, Some("tea?")).await;
    assert!(matches!(imagined, Answered::Preview(_)), "{imagined:?}");
    let nobody = OnBehalfOf {
        session: Some(key.session),
        send: None,
    };
    assert_eq!(told.take(), [("recall", nobody)]);
    let facts = json!({ "memories": [] });
    let send = world.send(key, &format!("extract {facts}")).await;
    done(&world, send).await;
    world.pass(Duration::from_mins(1)).await;
    let on_behalf_of = OnBehalfOf::send(key.session, send);
    // Recalled before the first round, and before the extraction.
    assert_eq!(
        told.take(),
        [("recall", on_behalf_of), ("recall", on_behalf_of)]
    );
    called(&world, &told, (key, send)).await;
    assert_eq!(
        told.take(),
        [("recall", on_behalf_of), ("forget", on_behalf_of)]
    );
}

/// Calls the memory tools as this send would.
async fn called(world: &World, told: &Arc<Told>, (key, send): (SessionKey, SendId)) {
    let mut memories = Memories::new(world.store.clone(), world.clock(), None);
    memories.insert("own", told.clone());
    let (memories, mut tools) = (Arc::new(memories), Tools::default());
    let blobs = Depot::in_database(world.store.clone(), world.entropy());
    let (store, blobs) = (world.store.clone(), Arc::new(blobs));
    register(store, blobs, world.clock(), &memories, &mut tools).expect("new names");
    for (name, arguments) in [
        ("memory_search", json!({"query": "tea"})),
        ("memory_forget", json!({"id": "note-1"})),
    ] {
        let invocation = Invocation {
            call_id: format!("call_{name}"),
            arguments: arguments.as_object().expect("an object").clone(),
            said: None,
            session: key,
            send_id: send,
            boot: BootId(Uuid::nil()),
            attempt: 1,
            stop: CancellationToken::new(),
            skills: Skills::default(),
            account: Account::default(),
            progress: mainspring_worker::tool::Progress::default(),
            kept: mainspring_worker::tool::Kept::default(),
            inquiring: mainspring_worker::tool::Inquiring::default(),
        };
        let tool = tools.get(name).expect("it is registered");
        tool.call(invocation).await.expect("an answer");
    }
}

/// A provider that is unavailable.
#[derive(Debug)]
struct Away;

#[async_trait]
impl Memory for Away {
    async fn recall(&self, _ask: Recall) -> Result<Vec<Recalled>, MemoryError> {
        Err(away())
    }

    async fn remember(&self, _entry: Remember) -> Result<String, MemoryError> {
        Err(away())
    }

    async fn forget(&self, _entry: Forget) -> Result<bool, MemoryError> {
        Err(away())
    }
}

fn away() -> MemoryError {
    MemoryError::Unavailable {
        why: "scripted".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn tools_of_memory_that_is_away_say_so_and_the_send_goes_on() {
    let mut world = World::new().await;
    world.memories.push(("away".to_owned(), Arc::new(Away)));
    let _worker = world.worker("w", world.store.clone());
    let spec = MemorySpec {
        provider: "away".to_owned(),
        ..personal()
    };
    let key = session_of(&world, 1, Some("ann"), rememberer(spec)).await;
    let rounds = json!([[
        ["memory_search", {"query": "tea"}],
        ["memory_save", {"text": "likes tea"}],
        ["memory_forget", {"id": "note-1"}],
    ]]);
    let send = world.send(key, &format!("plan {rounds}")).await;
    let record = done(&world, send).await;
    assert_eq!(record.status, SendStatus::Completed);
    let note = memory(&record).note.expect("it says what was wrong");
    assert!(note.contains("scripted"), "{note}");
    let dump = world.dump().await;
    let codes: Vec<_> = dump.sessions[0]
        .calls
        .iter()
        .map(|call| call.result.as_ref().and_then(|result| result.code))
        .collect();
    assert_eq!(codes, [Some(Code::MemoryUnavailable); 3]);
    world.audit().await;
}

/// The calls that started child conversations may be covered by folds: the children are listed all
/// the same.
#[tokio::test(start_paused = true)]
async fn children_are_recalled_whatever_of_the_transcript_is_folded() {
    use mainspring_shared::agent::{ContextSpec, FoldSpec, FoldStrategy};
    use mainspring_worker::llm::FactsOverride;

    let mut world = World::new().await;
    let facts = FactsOverride {
        window: Some(16_000),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.0),
        summary_chars: 200,
        ..ModelBehaviour::default()
    });
    let _worker = world.worker("w", world.store.clone());
    let agent = AgentSpec {
        tools: ["spawn_agent", "recall"]
            .map(|name| ToolEntry::Named(name.into()))
            .into(),
        max_tokens: Some(1_000),
        context: ContextSpec {
            fold: FoldSpec {
                strategy: FoldStrategy::Summary,
                soft: Some(0.04),
                hard: Some(0.05),
                keep_sends: Some(1),
                ..FoldSpec::default()
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    };
    let key = session_of(&world, 1, None, agent).await;
    let spawn = json!([[["spawn_agent", {"task": "count the zebras"}]]]);
    let delegating = world.send(key, &format!("plan {spawn}")).await;
    done(&world, delegating).await;
    for n in 0..4 {
        let words = "what was decided about it, and why. ".repeat(40);
        let send = world.send(key, &format!("say {n} {words}")).await;
        done(&world, send).await;
        world.pass(Duration::from_secs(10)).await;
    }
    let dump = world.dump().await;
    let session = dump.sessions.iter().find(|it| it.key == key);
    let session = session.expect("it is there");
    let call = &session.calls[0];
    let asked_at = session
        .messages
        .iter()
        .find(|message| message.tool_calls.iter().any(|it| it.id == call.call_id));
    let asked_at = asked_at.expect("it was asked").seq;
    let folded = session.folds.iter().any(|fold| fold.to_seq >= asked_at);
    assert!(folded, "{:?}", session.folds);
    let child = dump.sessions.iter().find(|it| it.key != key);
    let child = child.expect("it was started").key.session;
    let rounds = json!([
        [["recall", {"children": true}]],
        [["recall", {"session_id": child.to_string()}]],
        [["recall", {"children": true, "session_id": child.to_string()}]],
    ]);
    let send = world.send(key, &format!("plan {rounds}")).await;
    done(&world, send).await;
    let dump = world.dump().await;
    let session = dump.sessions.iter().find(|it| it.key == key);
    let calls = &session.expect("it is there").calls;
    let said: Vec<String> = calls
        .iter()
        .filter(|it| it.name == "recall")
        .map(|it| it.result.as_ref().expect("it is settled"))
        .map(|result| mainspring_shared::message::plain_text(&result.content))
        .collect();
    assert!(
        said[0].contains(&child.to_string())
            && said[0].contains(&call.call_id)
            && said[0].contains("count the zebras"),
        "{said:#?}"
    );
    assert!(said[1].contains("count the zebras"), "{said:#?}");
    assert!(
        said[2].contains("no conversations were started"),
        "{said:#?}"
    );
}

/// Runs a send with something worth remembering; also returns what it had reserved when it ended.
async fn said(world: &World, key: SessionKey, budget: Option<Budget>) -> (SendId, Option<Spent>) {
    let facts = json!({"memories": [{"text": "the dog is called Rex"}]});
    let input = vec![ContentPart::text(format!("extract {facts}"))];
    let options = SendOptions {
        budget,
        ..SendOptions::default()
    };
    let send = world.send_parts(key, input, options).await;
    let record = world.settle(&[send]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    (send, record.held.0.get("extract").copied())
}

fn extractions(world: &World) -> usize {
    let bills = world.script.bills().into_iter();
    bills.filter(|it| it.purpose == Purpose::Extract).count()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_set_aside_where_nothing_will_be_extracted_or_nothing_of_it_is_limited() {
    let tokens = Budget {
        tokens: Some(20_000),
        ..Budget::default()
    };
    let rounds = Budget {
        rounds: Some(9),
        ..Budget::default()
    };
    let cases = [
        (tokens, Some("ann"), true, 1),
        // Without a user there is no namespace.
        (tokens, None, false, 0),
        (rounds, Some("ann"), false, 1),
    ];
    for (budget, user, sets_aside, extracted) in cases {
        let world = World::new().await;
        let _worker = world.worker("w", world.store.clone());
        let agent = AgentSpec {
            budget: Some(budget),
            ..rememberer(extracting())
        };
        let key = session_of(&world, 1, user, agent).await;
        let (_, aside) = said(&world, key, None).await;
        assert_eq!(aside.is_some(), sets_aside, "{budget:?} {user:?} {aside:?}");
        world.pass(Duration::from_mins(5)).await;
        assert_eq!(extractions(&world), extracted, "{budget:?} {user:?}");
        let dump = world.dump().await;
        assert_eq!(dump.extractions, []);
        let spent = dump.sessions[0].hot.spent.expect("it is counted");
        assert_eq!(spent.rounds, 1, "an extraction is no round");
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_extraction_waits_for_a_busy_session_only_where_that_gets_something_back() {
    let tokens = Some(Budget {
        tokens: Some(50_000),
        ..Budget::default()
    });
    for (of_session, of_send, waits) in [(tokens, None, true), (None, tokens, false)] {
        let world = World::new().await;
        let _worker = world.worker("w", world.store.clone());
        let agent = AgentSpec {
            budget: of_session,
            ..rememberer(extracting())
        };
        let key = session_of(&world, 1, Some("ann"), agent).await;
        // The next send occupies the session at once, for a while.
        let facts = json!({"memories": [{"text": "the dog is called Rex"}]});
        let input = vec![ContentPart::text(format!("extract {facts}"))];
        let options = SendOptions {
            budget: of_send,
            ..SendOptions::default()
        };
        let first = world.send_parts(key, input, options).await;
        let next = world.send(key, "stream 40x1000").await;
        world.settle(&[first]).await;
        world.pass(Duration::from_secs(20)).await;
        assert_eq!(extractions(&world), 1);
        let dump = world.dump().await;
        let owed = dump
            .extractions
            .iter()
            .filter(|(_, send, _)| *send == first);
        assert_eq!(owed.count(), usize::from(waits), "{of_session:?}");
        world.settle(&[next]).await;
        world.pass(Duration::from_mins(5)).await;
        assert_eq!(world.dump().await.extractions, []);
        world.audit().await;
    }
}

//! The cost of a long conversation with tools: with folds, with everything sent every time, and
//! with a window that slides by one message at a time, each with the cache hits that it gets.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use mainspring_providers::Kind;
use mainspring_shared::agent::{
    AgentSpec, ContextSpec, FoldSpec, FoldStrategy, Representation, ToolContext,
};
use mainspring_shared::message::{Message, Role};
use mainspring_shared::send::SendStatus;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::suites::store::harness::environment;
use mainspring_tests::world::{Asked, ModelBehaviour, World, alone};
use mainspring_worker::llm::{FactsOverride, Request, expect_message_tokens};
use serde_json::{Value, json};

use crate::context::vendor::{Billed, Vendor};
use crate::context::wires::Wire;

const SENDS: usize = 300;

/// How long the user thinks between two sends.
const PAUSE: Duration = Duration::from_secs(40);

/// A conversation that was run with folds.
struct Conversation {
    /// Model calls for answers and for folds, in order.
    asked: Vec<Asked>,
    transcript: Vec<Arc<Message>>,
    folds: usize,
}

fn is_for_fold(asked: &Asked) -> bool {
    asked.user.contains("<transcript>")
}

/// Runs a conversation of 300 sends, two thirds of which call a tool twice.
async fn run_conversation(
    world: &mut World,
    context: ContextSpec,
    window: u64,
    chars: u64,
) -> Conversation {
    let facts = FactsOverride {
        window: Some(window),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.0),
        summary_chars: 3_000,
        summary_takes: Duration::from_secs(2),
        ..ModelBehaviour::default()
    });
    let agent = AgentSpec {
        system_prompt: Some("Be brief, kind and exact in what you say. ".repeat(40)),
        tools: vec![ToolEntry::Named("look".into())],
        max_tokens: Some(2_000),
        context,
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let worker = world.worker("w", world.store.clone());
    for n in 0..SENDS {
        let look =
            |round: usize| json!([["look", {"n": n * 2 + round, "chars": chars, "ms": 1_500}]]);
        let rounds: Vec<Value> = match n % 3 {
            0 => Vec::new(),
            _ => (0..2).map(look).collect(),
        };
        let said = format!("what do we know about the matter of item {n}, and what is to be done?");
        let id = world
            .send(key, &format!("plan {}\n\n{said}", Value::from(rounds)))
            .await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        world.pass(PAUSE).await;
    }
    worker.abort();
    world.audit().await;
    let session = world.dump().await.sessions.remove(0);
    Conversation {
        asked: world.script.ledger(),
        transcript: session.messages.into_iter().map(Arc::new).collect(),
        folds: session.folds.len(),
    }
}

/// The same request with these messages instead.
fn with(asked: &Asked, messages: &[Arc<Message>]) -> Request {
    Request {
        messages: messages.to_vec(),
        ..Request::clone(&asked.request)
    }
}

/// The last `count` messages, without leading results whose calls are cut off.
fn last(messages: &[Arc<Message>], count: usize) -> &[Arc<Message>] {
    let mut begin = messages.len().saturating_sub(count);
    while messages
        .get(begin)
        .is_some_and(|first| first.role == Role::Tool)
    {
        begin += 1;
    }
    &messages[begin..]
}

/// The number of messages of a sliding window that has as many tokens as our requests.
fn as_large<'a>(
    conversation: &Conversation,
    answers: &(impl Iterator<Item = &'a Asked> + Clone),
) -> usize {
    let tokens = |messages: &[Arc<Message>]| -> u64 {
        messages
            .iter()
            .map(|message| expect_message_tokens(message))
            .sum()
    };
    let ours: u64 = answers
        .clone()
        .map(|asked| tokens(&asked.request.messages))
        .sum();
    let mut before = vec![0];
    for message in &conversation.transcript {
        before.push(before[before.len() - 1] + expect_message_tokens(message));
    }
    let sliding = |window: usize| -> u64 {
        let until = answers.clone().map(|asked| until(conversation, asked));
        until
            .map(|until| before[until] - before[until.saturating_sub(window)])
            .sum()
    };
    (1..conversation.transcript.len())
        .find(|window| sliding(*window) >= ours)
        .expect("all is more")
}

/// The number of transcript messages up to a request, including its own.
fn until(conversation: &Conversation, asked: &Asked) -> usize {
    let newest = asked
        .request
        .messages
        .last()
        .expect("it asks something")
        .seq;
    conversation
        .transcript
        .partition_point(|message| message.seq <= newest)
}

/// The cost of the three approaches.
#[derive(Debug, Clone, Copy)]
struct Costs {
    ours: f64,
    all: f64,
    sliding: f64,
    /// Mean tokens of one of our requests, and of a sliding window's.
    tokens: [u64; 2],
    hits: [f64; 3],
}

fn costs(conversation: &Conversation, kind: Kind, model: &str, wire: &Wire) -> Costs {
    let answers = || {
        conversation
            .asked
            .iter()
            .filter(|asked| !is_for_fold(asked))
    };
    let window = as_large(conversation, &answers());
    let mut sums = [Billed::default(); 3];
    let mut vendors = [0; 3].map(|_| Vendor::of(kind, model));
    let mut counts = [0, 0];
    for asked in &conversation.asked {
        let mut serve = |way: usize, request: &Request| {
            let billed = vendors[way].serve(&wire.body(request), asked.at);
            sums[way].add(billed);
            billed.tokens()
        };
        let tokens = serve(0, &asked.request);
        if is_for_fold(asked) {
            continue;
        }
        counts[0] += tokens;
        let all = &conversation.transcript[..until(conversation, asked)];
        serve(1, &with(asked, all));
        counts[1] += serve(2, &with(asked, last(all, window)));
    }
    let weigh = |way: usize| vendors[way].weight(sums[way]);
    let asked = answers().count() as u64;
    Costs {
        ours: weigh(0),
        all: weigh(1),
        sliding: weigh(2),
        tokens: counts.map(|sum| sum / asked),
        hits: sums.map(|sum| sum.read as f64 / sum.tokens() as f64),
    }
}

fn told(name: &str, model: &str, folds: usize, costs: Costs) {
    let said = format!(
        "{name}, {model}: {folds} folds; mean tokens {:?}; from the cache {:.2?}; of everything {:.3}, of sliding {:.3}\n",
        costs.tokens,
        costs.hits,
        costs.ours / costs.all,
        costs.ours / costs.sliding
    );
    let written = std::io::stderr().write_all(said.as_bytes());
    written.expect("standard error is open");
}

fn folding(strategy: FoldStrategy) -> ContextSpec {
    ContextSpec {
        fold: FoldSpec {
            strategy,
            ..FoldSpec::default()
        },
        ..ContextSpec::default()
    }
}

fn projecting() -> ContextSpec {
    ContextSpec {
        representation: Representation::Projection,
        tools: [("look".to_owned(), ToolContext::Archive)].into(),
        ..folding(FoldStrategy::Summary)
    }
}

/// Vendors' protocols, each with a model.
type Ways<'a> = &'a [(Kind, &'a str)];

/// Runs a conversation whose results have this many characters, and compares the costs.
fn compared(
    name: &str,
    context: ContextSpec,
    (window, chars): (u64, u64),
    ways: Ways<'_>,
) -> Vec<Costs> {
    alone(async {
        let mut world = World::new().await;
        let conversation = run_conversation(&mut world, context, window, chars).await;
        // In a large window, digests alone keep a conversation below the thresholds.
        let is_small = (window, chars) == BOUNDED;
        assert!(conversation.folds > 1 || !is_small, "{name}");
        let costs = ways.iter().map(|(kind, model)| {
            let wire = Wire::of(*kind, &world.clock(), true);
            let costs = costs(&conversation, *kind, model, &wire);
            told(name, model, conversation.folds, costs);
            costs
        });
        costs.collect()
    })
}

/// The window, and the characters of results, to which the cost bounds apply.
const BOUNDED: (u64, u64) = (24_000, 600);

/// The cost bounds, for both vendors. With `MAINSPRING_TEST_COSTS=all` also in larger windows,
/// which takes the better part of an hour in a debug build. With the beginning of a name, such as
/// `summaries, projection, window 64000`, only those cases.
#[test]
fn folds_cost_less_than_everything_and_less_than_a_window_that_slides() {
    let ways = [
        (Kind::Anthropic, "claude-sonnet-4-6"),
        (Kind::OpenAiResponses, "gpt-5.1"),
        (Kind::OpenAiResponses, "gpt-6-sol"),
    ];
    let mut sizes = vec![BOUNDED];
    let wanted = environment("MAINSPRING_TEST_COSTS");
    if wanted.is_some() {
        sizes.extend([(64_000, 1_600), (128_000, 1_600), (128_000, 6_000)]);
    }
    let only = wanted.filter(|wanted| wanted != "all").unwrap_or_default();
    let mut compared_any = false;
    for (window, chars) in sizes {
        let cases = [
            ("summaries", folding(FoldStrategy::Summary)),
            ("digests", folding(FoldStrategy::Projection)),
            ("summaries, projection", projecting()),
        ];
        for (name, context) in cases {
            let name = format!("{name}, window {window}, results of {chars}");
            if !name.starts_with(&only) {
                continue;
            }
            compared_any = true;
            for costs in compared(&name, context, (window, chars), &ways) {
                // In a window that holds nearly everything, all that can be saved is cache misses.
                let most = if (window, chars) == BOUNDED {
                    0.45
                } else {
                    1.0
                };
                assert!(costs.ours <= most * costs.all, "{name}: {costs:?}");
                assert!(costs.ours <= 0.55 * costs.sliding, "{name}: {costs:?}");
            }
        }
    }
    assert!(compared_any, "no case begins with {only:?}");
}

//! Consecutive requests share their bytes up to the end of the first one's messages, on every
//! transport: everything that changes from send to send comes after them.

use mainspring_providers::Kind;
use mainspring_shared::message::{ContentPart, Role};
use mainspring_tests::world::{Asked, World};
use mainspring_worker::llm::Request;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::Value;

use crate::context::history::{BLOCK, History, Runner, Way, viewer};
use crate::context::wires::Wire;

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The offset at which a request's messages end: up to there it is the same, whatever follows the
/// messages.
fn end_of_messages(wire: &Wire, request: &Request) -> usize {
    let with = |tail: Option<&str>| {
        let tail = tail.map(str::to_owned);
        wire.body(&Request {
            tail,
            ..request.clone()
        })
    };
    shared(&with(None), &with(Some("behind")))
}

/// A session's own requests, without those of its children, in order.
fn of_session(asked: &[Asked], key: &str) -> Vec<Asked> {
    let mine = asked.iter();
    mine.filter(|asked| asked.request.cache_key.as_deref() == Some(key))
        .cloned()
        .collect()
}

/// Removes the cache marks from a request, and returns their number.
fn unmarked(value: &mut Value) -> usize {
    match value {
        Value::Object(members) => {
            let own = usize::from(members.remove("cache_control").is_some());
            own + members.values_mut().map(unmarked).sum::<usize>()
        }
        Value::Array(items) => items.iter_mut().map(unmarked).sum(),
        _ => 0,
    }
}

/// Counts of what was compared.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    /// Pairs of requests, over all transports.
    pairs: usize,
    /// Pairs of which the first has something after its messages.
    tails: usize,
    /// Pairs of which it has a to-do list there.
    lists: usize,
    /// Pairs between which a block of old pictures was replaced by lines.
    blocks: usize,
}

/// The number of a request's pictures that are shown as lines. The model, which echoes its input,
/// repeats such lines too: its answers don't count.
fn lines(request: &Request) -> usize {
    let told = request.messages.iter();
    let told = told.filter(|message| message.role != Role::Assistant);
    let is_line = |part: &&ContentPart| {
        matches!(part, ContentPart::Text { text }
            if text.starts_with('[') && text.contains("no longer shown; it is in message"))
    };
    told.flat_map(|message| &message.content)
        .filter(is_line)
        .count()
}

async fn compared(seed: u64, sums: &mut Sums) -> Result<(), TestCaseError> {
    let world = World::new().await;
    viewer(&world);
    let outcome = Runner::run(&world, &History::steady(seed), Way::Warm).await;
    let first = &outcome.asked[0].request.cache_key;
    let asked = of_session(&outcome.asked, first.as_deref().expect("a session has one"));
    for wire in Wire::all(&world) {
        for pair in asked.windows(2) {
            let (before, next) = (&pair[0].request, &pair[1].request);
            let end = end_of_messages(&wire, before);
            let bodies = [before, next].map(|request| wire.body(request));
            sums.pairs += 1;
            // Like a fold, this happens to a whole block at once.
            let replaced = lines(next).saturating_sub(lines(before));
            if replaced > 0 {
                prop_assert!(
                    replaced.is_multiple_of(BLOCK as usize),
                    "{replaced} pictures"
                );
                sums.blocks += 1;
                continue;
            }
            let same = shared(&bodies[0], &bodies[1]);
            prop_assert!(
                same >= end,
                "{:?}: {same} of {end} bytes, then {}",
                wire.kind,
                String::from_utf8_lossy(&wire.body(next)[same..])
            );
            let tail = before.tail.as_deref();
            sums.tails += usize::from(tail.is_some());
            sums.lists += usize::from(tail.is_some_and(|tail| tail.contains("<todo")));
        }
    }
    // Anthropic's cache marks are next to the text, which is the same without them.
    let clock = world.clock();
    let plain = Wire::of(Kind::Anthropic, &clock, false);
    let marked = Wire::of(Kind::Anthropic, &clock, true);
    for asked in &asked {
        let body = |wire: &Wire| serde_json::from_slice::<Value>(&wire.body(&asked.request));
        let mut with_marks = body(&marked).expect("it is JSON");
        let marks = unmarked(&mut with_marks);
        prop_assert!((1..=4).contains(&marks), "{marks} marks");
        prop_assert_eq!(with_marks, body(&plain).expect("it is JSON"));
    }
    Ok(())
}

#[test]
fn requests_one_after_the_other_begin_alike_over_every_transport() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let sums = std::cell::Cell::new(Sums::default());
    let checked = runner.run(&any::<u64>(), |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        let runtime = runtime.expect("a runtime starts");
        let mut own = sums.get();
        runtime.block_on(compared(seed, &mut own))?;
        sums.set(own);
        Ok(())
    });
    checked.expect("requests begin alike");
    let sums = sums.get();
    assert!(
        sums.pairs > 1_000 && sums.tails > sums.pairs / 4 && sums.lists > sums.pairs / 20,
        "{sums:?}"
    );
    // Only few requests lose their prefix to it.
    assert!((1..sums.pairs / 20).contains(&sums.blocks), "{sums:?}");
}

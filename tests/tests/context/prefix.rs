//! Two requests one after the other share their bytes up to where the messages of the first one end, over every
//! transport: all that changes from send to send stands behind them.

use mainspring_providers::Kind;
use mainspring_tests::world::{Asked, World};
use mainspring_worker::llm::Request;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::Value;

use crate::history::{History, Teller, Way, viewer};
use crate::wires::{KINDS, Wire};

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Where the messages of a request end: up to there it is the same whatever stands behind them.
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

/// The requests of a session other than those for its children, in order.
fn of_session(asked: &[Asked], key: &str) -> Vec<Asked> {
    let mine = asked.iter();
    mine.filter(|asked| asked.request.cache_key.as_deref() == Some(key))
        .cloned()
        .collect()
}

/// Takes the marks out of a request, and counts them.
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

/// How many pairs of requests were compared, of how many with something behind their messages.
async fn compared(seed: u64) -> Result<(usize, usize), TestCaseError> {
    let world = World::new().await;
    viewer(&world);
    let course = Teller::tell(&world, &History::steady(seed), Way::Warm).await;
    let first = &course.asked[0].request.cache_key;
    let asked = of_session(&course.asked, first.as_deref().expect("a session has one"));
    let mut with_tail = 0;
    for wire in Wire::all(&world) {
        for pair in asked.windows(2) {
            let (before, next) = (&pair[0].request, &pair[1].request);
            let end = end_of_messages(&wire, before);
            let same = shared(&wire.body(before), &wire.body(next));
            prop_assert!(
                same >= end,
                "{:?}: {same} of {end} bytes, then {}",
                wire.kind,
                String::from_utf8_lossy(&wire.body(next)[same..])
            );
            with_tail += usize::from(before.tail.is_some());
        }
    }
    // Anthropic's marks are beside the text, which is the same without them.
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
    Ok((asked.len().saturating_sub(1) * KINDS.len(), with_tail))
}

#[test]
fn requests_one_after_the_other_begin_alike_over_every_transport() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let sums = std::cell::Cell::new((0, 0));
    let checked = runner.run(&any::<u64>(), |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        let runtime = runtime.expect("a runtime starts");
        let (pairs, tails) = runtime.block_on(compared(seed))?;
        let (all, with_tail) = sums.get();
        sums.set((all + pairs, with_tail + tails));
        Ok(())
    });
    checked.expect("requests begin alike");
    let (pairs, tails) = sums.get();
    assert!(
        pairs > 1_000 && tails > pairs / 4,
        "{pairs} pairs, {tails} with a tail"
    );
}

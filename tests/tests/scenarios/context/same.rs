//! The request of a round is the same, byte for byte, whether the worker that sends it has the
//! session cached, loads it, or takes it over from a worker that died at some write; and a preview
//! shows it beforehand.
//!
//! Conversations are generated from seeds. `MAINSPRING_TEST_HISTORIES` sets how many, and
//! `MAINSPRING_TEST_HISTORIES_FROM` the first seed; see `docs/CONTEXT.md`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use mainspring_providers::Kind;
use mainspring_tests::suites::store::harness::environment;
use mainspring_tests::world::{Backing, World, alone};

use crate::context::history::{History, Outcome, Runner, Way, viewer};
use crate::context::wires::{Wire, without_ids};

/// Number of conversations in one world, with one database.
const TOGETHER: u64 = 20;

/// Number of conversations on each database server, where every call of a store takes a while.
const SOME: u64 = 4;

/// Totals over some conversations.
#[derive(Debug, Default)]
struct Found {
    histories: u64,
    requests: usize,
    previews: usize,
    deaths: usize,
    folds: usize,
    changes: usize,
    /// Rounds that were rendered again from the database and equal what was sent.
    replayed: usize,
    /// Courses that folded at a different round or to a different length, which are not compared.
    /// Nothing random may influence a fold, so there must be none.
    folded_otherwise: Vec<String>,
}

fn asked(wire: &Wire, outcome: &Outcome) -> BTreeSet<String> {
    let bodies = outcome.asked.iter();
    bodies
        .map(|asked| without_ids(&wire.body(&asked.request)))
        .collect()
}

/// The first of some requests that is not among the others, with the most similar one of those.
fn odd<'a>(some: &'a BTreeSet<String>, others: &'a BTreeSet<String>) -> Option<String> {
    let odd = some.difference(others).next()?;
    let alike = |other: &&String| {
        let same = odd.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
        same.count()
    };
    let at = others.iter().map(|other| alike(&other)).max().unwrap_or(0);
    let behind = |text: &str| {
        let bytes = &text.as_bytes()[at.min(text.len())..(at + 600).min(text.len())];
        String::from_utf8_lossy(bytes).into_owned()
    };
    let closest = others.iter().filter(|other| alike(other) + 60 > at);
    let closest: Vec<_> = closest.map(|other| behind(other)).collect();
    Some(format!("behind byte {at}:\n{}\n{closest:#?}", behind(odd)))
}

/// The number of rounds of a conversation that were rendered again; asserts that all equal what was
/// sent.
fn replayed(outcome: &Outcome, seed: u64, history: &History) -> usize {
    let differ = &outcome.replays.differ;
    assert!(differ.is_empty(), "seed {seed}: {differ:?}: {history:#?}");
    outcome.replays.same
}

async fn check(world: &World, wire: &Wire, seed: u64, found: &mut Found) {
    let history = History::of(seed);
    let warm = Runner::run(world, &history, Way::Warm).await;
    for (previewed, recorded) in &warm.previewed {
        assert_eq!(previewed, recorded, "seed {seed}: a preview: {history:#?}");
    }
    found.replayed += replayed(&warm, seed, &history);
    let expected = asked(wire, &warm);
    for way in [Way::Cold, Way::TakenOver] {
        let outcome = Runner::run(world, &history, way).await;
        found.requests += outcome.asked.len();
        found.deaths += outcome.deaths;
        found.replayed += replayed(&outcome, seed, &history);
        if (&outcome.folds, &outcome.texts) != (&warm.folds, &warm.texts) {
            // An estimate happened to be right at a threshold: see `folded_otherwise`.
            let mut texts = outcome.texts.iter().zip(&warm.texts);
            found.folded_otherwise.push(format!(
                "seed {seed}, {way:?}: {:?}, warm: {:?}, first text: {:?}",
                outcome.folds,
                warm.folds,
                texts.find(|(text, warm)| text != warm),
            ));
            continue;
        }
        let asked = asked(wire, &outcome);
        let odd = odd(&asked, &expected).or_else(|| odd(&expected, &asked));
        if let Some(odd) = odd {
            panic!("seed {seed}, {way:?}: {odd}\n{history:#?}");
        }
    }
    found.histories += 1;
    found.requests += warm.asked.len();
    found.previews += warm.previewed.len();
    found.folds += warm.folds.len();
    found.changes += warm.changes;
}

fn number(name: &str, default: u64) -> u64 {
    environment(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Runs conversations on a store: as many as the environment says, or else `default`.
fn on(name: &str, open: impl Fn() -> Option<Backing>, default: u64) {
    let count = number("MAINSPRING_TEST_HISTORIES", default);
    let from = number("MAINSPRING_TEST_HISTORIES_FROM", 0);
    let mut found = Found::default();
    let mut seed = from;
    while seed < from + count {
        let Some(backing) = open() else {
            let required = environment("REQUIRE_STORES").as_deref() == Some("all");
            assert!(!required, "no server of {name} is given");
            return;
        };
        let last = (seed + TOGETHER).min(from + count);
        let found = &mut found;
        alone(async {
            let world = World::over(&backing, |_, _, _| {}).await;
            viewer(&world);
            // Sweeps may be slow here: anything due, above all leases of dead workers, may be found
            // late.
            world.sweep_every(Duration::from_secs(2));
            let wire = Wire::of(Kind::Anthropic, &world.clock(), false);
            for seed in seed..last {
                check(&world, &wire, seed, found).await;
            }
            world.audit().await;
        });
        seed = last;
    }
    assert_eq!(found.histories, count);
    if count > SOME {
        let drawn = [
            found.previews,
            found.deaths,
            found.folds,
            found.changes,
            found.replayed,
        ];
        assert!(drawn.iter().all(|times| *times > 0), "{found:?}");
        assert!(found.folded_otherwise.is_empty(), "{found:?}");
    }
    // Write to stderr directly: the harness shows printed output only when a test fails.
    let said = format!("{name}: {found:?}\n");
    let told = std::io::stderr().write_all(said.as_bytes());
    told.expect("standard error is open");
}

#[test]
fn whoever_asks_a_round_asks_the_same_on_the_model_store() {
    on("model", || Some(Backing::Model), 40);
}

#[test]
fn whoever_asks_a_round_asks_the_same_on_sqlite() {
    on("sqlite", || Some(Backing::sqlite()), SOME);
}

#[test]
fn whoever_asks_a_round_asks_the_same_on_postgres() {
    on("postgres", Backing::postgres, SOME);
}

#[test]
fn whoever_asks_a_round_asks_the_same_on_mysql() {
    on("mysql", Backing::mysql, SOME);
}

//! The journal over an in-memory store, with a clock advanced by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_runtime::telemetry::JsonlSettings;
use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::message::ContentPart;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Agents, BlobRows, Boots, Calibrations, Calls, Error, Extractions,
    FindSteps, Inspect, Keys, Leases, Lists, McpLists, Memories, Money, NewSession, Pauses,
    ProviderKeys, ReadMessages, Reads, Result, Runs, Sends, Sessions, Skills, Sweeps, Target,
    TenantErasures, Tenants, Timers, Webhooks,
};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_store_model::ModelStore;
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

use super::writer::{LATEST_MS, SETTLED_MS, SPAN_MAX_MS, SPAN_MIN_MS, Writer};
use super::{Behind, Source};

/// A clock set by hand: its wall time and its monotonic time.
#[derive(Debug)]
struct Hand(Mutex<(i64, Duration)>);

impl Hand {
    fn read(&self) -> (i64, Duration) {
        *self.0.lock().expect("nobody panics under it")
    }

    fn pass_by(&self, ms: i64) {
        let mut hands = self.0.lock().expect("nobody panics under it");
        hands.0 += ms;
        hands.1 += Duration::from_millis(ms.unsigned_abs());
    }

    fn set_back(&self, ms: i64) {
        self.0.lock().expect("nobody panics under it").0 -= ms;
    }
}

#[async_trait]
impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(self.read().0)
    }

    fn monotonic(&self) -> Duration {
        self.read().1
    }

    async fn sleep(&self, _duration: Duration) {
        std::future::pending::<()>().await;
    }
}

/// Less than the number of sessions with steps at one moment.
const FOUND_MAX: u32 = 1_000;

/// A store that forwards calls unless it is away, and records them.
#[derive(Debug)]
struct Asked {
    inner: Arc<ModelStore>,
    away: AtomicBool,
    calls: Mutex<BTreeMap<&'static str, usize>>,
    found: Mutex<Vec<FindSteps>>,
    read: Mutex<Vec<ReadMessages>>,
    /// Whether each step claims to have written two messages.
    tells: AtomicBool,
    /// Numbers of steps that cannot be read.
    broken: Mutex<BTreeSet<i64>>,
}

impl Asked {
    fn inner(&self, name: &'static str) -> Result<&ModelStore> {
        let mut calls = self.calls.lock().expect("nobody panics under it");
        *calls.entry(name).or_default() += 1;
        if self.away.load(Ordering::SeqCst) {
            return Err(Error::Unavailable {
                source: "the cable is out".into(),
            });
        }
        Ok(&self.inner)
    }

    fn finds(&self) -> Vec<FindSteps> {
        std::mem::take(&mut self.found.lock().expect("nobody panics under it"))
    }
}

macro_rules! ask {
    (@ $noun:ident [$($done:tt)*]) => {
        #[async_trait]
        impl $noun for Asked { $($done)* }
    };
    (@ $noun:ident [$($done:tt)*] read read_messages($($args:tt)*) -> $out:ty; $($rest:tt)*) => {
        ask! { @ $noun [$($done)*
            async fn read_messages(&self, query: ReadMessages) -> Result<$out> {
                self.read.lock().expect("nobody panics under it").push(query);
                self.inner("read_messages")?.read_messages(query).await
            }
        ] $($rest)* }
    };
    (@ $noun:ident [$($done:tt)*] read find_steps($($args:tt)*) -> $out:ty; $($rest:tt)*) => {
        ask! { @ $noun [$($done)*
            async fn find_steps(&self, query: FindSteps) -> Result<$out> {
                self.found.lock().expect("nobody panics under it").push(query.clone());
                self.inner("find_steps")?.find_steps(query).await
            }
        ] $($rest)* }
    };
    (@ $noun:ident [$($done:tt)*] read read_steps($($args:tt)*) -> $out:ty; $($rest:tt)*) => {
        ask! { @ $noun [$($done)*
            async fn read_steps(&self, key: SessionKey, after: i64, limit: u32) -> Result<$out> {
                let mut steps = self.inner("read_steps")?.read_steps(key, after, limit).await?;
                let broken = self.broken.lock().expect("nobody panics under it").clone();
                if steps.iter().any(|step| broken.contains(&step.n)) {
                    return Err(Error::Corrupt { table: "steps", column: "kind", row: String::new(), detail: "no such kind".to_owned() });
                }
                for step in &mut steps {
                    if self.tells.load(Ordering::SeqCst) {
                        step.refs.first_seq = Some(2 * step.n - 1);
                        step.refs.messages = 2;
                    }
                }
                Ok(steps)
            }
        ] $($rest)* }
    };
    (@ $noun:ident [$($done:tt)*] $kind:ident $name:ident(
        $($arg:ident: $type:ty),*
    ) -> $out:ty; $($rest:tt)*) => {
        ask! { @ $noun [$($done)*
            async fn $name(&self $(, $arg: $type)*) -> Result<$out> {
                self.inner(stringify!($name))?.$name($($arg),*).await
            }
        ] $($rest)* }
    };
    ($noun:ident: $($all:tt)*) => { ask! { @ $noun [] $($all)* } };
}

mainspring_shared::store_methods!(ask);

fn key(session: u128) -> SessionKey {
    SessionKey {
        tenant: TenantId::DEFAULT,
        session: SessionId(Uuid::from_u128(session)),
    }
}

/// A journal, and what it reads from.
struct World {
    clock: Arc<Hand>,
    store: Arc<Asked>,
    folder: TempDir,
    writer: Writer,
    sends: u128,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(Hand(Mutex::new((1_700_000_000_000, Duration::ZERO))));
        let store = Arc::new(Asked {
            inner: Arc::new(ModelStore::open(clock.clone())),
            away: AtomicBool::new(false),
            calls: Mutex::default(),
            found: Mutex::default(),
            read: Mutex::default(),
            tells: AtomicBool::new(false),
            broken: Mutex::default(),
        });
        let folder = tempfile::tempdir().expect("a folder");
        let writer = writer(&store, &clock, &folder);
        Self {
            clock,
            store,
            folder,
            writer,
            sends: 0,
        }
    }

    /// Replaces the writer by a new process after the old one's death.
    fn restart(&mut self) {
        // The old writer keeps its lock until it is dropped, so it is replaced by one elsewhere first.
        let elsewhere = tempfile::tempdir().expect("a folder");
        self.writer = writer(&self.store, &self.clock, &elsewhere);
        self.writer = writer(&self.store, &self.clock, &self.folder);
    }

    /// Commits the next step of each of these sessions, timestamped `ago_ms` ago.
    async fn steps(&mut self, ago_ms: i64, sessions: impl IntoIterator<Item = u128>) {
        let mut items = Vec::new();
        let mut known = BTreeSet::new();
        for session in sessions {
            let key = key(session);
            let is_known = self.store.inner.get_session(key).await;
            let is_known = is_known.expect("the store answers").is_some();
            let target = if is_known || !known.insert(session) {
                Target::Existing(key)
            } else {
                Target::New(Box::new(NewSession {
                    key,
                    agent: AgentSpec::default(),
                    metadata: serde_json::Map::new(),
                    parent: None,
                }))
            };
            self.sends += 1;
            items.push(AcceptSend {
                id: SendId(Uuid::from_u128(self.sends)),
                target,
                input: vec![ContentPart::text("words")],
                options: SendOptions::default(),
                reports_to: None,
                run: None,
                idempotency: None,
                queued_max: 10_000,
                keeper: None,
            });
        }
        let at = Timestamp(self.clock.read().0 - ago_ms);
        let boot = BootId(Uuid::from_u128(0x5c));
        let outcomes = self.store.inner.at(at).accept_sends(boot, items).await;
        for outcome in outcomes.expect("the store answers") {
            assert!(matches!(outcome, AcceptOutcome::Accepted(_)), "{outcome:?}");
        }
    }

    async fn pass(&mut self) {
        assert!(self.writer.pass().await.expect("it can be written"));
    }

    /// Makes `count` passes, each after this many milliseconds.
    async fn passes(&mut self, count: usize, ms: i64) {
        for _ in 0..count {
            self.clock.pass_by(ms);
            self.pass().await;
        }
    }

    /// How often each step is in the file; the steps of a session must be in order.
    fn written(&self) -> BTreeMap<(u128, i64), usize> {
        let path = self.folder.path().join("journal.jsonl");
        let text = std::fs::read_to_string(path).expect("there is a file");
        let mut written = BTreeMap::new();
        let mut last = BTreeMap::<u128, i64>::new();
        let broken = self.store.broken.lock().expect("nobody panics under it");
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).expect("whole lines");
            let Some(session) = line["session_id"].as_str() else {
                assert_eq!(line["journal"], 1);
                continue;
            };
            let session: SessionId = session.parse().expect("an id");
            let (session, n) = (session.0.as_u128(), line["n"].as_i64().expect("a number"));
            let first = *written
                .entry((session, n))
                .and_modify(|n| *n += 1)
                .or_insert(1)
                == 1;
            if first && let Some(before) = last.insert(session, n) {
                let mut between = before + 1..n;
                assert!(
                    before < n && between.all(|n| broken.contains(&n)),
                    "{session}: {before}, {n}"
                );
            }
        }
        written
    }

    /// The steps in the file, each of which must be there once.
    fn once(&self) -> Vec<(u128, i64)> {
        let written = self.written();
        assert!(written.values().all(|count| *count == 1), "{written:?}");
        written.into_keys().collect()
    }
}

fn writer(store: &Arc<Asked>, clock: &Arc<Hand>, folder: &TempDir) -> Writer {
    let source = Source {
        store: store.clone(),
        clock: clock.clone(),
        content: false,
        found_max: FOUND_MAX,
    };
    let settings = JsonlSettings {
        path: folder.path().join("journal.jsonl"),
        bytes_max: 64 << 20,
        files_max: 2,
        interval: Duration::from_secs(1),
    };
    Writer::new(source, settings)
}

#[tokio::test]
async fn a_step_that_commits_as_late_as_it_may_is_written_whenever_that_is() {
    let mut world = World::new();
    world.pass().await;
    world.passes(80, 1_100).await;
    for session in 1..=30 {
        world.steps(LATEST_MS - 100, [session]).await;
        world.passes(1, 1_100).await;
    }
    world.passes(20, 1_100).await;
    let expected: Vec<_> = (1..=30).map(|session| (session, 1)).collect();
    assert_eq!(world.once(), expected);
}

#[tokio::test]
async fn whoever_goes_on_after_a_death_finds_what_commits_late() {
    let mut world = World::new();
    world.pass().await;
    world.passes(80, 1_100).await;
    for session in 1..=30 {
        world.steps(LATEST_MS - 100, [session]).await;
        world.steps(0, [100]).await;
        world.passes(1, 1_100).await;
        world.restart();
        world.pass().await;
    }
    world.passes(20, 1_100).await;
    let mut expected: Vec<_> = (1..=30).map(|session| (session, 1)).collect();
    expected.extend((1..=30).map(|n| (100, n)));
    let written: Vec<_> = world.written().into_keys().collect();
    assert_eq!(written, expected);
}

#[tokio::test]
async fn all_late_steps_of_a_session_that_is_not_known_are_written() {
    let mut world = World::new();
    world.pass().await;
    world.passes(80, 1_100).await;
    // Those with an earlier timestamp can at first be found only through the last one.
    world.steps(30_000, std::iter::repeat_n(1, 700)).await;
    world.steps(0, [1]).await;
    world.passes(2, 1_100).await;
    world.passes(20, 1_100).await;
    let expected: Vec<_> = (1..=701).map(|n| (1, n)).collect();
    assert_eq!(world.once(), expected);
}

#[tokio::test]
async fn more_sessions_with_steps_of_one_moment_than_a_page_holds_are_written_once() {
    let mut world = World::new();
    world.pass().await;
    let sessions = u128::from(FOUND_MAX) * 2 + 500;
    world.steps(0, 1..=sessions).await;
    world.passes(30, 1_100).await;
    let expected: Vec<_> = (1..=sessions).map(|session| (session, 1)).collect();
    assert_eq!(world.once(), expected);
}

#[tokio::test]
async fn what_is_dense_behind_what_is_sparse_is_read_in_small_parts() {
    let mut world = World::new();
    world.pass().await;
    // Three quiet hours, followed by three busy minutes.
    world.clock.pass_by(3 * 3_600_000);
    for second in 0..180 {
        let sessions = (1..=30).map(|n| second * 30 + n);
        world.steps(0, sessions).await;
        world.clock.pass_by(1_000);
    }
    world.store.finds();
    world.passes(2, 1_100).await;
    let expected: Vec<_> = (1..=5_400).map(|session| (session, 1)).collect();
    assert_eq!(world.once(), expected);
    let finds = world.store.finds();
    let width = |find: &FindSteps| find.until.0 - find.from.0;
    assert!(
        finds.iter().all(|find| width(find) <= SPAN_MAX_MS),
        "{finds:?}"
    );
    assert!(
        finds.iter().any(|find| width(find) == SPAN_MAX_MS),
        "{finds:?}"
    );
    let later = finds.iter().filter(|find| find.after.is_some());
    assert!(
        later.clone().all(|find| width(find) <= SPAN_MIN_MS),
        "{finds:?}"
    );
    assert!(finds.len() < 60, "{}", finds.len());
}

#[tokio::test]
async fn a_clock_that_is_set_back_is_followed() {
    for (back, away) in [
        (3_600_000, 0),
        (3_600_000, 180_000),
        (70_000, 0),
        (30_000, 0),
        (500, 0),
    ] {
        let mut world = World::new();
        world.pass().await;
        world.steps(0, [1, 2]).await;
        world.passes(60, 1_100).await;
        world.steps(0, [1]).await;
        world.passes(2, 1_100).await;
        // Another server takes over with a clock that is behind, and work continues at once.
        world.clock.set_back(back);
        world.steps(0, [1, 3]).await;
        world.store.away.store(away > 0, Ordering::SeqCst);
        for _ in 0..away / 3_000 {
            world.clock.pass_by(3_000);
            world.writer.pass().await.expect_err("it is away");
        }
        world.store.away.store(false, Ordering::SeqCst);
        world.passes(2, 1_100).await;
        world.steps(0, [2, 4]).await;
        world.passes(30, 1_100).await;
        world.restart();
        world.pass().await;
        world.steps(0, [3, 5]).await;
        world.passes(60, 1_100).await;
        let expected = [
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 1),
            (2, 2),
            (3, 1),
            (3, 2),
            (4, 1),
            (5, 1),
        ];
        let written: Vec<_> = world.written().into_keys().collect();
        assert_eq!(written, expected, "{back} {away}");
    }
}

#[tokio::test]
async fn what_a_crash_of_the_server_may_undo_is_left_for_later() {
    let mut world = World::new();
    world.pass().await;
    world.clock.pass_by(5_000);
    world.steps(0, [1]).await;
    world.passes(3, 300).await;
    assert_eq!(world.once(), []);
    // Nor is it read together with a step that is old enough.
    world.steps(3_000, [2]).await;
    world.steps(0, [2]).await;
    world.pass().await;
    assert_eq!(world.once(), [(2, 1)]);
    world.passes(1, SETTLED_MS + 1).await;
    assert_eq!(world.once(), [(1, 1), (2, 1), (2, 2)]);
}

#[tokio::test]
async fn a_new_journal_begins_with_what_is_committed_from_then_on() {
    let mut world = World::new();
    world.steps(30_000, [1, 2]).await;
    world.steps(1, [1]).await;
    world.pass().await;
    world.clock.pass_by(10);
    world.steps(0, [1, 3]).await;
    world.passes(3, 1_100).await;
    assert_eq!(world.once(), [(1, 3), (3, 1)]);
    world.restart();
    world.passes(30, 1_100).await;
    let written: Vec<_> = world.written().into_keys().collect();
    assert_eq!(written, [(1, 3), (3, 1)]);
}

#[tokio::test]
async fn an_outage_of_the_database_neither_gives_up_the_file_nor_is_hidden() {
    let mut world = World::new();
    world.pass().await;
    world.passes(2, 1_100).await;
    world.store.away.store(true, Ordering::SeqCst);
    for _ in 0..20 {
        world.clock.pass_by(3_000);
        world.writer.pass().await.expect_err("it is away");
        assert!(world.writer.writes());
    }
    let (_, time) = world.clock.read();
    let behind = world.writer.behind.by(time);
    assert!(behind >= Duration::from_mins(1), "{behind:?}");
    world.store.away.store(false, Ordering::SeqCst);
    world.steps(0, [1]).await;
    world.passes(2, 1_100).await;
    let (_, time) = world.clock.read();
    assert!(world.writer.behind.by(time) < Duration::from_secs(2));
    assert_eq!(world.once(), [(1, 1)]);
}

#[tokio::test]
async fn who_stands_by_asks_the_database_nothing_and_is_not_behind() {
    let mut world = World::new();
    world.pass().await;
    let calls = |world: &World| -> usize {
        let calls = world.store.calls.lock().expect("nobody panics under it");
        calls.values().sum()
    };
    let before = calls(&world);
    let mut second = writer(&world.store, &world.clock, &world.folder);
    assert!(!second.pass().await.expect("a file"));
    world.clock.pass_by(60_000);
    assert!(!second.pass().await.expect("a file"));
    let (_, time) = world.clock.read();
    assert_eq!(second.behind.by(time), Duration::ZERO);
    assert_eq!(calls(&world), before);
}

#[test]
fn who_never_wrote_is_behind_since_it_first_failed() {
    let mut behind = Behind::default();
    let seconds = Duration::from_secs;
    behind.grows(seconds(5));
    assert_eq!(behind.by(seconds(9)), seconds(4));
    behind.is(seconds(1), seconds(10));
    assert_eq!(behind.by(seconds(12)), seconds(3));
    behind.is_elsewhere();
    assert_eq!(behind.by(seconds(20)), Duration::ZERO);
}

#[tokio::test]
async fn messages_of_many_steps_are_read_together() {
    let mut world = World::new();
    world.store.tells.store(true, Ordering::SeqCst);
    world.pass().await;
    world.steps(0, std::iter::repeat_n(1, 300)).await;
    world.passes(2, 1_100).await;
    assert_eq!(world.once().len(), 300);
    let read = world.store.read.lock().expect("nobody panics under it");
    let ranges: Vec<_> = read.iter().map(|it| (it.after, it.limit)).collect();
    // Pages of 200 steps with two messages each; at most 256 messages are read at once.
    assert_eq!(ranges, [(0, 256), (256, 144), (400, 200)]);
}

#[tokio::test]
async fn a_step_that_cannot_be_read_is_left_out_and_no_other() {
    for broken in [1, 2, 200, 201, 450] {
        let mut world = World::new();
        world
            .store
            .broken
            .lock()
            .expect("nobody panics under it")
            .insert(broken);
        world.pass().await;
        world.steps(0, std::iter::repeat_n(1, 450)).await;
        world.steps(0, [2]).await;
        world.passes(3, 1_100).await;
        world.steps(0, [1]).await;
        world.passes(20, 1_100).await;
        let mut expected: Vec<_> = (1..=451).map(|n| (1, n)).collect();
        expected.push((2, 1));
        expected
            .retain(|(session, n)| *session == 1 && *n != broken || *session == 2 && broken != 1);
        assert_eq!(world.once(), expected, "{broken}");
    }
}

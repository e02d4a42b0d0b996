//! How reliably and how fast entries are found among many.
//!
//! `MAINSPRING_TEST_MEMORIES` is the number of entries, 300 by default, with a hundred per
//! namespace. `MAINSPRING_TEST_CROWD` is the number of further entries in one large namespace, 1
//! 100 by default. `MAINSPRING_TEST_RECALL_P99_MS` bounds the 99th percentile of the search times
//! in small namespaces.

use std::fmt::Write as _;
use std::future::Future;
use std::io::Write as _;
use std::time::Duration;

use futures::StreamExt as _;
use mainspring_runtime::SystemClock;
use mainspring_shared::id::{MemoryId, TenantId};
use mainspring_shared::memory::Namespace;
use mainspring_shared::store::{Inspect, NewMemory, SaveMemory, SearchMemories};
use mainspring_shared::time::Clock as _;
use serde_json::Map;
use uuid::Uuid;

use super::harness::{Opened, environment};
use super::memories::LABELLED;

/// Entries per namespace.
const OF_ONE: usize = 100;

/// Searches per measurement; fewer in a small one.
const SEARCHES: usize = 2_000;

const PEOPLE: [&str; 16] = [
    "Mia", "Jonas", "Aisha", "Pedro", "Lin", "Olga", "Kofi", "Anna", "Ravi", "Sofia", "Emil",
    "Noor", "Tom", "Yuki", "Clara", "Ben",
];

/// What is said about a person, and a query for it. `{p}` is the person, `{v}` the value.
const FACTS: [(&str, &str); 20] = [
    (
        "{p}'s favourite dish is {v}",
        "Which dish does {p} like best?",
    ),
    (
        "{p} works as a {v} since last year",
        "What does {p} work as?",
    ),
    (
        "{p} is allergic to {v}",
        "Is there anything that {p} is allergic to?",
    ),
    ("The dog of {p} is called {v}", "What is {p}'s dog called?"),
    (
        "{p} plays {v} every Tuesday",
        "What does {p} play on Tuesdays?",
    ),
    ("{p} was born in {v}", "Where was {p} born?"),
    (
        "{p} wants to travel to {v} in autumn",
        "Where does {p} want to travel to?",
    ),
    ("{p} drives a {v} to the office", "What does {p} drive?"),
    ("{p} is afraid of {v}", "What is {p} afraid of?"),
    (
        "{p} is learning {v} with a teacher",
        "What is {p} learning?",
    ),
    ("{p} reads books about {v}", "Which books does {p} read?"),
    (
        "{p} has a meeting about {v} on Friday",
        "When is {p}'s meeting about {v}?",
    ),
    (
        "The doctor told {p} to avoid {v}",
        "What did the doctor tell {p}?",
    ),
    (
        "{p} collects {v} from all over the world",
        "What does {p} collect?",
    ),
    (
        "{p}'s sister is married to a {v}",
        "Who is {p}'s sister married to?",
    ),
    (
        "{p} lost a {v} at the station",
        "What did {p} lose at the station?",
    ),
    (
        "{p} promised to repair the {v}",
        "What did {p} promise to repair?",
    ),
    (
        "{p} votes for the party of {v}",
        "Which party does {p} vote for?",
    ),
    (
        "{p} dislikes {v} in the morning",
        "What does {p} dislike in the mornings?",
    ),
    (
        "The password hint of {p} is {v}",
        "What was {p}'s password hint?",
    ),
];

const VALUES: [&str; 32] = [
    "lasagne",
    "violin",
    "nurse",
    "peanuts",
    "Lisbon",
    "spider",
    "Japanese",
    "history",
    "stamp",
    "budget",
    "kitchen",
    "bicycle",
    "chess",
    "umbrella",
    "carpenter",
    "Volvo",
    "green tea",
    "thunder",
    "football",
    "Norway",
    "astronomy",
    "cheese",
    "tractor",
    "lawyer",
    "garden",
    "camera",
    "salsa",
    "piano",
    "desert",
    "medicine",
    "sugar",
    "train",
];

/// Reproducible pseudorandom numbers.
fn spread(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// The text of entry `n`, and the query that it answers best: no two entries in a namespace say the
/// same about the same person.
fn labelled(n: usize) -> (String, String) {
    let (place, at) = (n / OF_ONE, n % OF_ONE);
    if at < LABELLED.len() {
        let (text, question) = LABELLED[at];
        return (text.to_owned(), question.to_owned());
    }
    let fact = (at + place) % FACTS.len();
    let person = PEOPLE[(at / FACTS.len() + place * 5 + fact) % PEOPLE.len()];
    let value = VALUES[spread(n as u64) as usize % VALUES.len()];
    let (text, question) = FACTS[fact];
    let said = |text: &str| text.replace("{p}", person).replace("{v}", value);
    (said(text), said(question))
}

/// The text of entry `n` of the large namespace, in which all texts share words, and its query.
fn of_crowd(n: usize) -> (String, String) {
    let (text, question) = FACTS[n % FACTS.len()];
    // A few thousand distinct names, as among real people.
    let person = format!("{}{}", PEOPLE[n % PEOPLE.len()], spread(n as u64) % 5_000);
    let value = VALUES[spread(n as u64 + 7) as usize % VALUES.len()];
    let said = |text: &str| text.replace("{p}", &person).replace("{v}", value);
    (format!("the user said that {}", said(text)), said(question))
}

fn namespace(text: &str) -> Namespace {
    text.parse().expect("a namespace")
}

fn number(name: &str, otherwise: usize) -> usize {
    environment(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

async fn enter(store: &dyn Inspect, id: usize, within: &str, text: String) {
    let item = SaveMemory {
        tenant: TenantId::DEFAULT,
        entry: NewMemory {
            id: MemoryId(Uuid::from_u128(1 + id as u128)),
            namespace: namespace(within),
            text,
            metadata: Map::new(),
            source: None,
            expires_at: None,
        },
        idempotency: None,
    };
    store.save_memory(item).await.expect("is saved");
}

/// The result of searching.
struct Searched {
    right: usize,
    all: usize,
    times: Vec<Duration>,
}

impl Searched {
    fn at(&self, part: f64) -> Duration {
        let last = self.times.len() - 1;
        self.times[(last as f64 * part) as usize]
    }

    fn said(&self, of: &str) -> String {
        let mut text = format!("{of}: {} of {} among the first five", self.right, self.all);
        for (name, part) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
            let ms = self.at(part).as_secs_f64() * 1_000.0;
            write!(text, ", {name} {ms:.1} ms").expect("a string takes it");
        }
        text
    }
}

async fn searched(
    store: &dyn Inspect,
    questions: impl Iterator<Item = (usize, String, String)>,
) -> Searched {
    let clock = SystemClock::new();
    let mut outcome = Searched {
        right: 0,
        all: 0,
        times: Vec::new(),
    };
    for (id, within, question) in questions {
        let ask = SearchMemories::new(TenantId::DEFAULT, namespace(&within), &question, 5);
        let begun = clock.monotonic();
        let found = store.search_memories(ask).await.expect("is found");
        outcome.times.push(clock.monotonic().saturating_sub(begun));
        outcome.all += 1;
        let wanted = MemoryId(Uuid::from_u128(1 + id as u128));
        outcome.right += usize::from(found.iter().any(|entry| entry.id == wanted));
    }
    outcome.times.sort();
    outcome
}

/// Saves all entries, and searches for some.
async fn recall(store: &dyn Inspect) {
    let (many, crowd) = (
        number("MAINSPRING_TEST_MEMORIES", 300),
        number("MAINSPRING_TEST_CROWD", 1_100),
    );
    let place = |n: usize| format!("user/{}", n / OF_ONE);
    let small = (0..many).map(|n| (n, place(n), labelled(n).0));
    let large = (0..crowd).map(|n| (many + n, "crowd/all".to_owned(), of_crowd(n).0));
    let all = futures::stream::iter(small.chain(large));
    let entered = all.map(|(id, within, text)| async move {
        enter(store, id, &within, text).await;
    });
    entered.buffer_unordered(128).collect::<Vec<()>>().await;

    let some =
        |of: usize| (0..SEARCHES.min(of / 10)).map(move |n| spread(n as u64 + 99) as usize % of);
    let of_many = some(many).map(|n| (n, place(n), labelled(n).1));
    let of_many = searched(store, of_many).await;
    let of_crowd = some(crowd).map(|n| (many + n, "crowd/all".to_owned(), of_crowd(n).1));
    let of_crowd = searched(store, of_crowd).await;
    let said = format!(
        "{many} entries in namespaces of {OF_ONE}: {}\n{crowd} entries in one: {}\n",
        of_many.said("searches"),
        of_crowd.said("searches")
    );
    // Written straight to the terminal: the test harness shows captured output only if a test fails.
    let shown = std::io::stderr().write_all(said.as_bytes());
    shown.expect("standard error is open");
    for outcome in [&of_many, &of_crowd] {
        assert!(outcome.right * 10 >= outcome.all * 9, "{said}");
    }
    if environment("MAINSPRING_TEST_RECALL_P99_MS").is_some() {
        let most = number("MAINSPRING_TEST_RECALL_P99_MS", 0) as u128;
        assert!(of_many.at(0.99).as_millis() <= most, "{said}");
    }
}

/// The right entry is found among many, and quickly.
pub fn assert_recalls<O: Opened, F: Future<Output = Option<O>>>(open: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime starts");
    runtime.block_on(async {
        if let Some(opened) = open().await {
            recall(opened.store()).await;
            opened.close().await;
        }
    });
}

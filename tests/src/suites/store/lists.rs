//! The lists that agents keep.

use std::collections::BTreeSet;

use futures::future::join_all;
use mainspring_shared::id::TenantId;
use mainspring_shared::list::{
    Bounds, Change, Entry, List, ListName, NewEntry, Refusal, WhenFull, Written,
};
use mainspring_shared::store::{
    AuditOptions, CreateOutcome, ImportSession, Inspect, ListOutcome, WriteList,
};

use super::prelude::*;

const BOUNDS: Bounds = Bounds {
    entries_max: 3,
    chars_max: 100,
    when_full: WhenFull::Reject,
};

fn notes(session: u128) -> ListName {
    ListName::Notes(key(session).session)
}

fn board() -> ListName {
    ListName::root_board(key(1).session)
}

fn entry(text: &str) -> NewEntry {
    NewEntry {
        text: text.to_owned(),
        ..NewEntry::default()
    }
}

fn adding(call: &str, text: &str) -> WriteList {
    WriteList {
        name: notes(1),
        session: key(1),
        call_id: call.to_owned(),
        change: Change::Add(entry(text)),
        bounds: BOUNDS,
    }
}

fn updating(call: &str, id: i64, text: &str, if_version: Option<i64>) -> WriteList {
    WriteList {
        change: Change::Update {
            id,
            text: Some(text.to_owned()),
            status: None,
            pinned: None,
            if_version,
        },
        ..adding(call, "")
    }
}

fn removing(call: &str, id: i64) -> WriteList {
    WriteList {
        change: Change::Remove { id },
        ..adding(call, "")
    }
}

async fn write(store: &dyn Inspect, ms: i64, item: WriteList) -> ListOutcome {
    let outcome = store.at(time(ms)).write_list(item).await;
    outcome.expect("the store answers")
}

async fn written(store: &dyn Inspect, ms: i64, item: WriteList) -> (Written, List) {
    match write(store, ms, item).await {
        ListOutcome::Written { written, list } => (written, list),
        other => panic!("a change was expected: {other:?}"),
    }
}

async fn read(store: &dyn Inspect, name: ListName) -> List {
    let list = store.read_list(TenantId::DEFAULT, name).await;
    list.expect("the store answers")
}

async fn create(store: &dyn Inspect, n: u128) {
    let created = store
        .at(time(0))
        .create_sessions(vec![(new_session(n), None)])
        .await;
    created.expect("the store answers");
}

pub async fn entries_are_added_changed_and_removed(store: &dyn Inspect) {
    create(store, 1).await;
    assert_eq!(read(store, notes(1)).await, List::default());
    let (first, _) = written(store, 10, adding("a", "one")).await;
    assert_eq!((first.entry, first.evicted), (Some(1), None));
    written(store, 20, adding("b", "two \u{1f980} \"quoted\"")).await;
    let (changed, list) = written(store, 30, updating("c", 1, "uno", Some(1))).await;
    assert_eq!(changed.entry, Some(1));
    let expected = |id, version, text: &str, created, updated| Entry {
        id,
        version,
        text: text.to_owned(),
        kind: None,
        status: None,
        author: None,
        pinned: false,
        created_at: time(created),
        updated_at: time(updated),
        extra: mainspring_shared::stored::Extra::default(),
    };
    let entries = [
        expected(1, 2, "uno", 10, 30),
        expected(2, 1, "two \u{1f980} \"quoted\"", 20, 20),
    ];
    assert_eq!(list.entries, entries);
    assert_eq!(read(store, notes(1)).await, list);
    let (_, list) = written(store, 40, removing("d", 1)).await;
    assert_eq!(list.entries, entries[1..]);
    assert_eq!((list.next_id, list.version), (3, 4));
    assert_eq!(read(store, notes(1)).await, list);
    assert_eq!(read(store, notes(2)).await, List::default());
}

pub async fn every_member_of_an_entry_is_kept(store: &dyn Inspect) {
    create(store, 1).await;
    let full = NewEntry {
        text: "do it".to_owned(),
        kind: Some("task".to_owned()),
        status: Some("open".to_owned()),
        author: Some("planner\0".to_owned()),
        pinned: true,
    };
    let item = WriteList {
        name: board(),
        change: Change::Replace(vec![full, entry("two")]),
        ..adding("a", "")
    };
    let (_, list) = written(store, 10, item).await;
    let first = &list.entries[0];
    assert_eq!(first.author.as_deref(), Some("planner\u{fffd}"));
    assert_eq!(
        (first.kind.as_deref(), first.status.as_deref(), first.pinned),
        (Some("task"), Some("open"), true)
    );
    assert_eq!(read(store, board()).await, list);
}

pub async fn a_repeated_call_changes_nothing_and_answers_as_before(store: &dyn Inspect) {
    create(store, 1).await;
    let bounds = Bounds {
        entries_max: 1,
        when_full: WhenFull::Fifo,
        ..BOUNDS
    };
    let fifo = |call, text| WriteList {
        bounds,
        ..adding(call, text)
    };
    written(store, 10, fifo("a", "one")).await;
    let (second, after) = written(store, 20, fifo("b", "two")).await;
    assert_eq!((second.entry, second.evicted), (Some(2), Some(1)));
    let before = store.dump().await.expect("the store answers");
    for (call, expected) in [
        ("b", second),
        (
            "a",
            Written {
                entry: Some(1),
                evicted: None,
            },
        ),
    ] {
        let (again, list) = written(store, 30, fifo(call, "other")).await;
        assert_eq!((again, list), (expected, after.clone()));
    }
    assert_eq!(store.dump().await.expect("the store answers"), before);
    // Each list remembers its own calls.
    let elsewhere = WriteList {
        name: board(),
        ..adding("a", "one")
    };
    assert_eq!(written(store, 40, elsewhere).await.1.entries.len(), 1);
}

pub async fn what_is_refused_leaves_nothing_behind(store: &dyn Inspect) {
    create(store, 1).await;
    for call in ["a", "b", "c"] {
        written(store, 10, adding(call, call)).await;
    }
    let before = store.dump().await.expect("the store answers");
    let refused = [
        (adding("d", "one more"), Refusal::Full { max: 3 }),
        (adding("d", "  "), Refusal::Empty),
        (updating("d", 9, "x", None), Refusal::Unknown { id: 9 }),
        (
            updating("d", 1, "x", Some(2)),
            Refusal::Changed { id: 1, version: 1 },
        ),
        (removing("d", 4), Refusal::Unknown { id: 4 }),
    ];
    for (item, refusal) in refused {
        assert_eq!(write(store, 20, item).await, ListOutcome::Refused(refusal));
    }
    assert_eq!(store.dump().await.expect("the store answers"), before);
    // A call that was refused may still change something when repeated.
    written(store, 30, removing("d", 3)).await;
    let (added, _) = written(store, 40, adding("e", "in its place")).await;
    assert_eq!(added.entry, Some(4));
}

pub async fn writers_at_once_never_pass_the_cap_nor_share_a_number(store: &dyn Inspect) {
    create(store, 1).await;
    let bounds = Bounds {
        entries_max: 5,
        ..BOUNDS
    };
    let writes = (0..20).map(|n| {
        let item = WriteList {
            name: board(),
            bounds,
            ..adding(&format!("call{n}"), "x")
        };
        write(store, 10, item)
    });
    let outcomes = join_all(writes).await;
    let numbers = outcomes.iter().filter_map(|outcome| match outcome {
        ListOutcome::Written { written, .. } => written.entry,
        ListOutcome::Refused(Refusal::Full { max: 5 }) => None,
        other => panic!("{other:?}"),
    });
    let numbers: Vec<i64> = numbers.collect();
    assert_eq!(numbers.len(), 5);
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 5);
    assert_eq!(read(store, board()).await.entries.len(), 5);
}

pub async fn lists_go_with_their_session(store: &dyn Inspect) {
    register(store, SCHEDULER).await;
    create(store, 1).await;
    create(store, 2).await;
    let shared = WriteList {
        name: ListName::Board("team".to_owned()),
        ..adding("a", "stays")
    };
    let todo = WriteList {
        name: ListName::Todo(key(1).session),
        change: Change::Replace(vec![entry("x")]),
        ..adding("a", "")
    };
    let other = WriteList {
        name: notes(2),
        session: key(2),
        ..adding("a", "of another")
    };
    let root = WriteList {
        name: board(),
        session: key(1),
        ..adding("a", "of the tree")
    };
    for item in [adding("a", "x"), shared, todo, other, root] {
        written(store, 10, item).await;
    }
    let deleted = store
        .at(time(20))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    let dump = store.dump().await.expect("the store answers");
    let left: Vec<_> = dump.lists.iter().map(|list| list.name.clone()).collect();
    assert_eq!(left, ["board:team".to_owned(), notes(2).key()]);
    assert_eq!(
        write(store, 30, adding("b", "late")).await,
        ListOutcome::Gone
    );
    let unknown = WriteList {
        session: key(9),
        ..adding("b", "x")
    };
    assert_eq!(write(store, 30, unknown).await, ListOutcome::Gone);
    let violations = store.at(time(40)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub async fn copies_bring_their_lists(store: &dyn Inspect) {
    create(store, 1).await;
    written(store, 10, adding("a", "one")).await;
    written(store, 20, adding("b", "two")).await;
    let (_, list) = written(store, 30, removing("c", 1)).await;
    let item = ImportSession {
        projections: Vec::new(),
        folds: Vec::new(),
        session: new_session(2),
        messages: Vec::new(),
        todo: List::default(),
        notes: list.clone(),
        idempotency: None,
        behind: 0,
        more: false,
    };
    let outcome = store.at(time(40)).import_session(item).await;
    let outcome = outcome.expect("the store answers");
    assert!(matches!(outcome, CreateOutcome::Created(_)), "{outcome:?}");
    assert_eq!(read(store, notes(2)).await, list);
    assert_eq!(
        read(store, ListName::Todo(key(2).session)).await,
        List::default()
    );
    // A copy is independent: it has served none of these calls.
    let own = WriteList {
        name: notes(2),
        session: key(2),
        ..adding("a", "three")
    };
    let (added, _) = written(store, 50, own).await;
    assert_eq!(added.entry, Some(3));
    assert_eq!(read(store, notes(1)).await, list);
}

pub async fn only_so_many_writes_are_remembered(store: &dyn Inspect) {
    use mainspring_shared::list::WRITES_KEPT;
    create(store, 1).await;
    written(store, 10, adding("first", "x")).await;
    for n in 0..WRITES_KEPT {
        written(store, 20, updating(&format!("call{n:04}"), 1, "y", None)).await;
    }
    let dump = store.dump().await.expect("the store answers");
    let calls = &dump.lists[0].calls;
    assert_eq!(calls.len() as i64, WRITES_KEPT);
    assert!(!calls.contains(&"first".to_owned()));
}

use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds {
    entries_max: 3,
    chars_max: 5,
    when_full: WhenFull::Reject,
};

const FIFO: Bounds = Bounds {
    when_full: WhenFull::Fifo,
    ..BOUNDS
};

fn note(text: &str, pinned: bool) -> NewEntry {
    NewEntry {
        text: text.to_owned(),
        pinned,
        ..NewEntry::default()
    }
}

fn change(list: &mut List, change: Change, bounds: Bounds) -> Result<Written, Refusal> {
    let (next, written) = apply(list, change, bounds, Timestamp(7))?;
    *list = next;
    Ok(written)
}

fn add(list: &mut List, text: &str, pinned: bool, bounds: Bounds) -> Result<Written, Refusal> {
    change(list, Change::Add(note(text, pinned)), bounds)
}

fn update(id: i64, text: Option<&str>, if_version: Option<i64>) -> Change {
    Change::Update {
        id,
        text: text.map(str::to_owned),
        status: None,
        pinned: None,
        if_version,
    }
}

#[test]
fn words_are_trimmed_and_refused_rather_than_cut() {
    let mut list = List::default();
    assert_eq!(add(&mut list, " \n", false, BOUNDS), Err(Refusal::Empty));
    let refused = add(&mut list, "ééééééé", false, BOUNDS);
    assert_eq!(refused, Err(Refusal::TooLong { max: 5 }));
    assert_eq!(list, List::default());
    add(&mut list, "  ééééé ", false, BOUNDS).expect("fits");
    assert_eq!(list.entries[0].text, "ééééé");
    add(&mut list, "a\0b", false, BOUNDS).expect("fits");
    assert_eq!(list.entries[1].text, "a\u{fffd}b");
}

#[test]
fn numbers_are_never_used_again() {
    let mut list = List::default();
    for expected in 1..=3 {
        let written = add(&mut list, "x", false, BOUNDS).expect("room");
        assert_eq!(written.entry, Some(expected));
    }
    change(&mut list, Change::Remove { id: 3 }, BOUNDS).expect("is there");
    let written = add(&mut list, "x", false, BOUNDS).expect("room");
    assert_eq!(written.entry, Some(4));
    let again = change(&mut list, Change::Remove { id: 3 }, BOUNDS);
    assert_eq!(again, Err(Refusal::Unknown { id: 3 }));
}

#[test]
fn a_full_list_refuses_or_drops_the_oldest_that_is_not_pinned() {
    let mut list = List::default();
    for pinned in [true, false, false] {
        add(&mut list, "x", pinned, BOUNDS).expect("room");
    }
    let refused = add(&mut list, "x", false, BOUNDS);
    assert_eq!(refused, Err(Refusal::Full { max: 3 }));
    for evicted in [2, 3] {
        let written = add(&mut list, "x", true, FIFO).expect("one goes");
        assert_eq!(written.evicted, Some(evicted));
    }
    let refused = add(&mut list, "x", false, FIFO);
    assert_eq!(refused, Err(Refusal::AllPinned { max: 3 }));
}

#[test]
fn an_update_needs_something_to_change_and_the_version_it_read() {
    let mut list = List::default();
    add(&mut list, "x", false, BOUNDS).expect("room");
    let nothing = change(&mut list, update(1, None, None), BOUNDS);
    assert_eq!(nothing, Err(Refusal::Nothing));
    change(&mut list, update(1, Some("y"), Some(1)), BOUNDS).expect("is version 1");
    let stale = change(&mut list, update(1, Some("z"), Some(1)), BOUNDS);
    assert_eq!(stale, Err(Refusal::Changed { id: 1, version: 2 }));
    assert_eq!(list.entries[0].text, "y");
    let unknown = change(&mut list, update(2, Some("z"), None), BOUNDS);
    assert_eq!(unknown, Err(Refusal::Unknown { id: 2 }));
}

#[test]
fn a_list_of_things_to_do_is_written_as_a_whole() {
    let mut list = List::default();
    let items = |texts: &[&str]| Change::Replace(texts.iter().map(|t| note(t, false)).collect());
    change(&mut list, items(&["a", "b"]), BOUNDS).expect("room");
    change(&mut list, items(&["a"]), BOUNDS).expect("room");
    let left: Vec<_> = list.entries.iter().map(|e| (e.id, e.version)).collect();
    assert_eq!(left, [(1, 2)]);
    let refused = change(&mut list, items(&["a", "b", "c", "d"]), BOUNDS);
    assert_eq!(refused, Err(Refusal::Full { max: 3 }));
}

#[test]
fn notes_are_shown_pinned_first_of_all_and_then_the_newest() {
    assert_eq!(notes_shown(&[], 100), None);
    let mut list = List::default();
    let bounds = Bounds {
        entries_max: 9,
        ..BOUNDS
    };
    for (text, pinned) in [
        ("old", true),
        ("aaaaa", false),
        ("bbbbb", false),
        ("c", false),
    ] {
        add(&mut list, text, pinned, bounds).expect("room");
    }
    let all = notes_shown(&list.entries, 1_000).expect("notes");
    assert_eq!(
        all,
        "Your notes from earlier:\n#1 [pinned] old\n#2 aaaaa\n#3 bbbbb\n#4 c"
    );
    let some = notes_shown(&list.entries, 30).expect("notes");
    assert_eq!(
        some,
        "Your notes from earlier:\n#1 [pinned] old\n#3 bbbbb\n#4 c\n\
         (1 older notes are not shown; note_list has them)"
    );
    let least = notes_shown(&list.entries, 1).expect("notes");
    assert!(least.contains("#1 [pinned] old\n(3 older"), "{least}");
}

proptest! {
    #[test]
    fn bounds_hold_and_a_difference_says_all_that_changed(
        changes in proptest::collection::vec((0..4_u8, 1..6_i64, any::<bool>()), 0..40)
    ) {
        let mut list = List::default();
        for (kind, id, flag) in changes {
            let change = match kind {
                0 | 1 => Change::Add(note("x", flag)),
                2 => Change::Update { id, text: None, status: None, pinned: Some(flag), if_version: None },
                _ => Change::Remove { id },
            };
            let bounds = if flag { FIFO } else { BOUNDS };
            let Ok((next, _)) = apply(&list, change, bounds, Timestamp(1)) else { continue };
            prop_assert!(next.entries.len() <= 3);
            prop_assert!(next.entries.is_sorted_by(|a, b| a.id < b.id));
            prop_assert!(next.entries.iter().all(|entry| entry.id < next.next_id));
            prop_assert!(next.next_id >= list.next_id);
            let (changed, gone) = difference(&list, &next);
            let mut rebuilt = list.entries.clone();
            rebuilt.retain(|e| !gone.contains(&e.id) && changed.iter().all(|c| c.id != e.id));
            rebuilt.extend(changed.into_iter().cloned());
            rebuilt.sort_by_key(|entry| entry.id);
            prop_assert_eq!(&rebuilt, &next.entries);
            list = next;
        }
    }
}

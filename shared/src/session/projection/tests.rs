use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::agent::FoldSpec;
use crate::message::ToolCall;
use crate::session::window::Window;

/// This many sends of four messages each: a question, a call, its result and an answer.
fn said(count: usize) -> Vec<Arc<Message>> {
    let mut messages = Vec::new();
    for n in 0..count {
        let call = ToolCall::new(
            format!("call_{n}"),
            "look",
            json!({ "at": format!("place {n}") }),
        );
        let user = |text: String| NewMessage::user(vec![ContentPart::text(text)], 0);
        let round = [
            user(format!("question {n}")),
            NewMessage {
                role: Role::Assistant,
                tool_calls: vec![call],
                ..user("I look.".to_owned())
            },
            NewMessage {
                role: Role::Tool,
                name: Some("look".to_owned()),
                tool_call_id: Some(format!("call_{n}")),
                ..user(format!("result {n}\nand more"))
            },
            NewMessage {
                role: Role::Assistant,
                ..user(format!("answer {n}"))
            },
        ];
        for message in round {
            let seq = messages.len() as i64 + 1;
            let send = SendId(Uuid::from_u128(n as u128));
            messages.push(Arc::new(message.at(seq, send, Timestamp(0), 1)));
        }
    }
    messages
}

fn rows(messages: &[Arc<Message>]) -> Vec<Projection> {
    sends(messages).filter_map(Projection::of).collect()
}

fn context(keep_sends: u32, last_messages: Option<u32>) -> ContextSpec {
    ContextSpec {
        last_messages,
        representation: Representation::Projection,
        fold: FoldSpec {
            keep_sends: Some(keep_sends),
            ..FoldSpec::default()
        },
        ..ContextSpec::default()
    }
}

fn ranges(rows: &[Projection]) -> Vec<(i64, i64)> {
    rows.iter().map(|row| (row.from_seq, row.to_seq)).collect()
}

/// Rows of a version are read as long as that version exists, so any change to how they are shown
/// needs a new version.
#[test]
fn what_is_stored_reads_like_this_for_as_long_as_the_version_stands() {
    let row = rows(&said(1)).pop().expect("a send");
    assert_eq!((row.from_seq, row.to_seq, row.version), (1, 4, 1));
    let stored = serde_json::to_value(&row.left).expect("JSON");
    let expected = json!({
        "asked": "[#1] question 0",
        "done": "[#2] look(at=place 0) \u{2192} result 0 and more\n[#4] answer 0",
        "results": { "look": 1 },
    });
    assert_eq!(stored, expected);
    let read: SendDigest = serde_json::from_value(stored).expect("as it was written");
    assert_eq!(read, row.left);
}

#[test]
fn an_unbroken_row_of_this_version_is_shown_but_for_the_newest_sends() {
    let all = rows(&said(7));
    let of = |rows: &[Projection], begin| Projected::of(rows.to_vec(), begin, &context(2, None));
    let whole = of(&all, 1);
    assert_eq!(ranges(&whole.shown), [(1, 4), (5, 8), (9, 12), (13, 16)]);
    assert_eq!((whole.stored_to, whole.behind(1)), (28, 17));
    // The third is missing or of another version: everything after it must be read.
    let (mut lacking, mut older) = (all.clone(), all.clone());
    lacking.remove(2);
    older[2].version += 1;
    for rows in [lacking, older] {
        let broken = of(&rows, 1);
        assert_eq!((broken.shown.len(), broken.stored_to), (0, 8));
        assert_eq!(broken.behind(1), 1);
    }
    // The first one is missing.
    assert_eq!(of(&all[1..], 1), Projected::default());
    assert_eq!(of(&[], 5), Projected::default());
    // The window begins after a fold.
    let behind = of(&all[2..], 9);
    assert_eq!(ranges(&behind.shown), [(9, 12), (13, 16)]);
}

#[test]
fn a_bounded_window_that_begins_within_a_send_is_read_whole() {
    let all = rows(&said(7));
    let bounded = context(2, Some(20));
    let cut = Projected::of(all[2..].to_vec(), 7, &bounded);
    assert_eq!((cut.shown.len(), cut.stored_to), (0, 28));
    let fits = Projected::of(all[2..].to_vec(), 9, &bounded);
    assert_eq!(ranges(&fits.shown), [(9, 12), (13, 16)]);
}

#[test]
fn verbatim_windows_have_no_digests() {
    let verbatim = ContextSpec::default();
    assert_eq!(digested(100, &verbatim), 0);
    assert_eq!(digested(9, &context(4, None)), 4);
    assert_eq!(digested(3, &context(0, None)), 2);
}

#[test]
fn what_lacks_a_row_gets_one_with_the_next_end() {
    let all = said(5);
    let (stored, to) = to_store(&all, 0, false);
    assert_eq!((stored.clone(), to), (rows(&all), 20));
    let (stored_next, to) = to_store(&said(6), to, false);
    assert_eq!((ranges(&stored_next), to), (vec![(21, 24)], 24));
    // The first send may lack a message, so nothing is stored for it unless it is the one that ends.
    let (cut, to) = to_store(&all[1..], 0, true);
    assert_eq!((cut, to), (stored[1..].to_vec(), 20));
    let (own, _) = to_store(&all[17..], 0, true);
    assert_eq!(ranges(&own), [(18, 20)]);
    assert_eq!(to_store(&[], 7, false), (Vec::new(), 7));
}

#[test]
fn a_step_heals_a_bounded_number_and_the_next_one_goes_on() {
    let count = HEALED_MAX + 10;
    let all = said(count);
    let (first, to) = to_store(&all, 0, false);
    assert_eq!(first.len(), HEALED_MAX + 1);
    assert_eq!(to, HEALED_MAX as i64 * 4);
    let (second, to) = to_store(&said(count + 1), to, false);
    assert_eq!(second.len(), 11);
    assert_eq!(to, (count as i64 + 1) * 4);
}

#[test]
fn copies_have_the_projections_of_their_messages() {
    let messages: Vec<_> = said(5).iter().map(|it| Message::clone(it)).collect();
    for page in 1..=messages.len() {
        let mut copied = ProjectionBuilder::new(0);
        for (at, piece) in messages.chunks(page).enumerate() {
            copied.add(piece, (at * page) as i64);
        }
        assert_eq!(copied.end(), rows(&said(5)), "{page}");
    }
    // Messages pruned earlier are not counted, and folded messages have no projection.
    let mut copied = ProjectionBuilder::new(6);
    copied.add(&messages[4..], 0);
    let copied = copied.end();
    assert_eq!(ranges(&copied), [(7, 8), (9, 12), (13, 16)]);
    assert_eq!(copied[1].left.asked, "[#9] question 3");
}

#[test]
fn a_window_has_projections_only_where_they_fit() {
    let all = said(6);
    let held = |from: usize| {
        let messages = all[from..].iter().map(|it| Message::clone(it)).collect();
        Window::new(messages, 25).expect("contiguous")
    };
    let projected = Projected::of(rows(&all), 1, &context(2, None));
    assert_eq!(projected.shown.len(), 4);
    for wrong in [12, 15, 17] {
        assert!(held(wrong).projected(projected.clone()).is_err(), "{wrong}");
    }
    let before = held(16).weight();
    let mut window = held(16).projected(projected.clone()).expect("it fits");
    assert_eq!((window.from_seq(), window.next_seq()), (1, 25));
    assert_eq!(window.projections(1).len(), 4);
    assert_eq!(window.projections(9).len(), 2);
    assert!(window.cuts(6) && !window.cuts(5) && !window.cuts(17));
    assert_eq!(window.projected_to(), 24);
    assert!(window.weight() > before);
    window.trim(9);
    assert_eq!(window.from_seq(), 9);
    window.trim(17);
    assert_eq!((window.from_seq(), window.weight()), (17, before));
    let mut window = held(16).projected(projected).expect("it fits");
    window.replace(held(0));
    assert_eq!(
        (window.projections(1).len(), window.active(1).len()),
        (0, 24)
    );
    assert_eq!(
        (window.projected_to(), window.weight()),
        (24, held(0).weight())
    );
}

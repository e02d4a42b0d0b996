use uuid::Uuid;

use super::*;

fn id() -> ResponseId {
    ResponseId::new(SendId(Uuid::nil()), 0)
}

fn piece(text: &str) -> Heard {
    Heard::Piece(Piece {
        kind: Kind::Text,
        round: 0,
        text: text.to_owned(),
    })
}

fn said(calls: Vec<Called>) -> Heard {
    Heard::Said { round: 0, calls }
}

fn tell(encoder: &mut Encoder, all: &[Heard]) -> Vec<Told> {
    all.iter().flat_map(|heard| encoder.tell(heard)).collect()
}

fn kinds(told: &[Told]) -> Vec<&'static str> {
    told.iter()
        .map(|told| told.kind.trim_start_matches("response."))
        .collect()
}

fn numbers(told: &[Told]) -> Vec<u64> {
    told.iter()
        .map(|told| told.body["sequence_number"].as_u64().expect("a number"))
        .collect()
}

const WHOLE: [&str; 6] = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
];

#[test]
fn an_answer_has_the_events_that_clients_check() {
    let mut encoder = Encoder::new(id(), None);
    let told = tell(&mut encoder, &[piece("all"), said(Vec::new())]);
    assert_eq!(kinds(&told), WHOLE);
    assert!(numbers(&told).is_sorted_by(|a, b| a < b), "{told:?}");
    assert_eq!(encoder.output().len(), 1);
    assert_eq!(encoder.output()[0]["content"][0]["text"], "all");
    assert_eq!(told[0].body["item"]["id"], told[5].body["item"]["id"]);
}

#[test]
fn a_reader_gets_the_rest_from_the_middle_of_a_text() {
    let live = [piece("äb"), piece("cd"), piece("ef"), said(Vec::new())];
    let all = tell(&mut Encoder::new(id(), None), &live);
    // Stored, the text comes in one piece.
    let stored = [piece("äbcdef"), said(Vec::new())];
    for (place, number) in numbers(&all).into_iter().enumerate() {
        let rest = tell(&mut Encoder::new(id(), Some(number)), &stored);
        let heard = all[..=place].iter().chain(&rest);
        let heard: String = heard
            .filter_map(|told| told.body["delta"].as_str())
            .collect();
        assert_eq!(heard, "äbcdef", "after {place}");
        assert!(numbers(&rest).iter().all(|later| *later > number));
    }
}

#[test]
fn void_text_is_closed_as_incomplete_and_said_again_as_another_item() {
    let mut encoder = Encoder::new(id(), None);
    let told = tell(
        &mut encoder,
        &[piece("ab"), Heard::Void, piece("xyz"), said(Vec::new())],
    );
    assert_eq!(kinds(&told), [WHOLE, WHOLE].concat());
    assert!(numbers(&told).is_sorted_by(|a, b| a < b), "{told:?}");
    let done: Vec<_> = told
        .iter()
        .filter(|told| told.kind == "response.output_item.done")
        .collect();
    assert_eq!(
        (
            &done[0].body["item"]["status"],
            &done[0].body["output_index"]
        ),
        (&json!("incomplete"), &json!(0))
    );
    assert_eq!(
        (
            &done[1].body["item"]["status"],
            &done[1].body["output_index"]
        ),
        (&json!("completed"), &json!(1))
    );
    assert_ne!(done[0].body["item"]["id"], done[1].body["item"]["id"]);
    let output = encoder.output();
    assert_eq!(output.len(), 1);
    assert_eq!(output[0]["content"][0]["text"], "xyz");
}

#[test]
fn a_reader_of_a_later_attempt_continues_in_it() {
    let live = [piece("ab"), Heard::Void, piece("xy")];
    let seen = tell(&mut Encoder::new(id(), None), &live);
    let last = *numbers(&seen).last().expect("events");
    // The next scheduler knows only what is stored.
    let rest = tell(
        &mut Encoder::new(id(), Some(last)),
        &[piece("xyz"), said(Vec::new())],
    );
    assert_eq!(kinds(&rest), WHOLE[2..]);
    assert_eq!(rest[0].body["delta"], "z");
    let (before, after) = (&seen.last().expect("events").body, &rest[0].body);
    assert_eq!(before["output_index"], after["output_index"]);
    assert_eq!(before["item_id"], after["item_id"]);
}

/// What a reader makes of events that it got from several schedulers: the texts of the items, by their places, with
/// their ends.
fn made(told: &[Told]) -> Vec<(String, Option<&str>)> {
    let mut items: Vec<(String, Option<&str>)> = Vec::new();
    for told in told {
        let index = told.body["output_index"].as_u64().expect("a place") as usize;
        match kinds(std::slice::from_ref(told))[0] {
            "output_item.added" => {
                assert_eq!(index, items.len(), "{told:?}");
                items.push((String::new(), None));
            }
            "output_text.delta" => {
                let delta = told.body["delta"].as_str().expect("a text");
                items[index].0.push_str(delta);
            }
            "output_item.done" => items[index].1 = told.body["item"]["status"].as_str(),
            _ => {}
        }
    }
    items
}

#[test]
fn a_reader_that_has_another_text_is_told_that_it_is_void() {
    let live = [piece("ab"), piece("cd"), piece("ef")];
    let all = tell(&mut Encoder::new(id(), None), &live);
    for (place, number) in numbers(&all).into_iter().enumerate() {
        let known: String = all[..=place]
            .iter()
            .filter_map(|told| told.body["delta"].as_str())
            .collect();
        // It is said again while nobody reads: on the whole with other words, the same ones, or fewer.
        for text in ["xyzxyzxyz", "abxy", "abcdefgh", "a", "abcd"] {
            let again = [
                vec![piece(text), said(Vec::new())],
                text.chars()
                    .map(|c| piece(&c.to_string()))
                    .chain([said(Vec::new())])
                    .collect(),
            ];
            for heard in again {
                let mut encoder = Encoder::new(id(), Some(number));
                let rest = tell(&mut encoder, &heard);
                assert!(numbers(&rest).iter().all(|later| *later > number));
                assert!(numbers(&rest).is_sorted_by(|a, b| a < b), "{rest:?}");
                let both: Vec<Told> = all[..=place].iter().chain(&rest).cloned().collect();
                let made = made(&both);
                let (last, void) = made.split_last().expect("an item");
                assert_eq!(
                    *last,
                    (text.to_owned(), Some("completed")),
                    "{known} {heard:?}"
                );
                assert!(void.iter().all(|(_, end)| *end == Some("incomplete")));
                assert_eq!(void.is_empty(), text.starts_with(&known), "{known} {text}");
                assert_eq!(encoder.output().len(), 1);
                // And once more, from each of these events on.
                for (next, number) in numbers(&rest).into_iter().enumerate() {
                    let stored = [piece(text), said(Vec::new())];
                    let end = tell(&mut Encoder::new(id(), Some(number)), &stored);
                    let parts = [&all[..=place], &rest[..=next], &end[..]].concat();
                    let made = self::made(&parts);
                    let last = made.last().cloned().expect("an item");
                    assert_eq!(
                        last,
                        (text.to_owned(), Some("completed")),
                        "{number} {end:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn calls_come_behind_the_text() {
    let call = |n: u32| Called {
        id: format!("call_{n}"),
        name: "f".into(),
        arguments: "{}".into(),
    };
    let mut encoder = Encoder::new(id(), None);
    let told = tell(&mut encoder, &[piece("go"), said(vec![call(0), call(1)])]);
    let one = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ];
    assert_eq!(kinds(&told)[6..], [one, one].concat());
    assert!(numbers(&told).is_sorted_by(|a, b| a < b), "{told:?}");
    let indexes: Vec<_> = encoder
        .output()
        .iter()
        .map(|item| item["type"].clone())
        .collect();
    assert_eq!(indexes, ["message", "function_call", "function_call"]);
}

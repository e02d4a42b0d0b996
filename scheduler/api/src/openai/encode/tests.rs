use uuid::Uuid;

use super::*;

fn id() -> ResponseId {
    ResponseId::new(SendId(Uuid::nil()), 0)
}

fn piece(attempt: i32, from: usize, text: &str) -> Heard {
    Heard::Piece(Piece {
        kind: Kind::Text,
        round: 0,
        attempt,
        from,
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
    let told = tell(&mut encoder, &[piece(1, 0, "all"), said(Vec::new())]);
    assert_eq!(kinds(&told), WHOLE);
    assert!(numbers(&told).is_sorted_by(|a, b| a < b), "{told:?}");
    assert_eq!(encoder.output().len(), 1);
    assert_eq!(encoder.output()[0]["content"][0]["text"], "all");
    assert_eq!(told[0].body["item"]["id"], told[5].body["item"]["id"]);
}

#[test]
fn a_reader_gets_the_rest_from_the_middle_of_a_text() {
    let live = [
        piece(1, 0, "äb"),
        piece(1, 2, "cd"),
        piece(1, 4, "ef"),
        said(Vec::new()),
    ];
    let all = tell(&mut Encoder::new(id(), None), &live);
    // Stored, the text comes in one piece.
    let stored = [piece(1, 0, "äbcdef"), said(Vec::new())];
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
        &[
            piece(1, 0, "ab"),
            Heard::Void,
            piece(2, 0, "xyz"),
            said(Vec::new()),
        ],
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
    let live = [piece(1, 0, "ab"), Heard::Void, piece(2, 0, "xy")];
    let seen = tell(&mut Encoder::new(id(), None), &live);
    let last = *numbers(&seen).last().expect("events");
    // The next scheduler knows only what is stored.
    let rest = tell(
        &mut Encoder::new(id(), Some(last)),
        &[piece(1, 0, "xyz"), said(Vec::new())],
    );
    assert_eq!(kinds(&rest), WHOLE[2..]);
    assert_eq!(rest[0].body["delta"], "z");
}

#[test]
fn calls_come_behind_the_text() {
    let call = |n: u32| Called {
        id: format!("call_{n}"),
        name: "f".into(),
        arguments: "{}".into(),
    };
    let mut encoder = Encoder::new(id(), None);
    let told = tell(
        &mut encoder,
        &[piece(1, 0, "go"), said(vec![call(0), call(1)])],
    );
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

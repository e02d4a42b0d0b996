use serde_json::json;
use uuid::Uuid;

use super::*;

fn message(role: Role, send: u128) -> Message {
    let new = NewMessage {
        role,
        ..NewMessage::user(vec![ContentPart::text("words")], 0)
    };
    new.at(70, SendId(Uuid::from_u128(send)), Timestamp(5), 9)
}

fn asking(send: u128, calls: &[&str]) -> Message {
    let calls = calls.iter().map(|id| ToolCall::new(*id, "look", json!({})));
    Message {
        tool_calls: calls.collect(),
        ..message(Role::Assistant, send)
    }
}

fn answer(send: u128, call: &str) -> Message {
    Message {
        tool_call_id: Some(call.to_owned()),
        ..message(Role::Tool, send)
    }
}

#[test]
fn copies_are_numbered_anew_and_know_who_asked() {
    let given = vec![
        message(Role::User, 1),
        asking(1, &["a", "b"]),
        answer(1, "a"),
        answer(1, "b"),
        message(Role::Assistant, 1),
        message(Role::User, 2),
        asking(2, &["c"]),
        answer(2, "c"),
    ];
    let made = copies(given.clone());
    let seqs: Vec<i64> = made.iter().map(|message| message.seq).collect();
    assert_eq!(seqs, (1..=8).collect::<Vec<_>>());
    let asked: Vec<_> = made.iter().map(|message| message.asked_at_seq).collect();
    let expected = [None, None, Some(2), Some(2), None, None, None, Some(7)];
    assert_eq!(asked, expected);
    for (copy, given) in made.iter().zip(&given) {
        let back = Message {
            seq: given.seq,
            epoch: given.epoch,
            asked_at_seq: given.asked_at_seq,
            ..copy.clone()
        };
        assert_eq!((&back, copy.epoch), (given, 0));
    }
}

#[test]
fn a_transcript_is_settled_up_to_the_first_open_call() {
    let whole = [
        message(Role::User, 1),
        asking(1, &["a", "b"]),
        answer(1, "a"),
        answer(1, "b"),
        message(Role::Assistant, 1),
    ];
    let settled: Vec<_> = (0..=5).map(|len| settled_len(&whole[..len])).collect();
    assert_eq!(settled, [0, 1, 1, 1, 4, 5]);
    let swapped = [asking(1, &["a", "b"]), answer(1, "b"), answer(1, "a")];
    assert_eq!(settled_len(&swapped), 0);
    let foreign = [asking(1, &["a"]), answer(2, "a")];
    assert_eq!(settled_len(&foreign), 0);
}

#[test]
fn an_answer_is_read_in_the_order_in_which_it_was_given() {
    let content = [ContentPart::text("a"), ContentPart::text("b")];
    let call = |id: &str, after| ToolCall {
        after,
        ..ToolCall::new(id, "look", json!({}))
    };
    let calls = [
        call("last", None),
        call("second", Some(1)),
        call("first", Some(0)),
        call("third", Some(1)),
        call("beyond", Some(9)),
    ];
    let order = pieces(&content, &calls).map(|piece| match piece {
        Piece::Part(part) => plain_text(std::slice::from_ref(part)),
        Piece::Call(call) => call.id.clone(),
    });
    let order: Vec<_> = order.collect();
    assert_eq!(
        order,
        ["first", "a", "second", "third", "b", "last", "beyond"]
    );
}

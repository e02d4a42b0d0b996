use serde_json::json;

use super::*;

fn entry(begun: u64, ended: u64, op: Op, told: Told) -> Entry {
    Entry {
        client: 0,
        begun,
        ended,
        op,
        told,
    }
}

fn ask(key: &str) -> Op {
    Op::Send {
        key: key.into(),
        session: "s".into(),
        in_order: true,
    }
}

fn read(send: &str) -> Op {
    Op::Read { send: send.into() }
}

fn transcript() -> Op {
    Op::Transcript {
        session: "s".into(),
    }
}

fn post(text: &str) -> Op {
    Op::Post {
        call: "call_1".into(),
        text: text.into(),
    }
}

fn queued(id: &str, place: i64) -> Value {
    json!({ "id": id, "session_id": "s", "status": "queued", "position": place, "rounds": 0,
            "output_text": null })
}

fn done(id: &str, place: i64, text: &str) -> Value {
    json!({ "id": id, "session_id": "s", "status": "completed", "position": place, "rounds": 1,
            "output_text": text })
}

fn message(seq: i64, send: &str, role: &str, text: &str) -> Value {
    json!({ "seq": seq, "send_id": send, "role": role, "round": 0,
            "content": [{ "type": "text", "text": text }] })
}

fn said() -> Vec<Value> {
    vec![
        message(1, "a", "user", "one"),
        message(2, "a", "assistant", "echo one"),
        message(3, "b", "user", "two"),
        message(4, "b", "assistant", "echo two"),
    ]
}

fn event(id: Option<&str>, name: &str, data: Value) -> Seen {
    Seen {
        id: id.map(str::to_owned),
        name: name.into(),
        data,
    }
}

fn delta(attempt: i64, offset: u64, text: &str) -> Seen {
    let data = json!({ "send_id": "a", "round": 0, "attempt": attempt, "offset": offset,
                       "text": text });
    event(None, "message.delta", data)
}

fn reading() -> Reading {
    let said = said();
    Reading {
        session: "s".into(),
        events: vec![
            event(Some("1.0"), "send.queued", json!({ "id": "a" })),
            delta(1, 0, "ec"),
            delta(2, 0, "echo "),
            delta(2, 5, "one"),
            event(Some("2.0"), "message.completed", said[0].clone()),
            event(Some("2.1"), "message.completed", said[1].clone()),
            event(Some("2.2"), "send.completed", done("a", 0, "echo one")),
            event(Some("3.0"), "send.queued", json!({ "id": "b" })),
            event(Some("4.0"), "message.completed", said[2].clone()),
            event(Some("4.1"), "message.completed", said[3].clone()),
            event(Some("4.2"), "send.completed", done("b", 1, "echo two")),
        ],
        whole: true,
    }
}

/// Two sends in sequence, an answer that was lost, a steering message, and readers.
fn sound() -> History {
    let yes = Told::Yes;
    let entries = vec![
        entry(1, 2, ask("k1"), Told::Unknown),
        entry(3, 4, ask("k1"), yes(queued("a", 0))),
        entry(5, 6, ask("k2"), yes(queued("b", 1))),
        entry(7, 8, read("a"), yes(done("a", 0, "echo one"))),
        entry(9, 10, transcript(), yes(json!(said()[..2]))),
        entry(11, 12, post("yes"), yes(json!("accepted"))),
        entry(13, 14, post("no"), yes(json!("already_settled"))),
        entry(
            15,
            16,
            ask("k3"),
            yes({
                let mut send = queued("b", 1);
                send["status"] = json!("running");
                send["inbox_item"] = json!({ "id": "itm" });
                send
            }),
        ),
        entry(17, 18, read("b"), yes(done("b", 1, "echo two"))),
        entry(19, 20, read("a"), yes(done("a", 0, "echo one"))),
        entry(21, 22, transcript(), yes(json!(said()))),
    ];
    History {
        entries,
        readings: vec![reading(), reading()],
    }
}

/// Fails unless the planted violation is found.
fn caught(history: &History, words: &str) {
    let found = violations(history);
    assert!(
        found.iter().any(|violation| violation.contains(words)),
        "{words:?} is not among {found:#?}"
    );
}

#[test]
fn a_sound_history_has_no_violations() {
    assert_eq!(violations(&sound()), Vec::<String>::new());
}

#[test]
fn one_key_with_two_sends_is_found() {
    let mut history = sound();
    history.entries[1].told = Told::Yes(queued("c", 2));
    history.entries[0].told = Told::Yes(queued("a", 0));
    caught(&history, "k1 was given several sends");
}

#[test]
fn one_send_for_two_keys_is_found() {
    let mut history = sound();
    history.entries[2].told = Told::Yes(queued("a", 0));
    caught(&history, "were given one send");
}

#[test]
fn what_was_refused_and_accepted_is_found() {
    let mut history = sound();
    history.entries[0].told = Told::No("session.busy".into());
    caught(&history, "was refused for good and accepted");
}

#[test]
fn an_end_that_changes_is_found() {
    let mut history = sound();
    history.entries[9].told = Told::Yes(done("a", 0, "something else"));
    caught(&history, "was final and changed its output_text");
}

#[test]
fn a_final_send_that_runs_again_is_found() {
    let mut history = sound();
    let mut send = queued("a", 0);
    send["status"] = json!("running");
    history.entries[9].told = Told::Yes(send);
    caught(&history, "was final and changed its");
}

#[test]
fn a_send_that_is_queued_again_is_found() {
    let mut history = sound();
    history.entries[8].told = Told::Yes(queued("b", 1));
    caught(&history, "is queued again");
}

#[test]
fn rounds_that_are_lost_are_found() {
    let mut history = sound();
    history.entries[7].told = Told::Yes(json!({ "id": "b", "session_id": "s", "status": "running",
        "position": 1, "rounds": 3, "inbox_item": null }));
    caught(&history, "has lost rounds");
}

#[test]
fn a_send_that_moves_is_found() {
    let mut history = sound();
    history.entries[8].told = Told::Yes(done("b", 7, "echo two"));
    caught(&history, "has moved");
    let mut history = sound();
    let mut send = done("b", 1, "echo two");
    send["session_id"] = json!("t");
    history.entries[8].told = Told::Yes(send);
    caught(&history, "is in several sessions");
}

#[test]
fn an_acknowledged_send_that_cannot_be_read_is_found() {
    let mut history = sound();
    history.entries[3].told = Told::No("send.not_found".into());
    caught(&history, "was acknowledged and cannot be read");
    // A read that began before the acknowledgement may miss it.
    history.entries[3].begun = 3;
    let found = violations(&history);
    assert!(
        !found.iter().any(|one| one.contains("cannot be read")),
        "{found:#?}"
    );
}

#[test]
fn a_send_that_overtakes_is_found() {
    let mut history = sound();
    for (at, place) in [(1, 5), (3, 5), (9, 5)] {
        if let Told::Yes(send) = &mut history.entries[at].told {
            send["position"] = json!(place);
        }
    }
    caught(&history, "was asked for after a at 5");
}

#[test]
fn a_transcript_that_shrinks_or_changes_is_found() {
    let mut history = sound();
    history.entries[10].told = Told::Yes(json!(said()[..1]));
    caught(&history, "had 2 messages and has 1");
    let mut history = sound();
    let mut changed = said();
    changed[0] = message(1, "a", "user", "another word");
    history.entries[10].told = Told::Yes(json!(changed));
    caught(&history, "another word");
    let mut history = sound();
    let mut gap = said();
    gap[3]["seq"] = json!(5);
    history.entries[10].told = Told::Yes(json!(gap));
    caught(&history, "5 stands at 4");
}

#[test]
fn an_end_without_its_words_is_found() {
    let mut history = sound();
    history.entries[10].told = Told::Yes(json!(said()[..3]));
    caught(
        &history,
        "b answered \"echo two\", its transcript ends with None",
    );
}

#[test]
fn two_answers_to_one_call_are_found() {
    let mut history = sound();
    history.entries[6].told = Told::Yes(json!("accepted"));
    caught(&history, "took two answers");
}

#[test]
fn an_answer_that_the_model_was_not_told_is_found() {
    let mut history = sound();
    let mut told = message(3, "b", "tool", "no");
    told["tool_call_id"] = json!("call_1");
    let mut messages = said();
    messages[2] = told;
    history.entries[10].told = Told::Yes(json!(messages));
    caught(&history, "the model was told \"no\"");
}

#[test]
fn a_stream_with_a_gap_or_a_repeat_is_found() {
    let mut history = sound();
    history.readings[0].events.remove(4);
    caught(&history, "saw 2.1 (message.completed) after (1, 1)");
    let mut history = sound();
    history.readings[0].events.remove(0);
    caught(&history, "saw 1.0, another did not");
    let mut history = sound();
    let again = history.readings[0].events[7].clone();
    history.readings[0].events.insert(7, again);
    caught(&history, "saw 3.0 (send.queued) after (3, 1)");
    let mut history = sound();
    history.readings[0].events.truncate(8);
    caught(&history, "saw 4.0, another did not");
}

#[test]
fn a_step_that_changes_under_its_number_is_found() {
    let mut history = sound();
    history.readings[1].events[7].data = json!({ "id": "c" });
    caught(&history, "3.0 of s reads");
}

#[test]
fn two_ends_and_a_missing_end_are_found() {
    let mut history = sound();
    history.readings[0].events[10].data["id"] = json!("a");
    caught(&history, "saw two ends of a");
    caught(&history, "did not see b end");
}

#[test]
fn an_end_that_reads_otherwise_is_found() {
    let mut history = sound();
    history.readings[0].events[6].data["output_text"] = json!("lies");
    caught(&history, "a ended with output_text \"lies\"");
}

#[test]
fn text_that_streamed_and_was_not_said_is_found() {
    let mut history = sound();
    history.readings[0].events[3] = delta(2, 5, "two");
    caught(&history, "a streamed \"two\" at 5");
}

#[test]
fn a_stream_that_says_what_the_transcript_does_not_is_found() {
    let mut history = sound();
    for reading in &mut history.readings {
        reading.events[4].data = message(1, "a", "user", "lies");
    }
    caught(&history, "the transcript says");
    let mut history = sound();
    for reading in &mut history.readings {
        reading.events[8].data["seq"] = json!(9);
    }
    caught(&history, "brought message 9 after 2");
}

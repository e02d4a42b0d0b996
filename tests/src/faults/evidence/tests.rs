//! Tests that every kind of inconsistency is found.

use mainspring_shared::time::Timestamp;
use serde_json::{Value, json};

use super::super::fault_log::{Effect, Fault};
use super::{Ended, Evidence, Told, violations};
use crate::fake_model::{Entry, Protocol};

fn send(n: i64) -> Value {
    json!({
        "id": format!("snd_{n}"), "session_id": "ses", "status": "completed", "position": n,
        "rounds": 1, "usage": { "output_tokens": 3 }, "output_text": format!("echo: say {n}"),
    })
}

fn message(seq: i64, role: &str, n: i64, text: &str) -> Value {
    let send_id = format!("snd_{n}");
    json!({ "seq": seq, "role": role, "send_id": send_id, "content": [{ "type": "text", "text": text }] })
}

fn call(n: i64, at: i64) -> Entry {
    Entry {
        n: at.unsigned_abs(),
        at: Timestamp(at),
        protocol: Protocol::OpenAi,
        stream: true,
        model: "fake".into(),
        session: None,
        send: Some(format!("key{n}")),
        text: String::new(),
        round: 0,
        attempt: 1,
        messages: 1,
        body_sha256: String::new(),
        body: None,
        answer: "reply".into(),
        status: 200,
        billed: None,
        ended_at: None,
        end: None,
    }
}

fn fault(effect: Effect, from: i64, to: i64) -> Fault {
    Fault {
        what: "a test",
        effect,
        from: Timestamp(from),
        to: Some(Timestamp(to)),
    }
}

/// Two sends of one client, at 10 s and at 20 s, each answered a second later.
fn truth() -> Evidence {
    let mut truth = Evidence {
        sends: 2,
        ..Evidence::default()
    };
    let mut messages = Vec::new();
    for n in 1..=2 {
        let words = format!("say {n}");
        truth.told.push(Told {
            client: 0,
            key: format!("key{n}"),
            session: "ses".into(),
            text: words.clone(),
            calls_tool: false,
            ids: vec![format!("snd_{n}"); 2],
            ended: Some(Ended {
                at: Timestamp(n * 10_000 + 1_000),
                send: send(n),
            }),
        });
        truth.read_again.insert(format!("snd_{n}"), send(n));
        truth.calls.push(call(n, n * 10_000));
        messages.push(message(n * 2 - 1, "user", n, &words));
        messages.push(message(n * 2, "assistant", n, &format!("echo: {words}")));
    }
    truth.transcripts.insert("ses".into(), messages);
    truth.sessions.insert("ses".into());
    truth.queued.insert("ses".into());
    truth.steps.insert("ses".into(), 3);
    truth
        .watched
        .insert("ses".into(), vec![(1, 0), (2, 0), (2, 1), (3, 0)]);
    truth
}

/// The single violation that a planted inconsistency leads to.
fn found(lie: impl FnOnce(&mut Evidence)) -> String {
    let mut evidence = truth();
    lie(&mut evidence);
    let found = violations(&evidence);
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0].clone()
}

#[test]
fn a_step_without_events_is_no_gap_and_no_excuse_for_another() {
    let mut evidence = truth();
    evidence.silent.insert(("ses".into(), 3));
    evidence.steps.insert("ses".into(), 4);
    let seen = vec![(1, 0), (2, 0), (2, 1), (4, 0)];
    evidence.watched.insert("ses".into(), seen);
    assert_eq!(violations(&evidence), Vec::<String>::new());
    evidence.silent.clear();
    assert_eq!(violations(&evidence).len(), 1);
}

#[test]
fn the_truth_has_no_violation() {
    assert_eq!(violations(&truth()), Vec::<String>::new());
}

#[test]
fn a_key_with_two_ids_is_found() {
    assert!(found(|e| e.told[0].ids.push("snd_9".into())).contains("several ids"));
}

#[test]
fn a_send_that_nobody_was_told_of_is_found() {
    assert!(found(|e| e.sends = 3).contains("3 sends are stored"));
}

#[test]
fn a_job_for_a_session_that_is_not_stored_is_found() {
    let strange = |e: &mut Evidence| e.queued = ["ses_9".to_owned()].into();
    assert!(found(strange).contains("the queue names ses_9"));
}

#[test]
fn an_end_that_changed_is_found() {
    let changed = |e: &mut Evidence| {
        if let Some(send) = e.read_again.get_mut("snd_1") {
            send["attempts"] = json!(2);
        }
    };
    assert!(found(changed).contains("key1 changed"));
}

#[test]
fn a_wrong_answer_and_a_failure_are_found() {
    for (member, value) in [
        ("output_text", json!("echo: else")),
        ("status", json!("failed")),
    ] {
        let wrong = |e: &mut Evidence| {
            let ended = e.told[0].ended.as_mut().expect("it ended");
            ended.send[member] = value;
            e.read_again.insert("snd_1".into(), ended.send.clone());
        };
        assert!(found(wrong).contains("wrong end"));
    }
}

#[test]
fn a_gap_in_seq_is_found() {
    let gap = |e: &mut Evidence| e.transcripts.get_mut("ses").expect("it")[3]["seq"] = json!(5);
    assert!(found(gap).contains("5 stands at 4"));
}

#[test]
fn a_message_that_is_missing_is_found() {
    let cut = |e: &mut Evidence| drop(e.transcripts.get_mut("ses").expect("it").pop());
    assert!(found(cut).contains("3 messages of 4"));
}

#[test]
fn a_message_that_was_written_twice_is_found() {
    let twice = |e: &mut Evidence| {
        let messages = e.transcripts.get_mut("ses").expect("it");
        messages.push(message(5, "assistant", 2, "echo: say 2"));
    };
    assert!(found(twice).contains("None expected"));
}

#[test]
fn a_send_that_overtook_another_of_its_client_is_found() {
    let mut evidence = truth();
    evidence.told.swap(0, 1);
    let found = violations(&evidence);
    assert!(
        found.iter().any(|text| text.contains("overtook")),
        "{found:?}"
    );
}

#[test]
fn an_event_that_a_reader_missed_or_saw_twice_is_found() {
    for seen in [
        vec![(1, 0), (2, 1), (3, 0)],
        vec![(1, 0), (2, 0), (2, 0), (3, 0)],
        vec![(1, 0), (3, 0)],
        vec![(2, 0), (3, 0)],
        vec![(1, 0), (2, 0)],
    ] {
        let text = found(|e| drop(e.watched.insert("ses".into(), seen)));
        assert!(text.contains("the reader of ses"), "{text}");
    }
}

#[test]
fn an_answer_without_a_call_is_found() {
    assert!(found(|e| drop(e.calls.remove(0))).contains("past the model"));
}

#[test]
fn a_call_that_nobody_sent_is_found() {
    assert!(found(|e| e.calls.push(call(7, 1))).contains("nobody sent"));
}

#[test]
fn a_round_too_few_and_a_round_too_many_are_found() {
    let more = |e: &mut Evidence| {
        e.calls[1].round = 1;
        e.calls.push(call(2, 20_000));
    };
    assert!(found(more).contains("a round too many"));
    let mut evidence = truth();
    evidence.told[1].calls_tool = true;
    let found = violations(&evidence);
    for lie in ["wrong end", "usage of its rounds", "expected", "in round 1"] {
        assert!(
            found.iter().any(|text| text.contains(lie)),
            "{lie}: {found:#?}"
        );
    }
}

#[test]
fn a_repeated_call_needs_a_fault_between() {
    let again = |e: &mut Evidence| e.calls.insert(1, call(1, 10_900));
    assert!(found(again).contains("without reason"));
    for (effect, from, to, excused) in [
        (Effect::Repeats, 10_300, 10_310, true),
        (Effect::None, 10_300, 10_310, false),
        (Effect::Repeats, 9_000, 9_400, false),
        (Effect::Repeats, 10_950, 11_000, false),
        (Effect::Sleeps, 10_300, 10_310, true),
    ] {
        let mut evidence = truth();
        again(&mut evidence);
        evidence.faults.push(fault(effect, from, to));
        let found = violations(&evidence);
        assert_eq!(found.is_empty(), excused, "{effect:?} {from} {found:?}");
    }
}

#[test]
fn a_call_that_failed_is_repeated_without_a_fault() {
    let mut evidence = truth();
    evidence.calls.insert(1, call(1, 10_900));
    evidence.calls[0].answer = "fail".into();
    assert_eq!(violations(&evidence), Vec::<String>::new());
}

#[test]
fn one_fault_excuses_one_repeated_call_of_a_send() {
    let thrice = |e: &mut Evidence| {
        e.calls.insert(1, call(1, 10_800));
        e.calls.insert(2, call(1, 10_900));
        e.faults.push(fault(Effect::Repeats, 10_300, 10_310));
    };
    assert!(found(thrice).contains("without reason again"));
}

#[test]
fn what_excuses_one_send_excuses_no_other() {
    let both_again = |e: &mut Evidence| {
        e.calls.insert(1, call(1, 10_900));
        e.calls.insert(3, call(2, 20_900));
    };
    let mut evidence = truth();
    both_again(&mut evidence);
    evidence.faults.push(fault(Effect::One, 10_300, 20_500));
    let found = violations(&evidence);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("key2 was asked"), "{found:?}");
    evidence.faults.push(fault(Effect::One, 20_300, 20_500));
    assert_eq!(violations(&evidence), Vec::<String>::new());
}

#[test]
fn a_call_after_the_end_needs_a_sleeper() {
    let late = |e: &mut Evidence| {
        e.calls.insert(1, call(1, 12_000));
        e.faults.push(fault(Effect::Repeats, 10_300, 10_310));
    };
    assert!(found(late).contains("ended at"));
    let mut evidence = truth();
    late(&mut evidence);
    evidence.faults[0] = fault(Effect::Sleeps, 10_300, 11_900);
    assert_eq!(violations(&evidence), Vec::<String>::new());
}

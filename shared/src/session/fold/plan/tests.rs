use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::message::{ContentPart, NewMessage, ToolCall};
use crate::model::expect_message_tokens;
use crate::session::fold::{FoldKind, NewFold};
use crate::time::Timestamp;

const RUNNING: SendId = SendId(Uuid::from_u128(99));

/// Sends, given by the calls of their rounds; each ends with an answer, except that the last may be
/// running.
fn transcript(sends: &[Vec<u32>], runs: bool) -> Vec<Arc<Message>> {
    let mut messages: Vec<Arc<Message>> = Vec::new();
    for (n, rounds) in sends.iter().enumerate() {
        let is_last = runs && n + 1 == sends.len();
        let send = if is_last {
            RUNNING
        } else {
            SendId(Uuid::from_u128(n as u128 + 1))
        };
        let mut push = |role, calls: u32, asked_back| {
            let seq = messages.len() as i64 + 1;
            let call =
                |place| ToolCall::new(format!("{seq}_{place}"), "look", serde_json::json!({}));
            let new = NewMessage {
                role,
                tool_calls: (0..calls).map(call).collect(),
                asked_back,
                ..NewMessage::user(vec![ContentPart::text("ten")], 0)
            };
            messages.push(Arc::new(new.at(seq, send, Timestamp(0), 1)));
        };
        push(Role::User, 0, None);
        for calls in rounds {
            push(Role::Assistant, *calls, None);
            for back in 1..=*calls {
                push(Role::Tool, 0, Some(back));
            }
        }
        if !is_last {
            push(Role::Assistant, 0, None);
        }
    }
    messages
}

fn room(budget: u64) -> Room {
    Room {
        budget,
        soft: budget * 60 / 100,
        hard: budget * 85 / 100,
        target: budget * 40 / 100,
    }
}

fn chosen(
    messages: &[Arc<Message>],
    folds: &[Arc<Fold>],
    (tokens, budget): (u64, u64),
    pressure: Pressure,
) -> Option<Span> {
    let window = Window {
        folds,
        messages,
        running: RUNNING,
        keep_sends: 4,
    };
    choose(window, tokens, room(budget), pressure, |_| 10)
}

#[test]
fn the_room_is_the_window_without_the_answer_and_a_reserve() {
    let room = Room::new(100_000, 8_000, &FoldSpec::default());
    assert_eq!(room.budget, 88_000);
    assert_eq!(
        (room.soft, room.hard, room.target),
        (52_800, 74_800, 35_200)
    );
    // In a small window the answer gets at most half, and the reserve a quarter.
    assert_eq!(Room::new(4_000, 8_000, &FoldSpec::default()).budget, 1_000);
    let early = FoldSpec {
        soft: Some(0.3),
        ..FoldSpec::default()
    };
    assert_eq!(Room::new(100_000, 8_000, &early).target, 17_600);
}

#[test]
fn whole_sends_go_until_the_target_is_reached_and_the_newest_stay() {
    // Ten sends of two messages, and the running one.
    let sends = vec![vec![]; 11];
    let messages = transcript(&sends, true);
    let span = chosen(&messages, &[], (210, 300), Pressure::Soft).expect("something goes");
    // 90 tokens above the target of 120: five sends are 100.
    assert_eq!(
        (span.from_seq, span.to_seq, span.level, span.tokens),
        (1, 10, 0, 100)
    );
    // At most six of ten may be folded, whatever the target.
    let span = chosen(&messages, &[], (210, 120), Pressure::Soft).expect("something goes");
    assert_eq!(span.to_seq, 12);
}

#[test]
fn a_fold_beside_is_made_only_where_it_is_worth_it() {
    let messages = transcript(&vec![vec![]; 6], true);
    // One send of 20 tokens may be folded, which is little of 10 000 and much of 100.
    assert_eq!(
        chosen(&messages, &[], (9_000, 10_000), Pressure::Soft),
        None
    );
    assert!(chosen(&messages, &[], (110, 100), Pressure::Soft).is_some());
    assert_eq!(
        chosen(
            &transcript(&vec![vec![]; 5], true),
            &[],
            (90, 100),
            Pressure::Soft
        ),
        None
    );
}

#[test]
fn before_the_model_is_asked_fewer_sends_stay_and_then_fewer_rounds() {
    let messages = transcript(&vec![vec![]; 4], true);
    // Three ended sends of 20 tokens each: none may be folded under soft pressure, all but the last
    // under hard pressure.
    assert_eq!(chosen(&messages, &[], (100, 100), Pressure::Soft), None);
    let span = chosen(&messages, &[], (100, 100), Pressure::Hard).expect("something goes");
    assert_eq!(span.to_seq, 4);
    // A long send: its input, five rounds with a call each, and the round in progress.
    let messages = transcript(&[vec![], vec![1; 6]], true);
    let span = chosen(&messages, &[], (130, 100), Pressure::Hard).expect("something goes");
    // The ended send and four rounds are the 90 tokens above the target; the input stays visible.
    assert_eq!(span.to_seq, 11);
    let span = chosen(&messages, &[], (130, 100), Pressure::Harder).expect("something goes");
    assert_eq!(span.to_seq, 13);
}

#[test]
fn earlier_folds_are_folded_again_with_what_follows() {
    let messages = transcript(&vec![vec![]; 11], true);
    let fold = NewFold {
        from_seq: -8,
        to_seq: 0,
        level: 1,
        kind: FoldKind::Summary,
        text: "before".to_owned(),
        model: None,
        tokens_before: 70,
        tokens_after: 7,
    };
    let fold = Arc::new(fold.at(3, RUNNING, Timestamp(0)));
    let span = chosen(
        &messages,
        std::slice::from_ref(&fold),
        (217, 300),
        Pressure::Soft,
    );
    let span = span.expect("something goes");
    assert_eq!((span.from_seq, span.to_seq, span.level), (-8, 10, 2));
    assert_eq!((span.folds, span.tokens), (vec![fold], 107));
}

#[test]
fn folds_are_shortened_until_they_are_short() {
    let fold = |from_seq, to_seq, tokens_after| {
        let new = NewFold {
            from_seq,
            to_seq,
            level: 1,
            kind: FoldKind::Summary,
            text: "before".to_owned(),
            model: None,
            tokens_before: 9_000,
            tokens_after,
        };
        Arc::new(new.at(to_seq, RUNNING, Timestamp(0)))
    };
    let folds = [fold(1, 20, 3_000), fold(21, 40, 500)];
    let span = shorten(&folds, 1_000).expect("they are long");
    assert_eq!((span.from_seq, span.to_seq, span.level), (1, 40, 2));
    assert_eq!((span.folds.len(), span.messages.len()), (2, 0));
    assert_eq!((span.tokens, span.digest_max), (3_500, 1_000));
    let half = shorten(&folds, 9_000).expect("they are long");
    assert_eq!(half.digest_max, 1_750, "each time they get shorter");
    let least = shorten(&folds, 0).expect("they are long").digest_max;
    assert!(least > 0);
    let short = fold(1, 40, i64::try_from(least).expect("small"));
    assert_eq!(shorten(&[short], 0), None);
    assert_eq!(shorten(&[], 0), None);
}

proptest! {
    #[test]
    fn a_span_never_parts_a_call_from_its_results(
        sends in proptest::collection::vec(proptest::collection::vec(1u32..4, 0..5), 1..9),
        runs in any::<bool>(),
        tokens in 1u64..500,
        budget in 1u64..500,
        pressure in prop_oneof![Just(Pressure::Soft), Just(Pressure::Hard), Just(Pressure::Harder)],
    ) {
        let messages = transcript(&sends, runs);
        let Some(span) = chosen(&messages, &[], (tokens, budget), pressure) else {
            return Ok(());
        };
        let behind = messages.iter().find(|message| message.seq == span.to_seq + 1);
        if let Some(behind) = behind {
            prop_assert!(behind.role != Role::Tool);
            if behind.send_id == RUNNING {
                // The last round of the running send stays.
                prop_assert!(messages.last().is_some_and(|last| last.seq > span.to_seq));
            }
        } else {
            prop_assert!(!runs, "all of the running send went");
        }
        if pressure == Pressure::Soft {
            let left = messages.iter().filter(|message| message.seq > span.to_seq);
            let mut kept: Vec<_> = left.map(|m| m.send_id).filter(|id| *id != RUNNING).collect();
            kept.dedup();
            prop_assert!(kept.len() >= 4);
        }
    }
}

/// A digest is placed at the end of its send, after the input; what lies between is not shown.
#[test]
fn messages_weigh_what_the_request_shows_of_them() {
    let all = transcript(&[vec![1], vec![1], vec![1, 1]], true);
    let digest = |at: usize, text: &str| {
        let content = vec![ContentPart::text(text)];
        Arc::new(Message {
            content,
            tool_calls: Vec::new(),
            ..Message::clone(&all[at])
        })
    };
    let recap = Arc::new(Message {
        send_id: SendId(Uuid::nil()),
        ..Message::clone(&all[1])
    });
    let long = "as long as three of them together";
    let mut messages = vec![recap, digest(0, "asked"), digest(3, long)];
    messages.extend_from_slice(&all[4..10]);
    let weights = Weights::of(&Request {
        messages,
        ..request()
    });
    let weigh = |at: usize| weights.weigh(&all[at]);
    let whole = |at: usize| expect_message_tokens(&all[at]);
    assert_eq!((weigh(1), weigh(2)), (0, 0));
    assert!(weigh(3) > whole(3), "{}", weigh(3));
    for at in 4..all.len() {
        assert_eq!(weigh(at), whole(at), "{at}");
    }
}

fn request() -> Request {
    Request {
        model: "m".into(),
        max_tokens: 100,
        ..Request::default()
    }
}

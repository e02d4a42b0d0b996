//! Storing rounds.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, ToolCall};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::step::{Step, StepKind, StepRefs};
use mainspring_shared::store::{
    AfterSend, AppendOutcome, AppendRound, Counters, Inspect, SendTotals, UsageRow,
};
use mainspring_shared::usage::Usage;
use serde_json::json;

use super::prelude::*;

pub async fn a_round_is_numbered_and_reads_back(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = round(&claimed, 0);
    let (first_seq, step, counters) = append(store, 20, item.clone()).await;
    assert_eq!((first_seq, step), (1, 2));
    let expected = Counters {
        next_seq: 4,
        pending: 0,
        signals: 0,
        context_version: 0,
    };
    assert_eq!(counters, expected);
    let numbered = item.messages.into_iter().zip(1..);
    let expected: Vec<Message> = numbered
        .map(|(message, seq)| message.at(seq, send(1), time(20), 1))
        .collect();
    assert_eq!(transcript(store, 1).await, expected);
    assert_eq!(expected[2].asked_at_seq, Some(2));
    let (first_seq, step, _) = append(store, 30, round(&claimed, 1)).await;
    assert_eq!((first_seq, step), (4, 3));
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2, 3, 4, 5]);
}

pub async fn a_round_is_one_step(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    let expected = Step {
        n: 2,
        send_id: send(1),
        kind: StepKind::Round,
        epoch: 1,
        boot: boot(1),
        at: time(20),
        refs: StepRefs {
            first_seq: Some(1),
            messages: 3,
            round: Some(round_ref(0)),
            ..StepRefs::default()
        },
    };
    assert_eq!(last_step(store, 1).await, expected);
}

pub async fn a_round_sets_the_sums_of_its_send(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    let totals = SendTotals {
        usage: Usage {
            input_tokens: 1 << 40,
            output_tokens: 3,
            cache_read_tokens: 2,
            cache_write_tokens: 3,
            reasoning_tokens: 1,
            cost_usd: None,
            estimated: true,
        },
        rounds: 2,
        attempts: 5,
        ..SendTotals::default()
    };
    let item = AppendRound {
        totals: totals.clone(),
        ..round(&claimed, 1)
    };
    append(store, 30, item).await;
    let record = stored(store, 1).await;
    assert_eq!(record.usage, totals.usage);
    assert_eq!((record.rounds, record.attempts), (2, 5));
}

pub async fn each_response_has_its_row_of_usage(store: &dyn Inspect) {
    let claimed = running(store).await;
    let retried = UsageRow {
        attempt: 2,
        ..usage_row(0, 1)
    };
    let item = AppendRound {
        usage: vec![usage_row(0, 1), retried],
        ..round(&claimed, 0)
    };
    append(store, 20, item).await;
    let dump = dumped(store, 1).await;
    assert_eq!(dump.usage, [(send(1), 0, 1), (send(1), 0, 2)]);
}

pub async fn a_failed_answer_reads_back_as_failed(store: &dyn Inspect) {
    let claimed = running(store).await;
    let mut item = round(&claimed, 0);
    item.messages[2].failed = true;
    append(store, 20, item).await;
    let failed: Vec<bool> = transcript(store, 1)
        .await
        .iter()
        .map(|m| m.failed)
        .collect();
    assert_eq!(failed, [false, false, true]);
}

pub async fn unusual_content_reads_back_as_it_was(store: &dyn Inspect) {
    let claimed = running(store).await;
    let text = "tab\t quote\" back\\slash\r\n \u{0}\u{1}\u{7f} \u{1f469}\u{200d}\u{1f680} \u{fffd}";
    let text = text.replace('\u{0}', "");
    let odd = NewMessage {
        content: vec![
            ContentPart::Reasoning {
                text: text.clone(),
                signature: Some("c2ln".to_owned()),
                origin: None,
            },
            ContentPart::text(""),
            ContentPart::text(text),
        ],
        tool_calls: vec![ToolCall::new(
            "call '1'; --",
            "na\u{ef}ve",
            json!({ "b": [1.5, -2, 9_007_199_254_740_993_i64, true, null], "a": {} }),
        )],
        ..answer("", 0, &[])
    };
    let item = AppendRound {
        messages: vec![odd.clone()],
        calls: Vec::new(),
        ..round(&claimed, 0)
    };
    append(store, 20, item).await;
    let expected = odd.at(1, send(1), time(20), 1);
    assert_eq!(transcript(store, 1).await, [expected]);
}

pub async fn rounds_of_one_call_have_each_their_outcome(store: &dyn Inspect) {
    let first = running(store).await;
    accept(store, 0, opening(2, 2)).await;
    accept(store, 0, opening(3, 3)).await;
    let second = claim(store, 11, 1, 2, 2).await;
    let third = claim(store, 12, 1, 3, 3).await;
    release(store, 13, &second).await;
    let items = vec![round(&third, 0), round(&second, 0), round(&first, 0)];
    let outcomes = store.at(time(20)).append_rounds(items).await;
    let outcomes = outcomes.expect("the store answers");
    assert!(matches!(outcomes[0], AppendOutcome::Appended { .. }));
    assert_eq!(outcomes[1], AppendOutcome::LeaseLost);
    assert!(matches!(outcomes[2], AppendOutcome::Appended { .. }));
    let written = [1, 2, 3].map(async |n| transcript(store, n).await.len());
    let written = futures::future::join_all(written).await;
    assert_eq!(written, [3, 0, 3]);
}

pub async fn a_round_tells_of_queued_sends_and_signals(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    cancel(store, 12, 1).await;
    let (_, _, counters) = append(store, 20, round(&claimed, 0)).await;
    assert_eq!((counters.pending, counters.signals), (1, SIGNAL_CANCEL));
    delivered(store, 30, item("a", 1, OnBusy::Interrupt)).await;
    let (_, _, counters) = append(store, 40, round(&claimed, 1)).await;
    let raised = SIGNAL_CANCEL | SIGNAL_INBOX | SIGNAL_INTERRUPT;
    assert_eq!(counters.signals, raised, "as they were before it");
    assert_eq!(
        signals(store, 1).await,
        SIGNAL_CANCEL,
        "the others are told"
    );
    let (_, _, counters) = append(store, 50, round(&claimed, 2)).await;
    assert_eq!(counters.signals, SIGNAL_CANCEL);
}

pub async fn messages_carry_the_epoch_of_their_grant(store: &dyn Inspect) {
    let first = running(store).await;
    append(store, 20, round(&first, 0)).await;
    release(store, 30, &first).await;
    let second = claim(store, 40, 1, 1, 2).await;
    append(store, 50, round(&second, 1)).await;
    let mut item = ending(&second, AfterSend::Release);
    item.messages = vec![answer("done", 2, &[])];
    item.usage = vec![usage_row(2, 3)];
    item.round = Some(round_ref(2));
    item.totals = totals(3);
    complete(store, 60, item).await;
    let epochs: Vec<i64> = transcript(store, 1).await.iter().map(|m| m.epoch).collect();
    assert_eq!(epochs, [1, 1, 1, 2, 2, 2]);
    let roles: Vec<Role> = transcript(store, 1).await.iter().map(|m| m.role).collect();
    let round = [Role::Assistant, Role::Tool];
    let expected = [&[Role::User][..], &round, &round, &[Role::Assistant]].concat();
    assert_eq!(roles, expected);
}

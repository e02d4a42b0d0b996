//! What happens to inbox items under a lease.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::inbox::Fate;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use mainspring_shared::store::{
    AfterSend, AppendOutcome, Claimed, CompleteOutcome, CompleteSend, Inspect,
};

use super::prelude::*;

fn said(item_id: &str, round: i32) -> NewMessage {
    NewMessage::user(news(item_id), round)
}

/// An answer in the first round of a send, unless a message arrived.
fn unless_told(claimed: &Claimed) -> CompleteSend {
    CompleteSend {
        unless: SIGNAL_INBOX | SIGNAL_INTERRUPT,
        ..ending(claimed, AfterSend::Continue)
    }
}

pub async fn a_round_delivers_items_as_messages(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 15, round(&claimed, 0)).await;
    for id in ["a", "b", "c"] {
        delivered(store, 20, item(id, 1, OnBusy::Steer)).await;
    }
    let mut told = changing(&claimed, 0, Vec::new());
    told.messages = vec![said("b", 0), said("a", 0)];
    told.deliveries = vec![delivery("a", 1), delivery("b", 0)];
    let (first_seq, ..) = append(store, 30, told).await;
    assert_eq!(first_seq, 4);
    let items = inbox(store, 1).await;
    let fates: Vec<_> = items
        .iter()
        .map(|i| (i.fate, i.seq, i.settled_at))
        .collect();
    let expected = [
        (Fate::Delivered, Some(5), at(30)),
        (Fate::Delivered, Some(4), at(30)),
        (Fate::Pending, None, None),
    ];
    assert_eq!(fates, expected);
    let all = transcript(store, 1).await;
    assert_eq!((&all[3].content, &all[4].content), (&news("b"), &news("a")));
}

pub async fn an_item_is_delivered_once(store: &dyn Inspect) {
    let claimed = running(store).await;
    delivered(store, 20, item("a", 1, OnBusy::Steer)).await;
    let mut told = changing(&claimed, 0, Vec::new());
    told.messages = vec![said("a", 0)];
    told.deliveries = vec![delivery("a", 0), delivery("unknown", 0)];
    append(store, 30, told.clone()).await;
    let before = inbox(store, 1).await;
    append(store, 40, told).await;
    assert_eq!(inbox(store, 1).await, before);
}

pub async fn a_stale_owner_delivers_nothing(store: &dyn Inspect) {
    let stale = running(store).await;
    delivered(store, 20, item("a", 1, OnBusy::Steer)).await;
    release(store, 21, &stale).await;
    claim(store, 22, 1, 1, 2).await;
    let mut told = changing(&stale, 0, Vec::new());
    told.messages = vec![said("a", 0)];
    told.deliveries = vec![delivery("a", 0)];
    let outcomes = store.at(time(30)).append_rounds(vec![told]).await;
    assert_eq!(
        outcomes.expect("the store answers"),
        [AppendOutcome::LeaseLost]
    );
    assert_eq!(inbox(store, 1).await[0].fate, Fate::Pending);
    assert_eq!(signals(store, 1).await, SIGNAL_INBOX);
}

pub async fn undelivered_words_keep_a_send_from_ending(store: &dyn Inspect) {
    let claimed = running(store).await;
    delivered(store, 20, item("a", 1, OnBusy::Interrupt)).await;
    let mut expected = store.dump().await.expect("the store answers");
    let outcome = try_complete(store, 30, unless_told(&claimed)).await;
    assert_eq!(outcome, CompleteOutcome::Undelivered);
    expected.sessions[0].hot.signals = 0;
    expected.sessions[0].hot.writes += 1;
    let message = "nothing else is written";
    assert_eq!(
        store.dump().await.expect("the store answers"),
        expected,
        "{message}"
    );
    let mut told = unless_told(&claimed);
    told.messages.insert(1, said("a", 0));
    told.deliveries = vec![delivery("a", 1)];
    let completed = complete(store, 40, told).await;
    assert_eq!(completed.status, SendStatus::Completed);
    let items = inbox(store, 1).await;
    assert_eq!((items[0].fate, items[0].seq), (Fate::Delivered, Some(2)));
    assert_eq!(
        (items[0].send_id, items[0].settled_at),
        (Some(send(1)), at(40))
    );
}

pub async fn other_signals_keep_no_send_from_ending(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(
        store,
        15,
        asking(
            &claimed,
            0,
            vec![waits(mainspring_shared::send::WaitingOn::Tool)],
        ),
    )
    .await;
    post_text(store, 20, 1, &call(&claimed, 0, 0), "x").await;
    assert_eq!(signals(store, 1).await, SIGNAL_RESULT);
    let mut item = unless_told(&claimed);
    item.messages = answers_of(store, &claimed, 0).await;
    (item.round, item.usage) = (None, Vec::new());
    complete(store, 30, item).await;
    assert_eq!(
        signals(store, 1).await,
        0,
        "they were for the send that ended"
    );
}

pub async fn what_an_end_leaves_is_for_the_next_send(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    delivered(store, 20, item("a", 1, OnBusy::Interrupt)).await;
    let completed = complete(store, 30, ending(&claimed, AfterSend::Continue)).await;
    let (next, counters) = completed.next.expect("send 2 goes on");
    assert_eq!(counters.signals, SIGNAL_INBOX, "the inbox outlives a send");
    assert_eq!(signals(store, 1).await, SIGNAL_INBOX);
    let mut told = ending_of(&claimed, &next.record, AfterSend::Continue);
    told.messages.insert(1, said("a", 0));
    told.deliveries = vec![delivery("a", 1)];
    complete(store, 40, told).await;
    let items = inbox(store, 1).await;
    assert_eq!((items[0].fate, items[0].seq), (Fate::Delivered, Some(4)));
    assert_eq!(items[0].send_id, Some(send(1)), "which had taken it");
}

pub async fn a_claim_tells_of_what_an_end_left(store: &dyn Inspect) {
    let claimed = running(store).await;
    delivered(store, 20, item("a", 1, OnBusy::Steer)).await;
    let completed = complete(store, 30, ending(&claimed, AfterSend::Continue)).await;
    assert_eq!(
        (completed.next, completed.enqueue),
        (None, None),
        "words are no work"
    );
    accept(store, 40, sending(2, 1)).await;
    let next = claim(store, 50, 1, 1, 2).await;
    assert_eq!(next.counters.signals, SIGNAL_INBOX);
}

pub async fn a_cancel_goes_before_words(store: &dyn Inspect) {
    let claimed = running(store).await;
    delivered(store, 20, item("a", 1, OnBusy::Steer)).await;
    delivered(store, 21, item("b", 1, OnBusy::Steer)).await;
    cancel(store, 22, 1).await;
    let mut told = unless_told(&claimed);
    told.messages.insert(1, said("a", 0));
    told.deliveries = vec![delivery("a", 1)];
    let completed = complete(store, 30, told).await;
    assert_eq!(completed.status, SendStatus::Cancelled);
    let fates: Vec<_> = inbox(store, 1)
        .await
        .iter()
        .map(|i| (i.fate, i.seq))
        .collect();
    let expected = [(Fate::Delivered, Some(2)), (Fate::Pending, None)];
    assert_eq!(fates, expected, "what was to be written is written");
    assert_eq!(signals(store, 1).await, SIGNAL_INBOX);
}

pub async fn ends_of_one_call_are_kept_back_each_for_itself(store: &dyn Inspect) {
    let first = running(store).await;
    accept(store, 0, opening(2, 2)).await;
    let second = claim(store, 11, 1, 2, 2).await;
    delivered(store, 20, item("a", 1, OnBusy::Steer)).await;
    let items = vec![unless_told(&first), unless_told(&second)];
    let outcomes = store.at(time(30)).complete_sends(items).await;
    let outcomes = outcomes.expect("the store answers");
    assert_eq!(outcomes[0], CompleteOutcome::Undelivered);
    assert!(
        matches!(outcomes[1], CompleteOutcome::Completed(_)),
        "{outcomes:?}"
    );
    let hot = dumped(store, 1).await.hot;
    assert_eq!(
        (hot.owner, hot.token),
        (Some(boot(1)), Some(token(1))),
        "it is kept"
    );
}

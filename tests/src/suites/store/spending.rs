//! What sends reserve and what their sessions have spent: stored with each step that says so.

use mainspring_shared::budget::{Held, Spent};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::shown::{Begun, Shown};
use mainspring_shared::store::{
    AfterSend, AppendRound, CompleteSend, Inspect, ModelUsage, ParkSend, ParkUntil, SendTotals,
    SessionUsage, UsageRow,
};
use mainspring_shared::usage::{Purpose, Usage};

use super::prelude::{
    SCHEDULER, TTL, accept, append, boot, cancel, child, claim, complete, cost, dumped, ending,
    key, opening, park, register, release, round, running, send, sending, stored, time, totals,
    until, usage_row, waiting, with,
};

fn spent(tokens: u64) -> Spent {
    Spent {
        tokens,
        nano_usd: 1 << 40,
        rounds: 3,
    }
}

/// The totals of a step after which the session has spent this many tokens.
fn sums(rounds: i32, tokens: u64) -> SendTotals {
    SendTotals {
        session: Some(spent(tokens)),
        held: Held([("call_1".to_owned(), spent(5))].into()),
        ..totals(rounds)
    }
}

pub async fn what_is_set_aside_reads_back(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = AppendRound {
        totals: sums(1, 10),
        ..round(&claimed, 0)
    };
    append(store, 20, item).await;
    let record = stored(store, 1).await;
    assert_eq!(record.held, sums(1, 10).held);
    assert_eq!(record.usage, totals(1).usage);
    let item = AppendRound {
        totals: totals(2),
        ..round(&claimed, 1)
    };
    append(store, 30, item).await;
    assert!(stored(store, 1).await.held.is_empty());
}

pub async fn the_next_claim_reads_what_the_session_spent(store: &dyn Inspect) {
    let claimed = running(store).await;
    assert_eq!(claimed.spent, Spent::default());
    let item = AppendRound {
        totals: sums(1, 10),
        ..round(&claimed, 0)
    };
    append(store, 20, item).await;
    // A step without these totals leaves them as they were.
    append(store, 25, round(&claimed, 1)).await;
    release(store, 30, &claimed).await;
    let again = claim(store, 40, 1, 1, 2).await;
    assert_eq!(again.spent, spent(10));
    assert_eq!(dumped(store, 1).await.hot.spent, Some(spent(10)));
}

pub async fn an_end_counts_for_the_next_send(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = CompleteSend {
        totals: sums(1, 20),
        ..ending(&claimed, AfterSend::Release)
    };
    complete(store, 20, item).await;
    accept(store, 30, sending(2, 1)).await;
    assert_eq!(claim(store, 40, 1, 1, 2).await.spent, spent(20));
}

pub async fn a_park_counts_whether_it_waits_or_ends(store: &dyn Inspect) {
    register(store, 1).await;
    for (n, cancelled) in [(1, false), (2, true)] {
        accept(store, 0, opening(n, n)).await;
        let claimed = claim(store, 10, 1, n, n).await;
        if cancelled {
            cancel(store, 15, n).await;
        }
        let item = ParkSend {
            totals: sums(0, 30),
            ..waiting(&claimed, WaitingOn::Retry, ParkUntil::Asked)
        };
        park(store, 20, item).await;
        assert_eq!(dumped(store, n).await.hot.spent, Some(spent(30)), "{n}");
        assert_eq!(stored(store, n).await.held, sums(0, 30).held, "{n}");
    }
}

/// If a worker died in the middle of an answer, cancelling its send charges for that answer, as the
/// next worker would have done; so does the alarm of its deadline.
pub async fn an_end_without_a_worker_pays_for_what_the_dead_one_bought(store: &dyn Inspect) {
    for (n, is_cancel) in [(1, true), (2, false)] {
        register(store, n).await;
        accept(store, 0, with(opening(n, n), until(300))).await;
        let claimed = claim(store, 10, n, n, n).await;
        let shown = Shown {
            begun: Some(Begun::new(0, "It was", Some(Box::new(usage_row(0, 1))))),
            ..Shown::default()
        };
        let checkpoint = AppendRound {
            messages: Vec::new(),
            calls: Vec::new(),
            usage: Vec::new(),
            round: None,
            totals: SendTotals {
                session: Some(Spent::default()),
                shown: Some(shown),
                ..totals(0)
            },
            ..round(&claimed, 0)
        };
        append(store, 20, checkpoint).await;
        assert_eq!(dumped(store, n).await.usage, []);
        if is_cancel {
            cancel(store, TTL + 1, n).await;
        } else {
            let late = store.at(time(TTL + 1));
            let swept = late.sweep_alarms(boot(SCHEDULER), 10).await;
            swept.expect("the store answers");
        }
        let record = stored(store, n).await;
        assert!(record.status.is_final(), "{n}: {record:?}");
        assert_eq!((record.usage, record.counted), (cost(10), 1), "{n}");
        let begun = record.shown.and_then(|shown| shown.begun);
        assert_eq!(begun.expect("what was said stays").unpaid, None, "{n}");
        let dump = dumped(store, n).await;
        assert_eq!(dump.usage, [(send(n), 0, 1)], "{n}");
        assert_eq!(dump.paid, [cost(10)], "{n}");
        assert_eq!(dump.hot.spent, Some(Spent::of(&cost(10), 0)), "{n}");
    }
}

pub async fn what_a_session_and_those_below_it_cost_is_summed_by_model(store: &dyn Inspect) {
    let usage = async |n| {
        store
            .session_usage(key(n))
            .await
            .expect("the store answers")
    };
    assert_eq!(usage(1).await, None);
    let claimed = running(store).await;
    assert_eq!(
        usage(1).await,
        Some(SessionUsage {
            sessions: 1,
            ..SessionUsage::default()
        })
    );
    let other = UsageRow {
        model: "another".to_owned(),
        usage: Usage {
            input_tokens: 7,
            estimated: true,
            ..Usage::default()
        },
        ..usage_row(1, 1)
    };
    append(store, 20, round(&claimed, 0)).await;
    let item = AppendRound {
        usage: vec![usage_row(1, 2), other.clone()],
        ..round(&claimed, 1)
    };
    append(store, 30, item).await;
    for (n, above) in [(2, 1), (3, 2)] {
        accept(store, 40, child(n, n, above, &format!("call_{n}"))).await;
        let claimed = claim(store, 41, 1, n, n).await;
        append(store, 42, round(&claimed, 0)).await;
    }
    let part = |calls: u64| ModelUsage {
        model: "m".to_owned(),
        purpose: Purpose::Round,
        calls,
        usage: (0..calls).fold(Usage::default(), |mut sum, _| {
            sum.add(&cost(10));
            sum
        }),
    };
    let another = ModelUsage {
        model: other.model,
        purpose: Purpose::Round,
        calls: 1,
        usage: other.usage,
    };
    let expected = SessionUsage {
        sessions: 3,
        own: vec![another, part(2)],
        below: vec![part(2)],
    };
    assert_eq!(usage(1).await, Some(expected));
    let expected = SessionUsage {
        sessions: 1,
        own: vec![part(1)],
        below: Vec::new(),
    };
    assert_eq!(usage(3).await, Some(expected));
    let deleted = store
        .at(time(50))
        .delete_session(key(3), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(usage(3).await, None);
}

//! Projections: stored when sends end, and read instead of their messages.

use std::sync::Arc;

use mainspring_shared::agent::{AgentSpec, ContextSpec, FoldSpec, Representation};
use mainspring_shared::list::List;
use mainspring_shared::message::Message;
use mainspring_shared::session::fold::digest::sends;
use mainspring_shared::session::projection::{Projected, Projection, ProjectionBuilder, to_store};
use mainspring_shared::store::{
    AcceptSend, AfterSend, AppendRound, AuditOptions, ClaimOutcome, ClaimSession, Claimed,
    CompleteOutcome, CompleteSend, CreateOutcome, ImportSession, Inspect, NewSession, PruneSession,
    PruneTo, SendTotals, SessionPatch, Target,
};

use super::folds::new_fold;
use super::prelude::*;

/// A session whose agent sees digests of all sends but the newest.
fn projecting(n: u128) -> NewSession {
    NewSession {
        agent: agent(Representation::Projection),
        ..new_session(n)
    }
}

fn agent(representation: Representation) -> AgentSpec {
    AgentSpec {
        context: ContextSpec {
            representation,
            fold: FoldSpec {
                keep_sends: Some(1),
                ..FoldSpec::default()
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

fn shared(messages: Vec<Message>) -> Vec<Arc<Message>> {
    messages.into_iter().map(Arc::new).collect()
}

/// The projections derived from messages.
fn given(messages: Vec<Message>) -> Vec<Projection> {
    let messages = shared(messages);
    sends(&messages).filter_map(Projection::of).collect()
}

/// The end of a send, with all projections missing after `stored_to`.
async fn ends(
    store: &dyn Inspect,
    claimed: &Claimed,
    stored_to: i64,
    then: AfterSend,
) -> CompleteSend {
    let item = ending(claimed, then);
    let mut all = transcript(store, 1).await;
    let next = claimed.counters.next_seq;
    let last = item.messages.iter().zip(next..);
    all.extend(last.map(|(message, seq)| message.clone().at(seq, item.send_id, time(0), 0)));
    let (projections, _) = to_store(&shared(all), stored_to, false);
    CompleteSend {
        projections,
        ..item
    }
}

/// The end of the first send of a session, with its projection.
pub(super) fn projected(claimed: &Claimed) -> CompleteSend {
    let item = ending(claimed, AfterSend::Continue);
    let said = item.messages.iter().zip(1..);
    let said = said.map(|(message, seq)| message.clone().at(seq, item.send_id, time(0), 0));
    let projections = given(said.collect());
    CompleteSend {
        projections,
        ..item
    }
}

/// This many ended sends of two messages each, each with its projection.
async fn ended(store: &dyn Inspect, count: u128) {
    register(store, 1).await;
    for n in 1..=count {
        let claimed = next(store, n).await;
        let item = ends(
            store,
            &claimed,
            claimed.counters.next_seq - 1,
            AfterSend::Release,
        )
        .await;
        complete(store, 30, item).await;
    }
}

/// The next send, claimed by a worker with nothing cached.
async fn next(store: &dyn Inspect, n: u128) -> Claimed {
    let target = match n {
        1 => Target::New(Box::new(projecting(1))),
        _ => sending(n, 1).target,
    };
    let item = AcceptSend {
        target,
        ..sending(n, 1)
    };
    accept(store, 10, item).await;
    claim(store, 20, 1, 1, n).await
}

fn ranges(projections: &[Projection]) -> Vec<(i64, i64)> {
    projections
        .iter()
        .map(|it| (it.from_seq, it.to_seq))
        .collect()
}

async fn rows(store: &dyn Inspect, session: u128) -> Vec<Projection> {
    dumped(store, session).await.projections
}

async fn assert_sound(store: &dyn Inspect) {
    let violations = store.at(time(300)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub async fn an_end_stores_what_its_send_is_shown_as(store: &dyn Inspect) {
    ended(store, 3).await;
    let stored = rows(store, 1).await;
    assert_eq!(stored, given(transcript(store, 1).await));
    assert_eq!(ranges(&stored), [(1, 2), (3, 4), (5, 6)]);
    assert_eq!(stored[1].left.asked, "[#3] words of 2");
    assert_sound(store).await;
}

pub async fn a_cold_claim_brings_digests_in_the_place_of_messages(store: &dyn Inspect) {
    ended(store, 4).await;
    let claimed = next(store, 5).await;
    let expected = given(transcript(store, 1).await);
    assert_eq!(claimed.projected.shown, expected[..3]);
    assert_eq!(claimed.projected.stored_to, 8);
    assert_eq!(seqs(&claimed.window), [7, 8]);
    release(store, 30, &claimed).await;
    // A worker that has the window cached up to there gets only what is newer.
    let warm = |from, next| ClaimSession {
        cached_from_seq: from,
        cached_next_seq: next,
        cached_version: claimed.counters.context_version,
        ..cold_claim(1, 9)
    };
    for (item, shown, read) in [
        (warm(1, 9), 0, vec![]),
        (warm(1, 7), 0, vec![7, 8]),
        (warm(5, 9), 3, vec![7, 8]),
    ] {
        let outcome = store.at(time(40)).claim_sessions(boot(1), vec![item]).await;
        let ClaimOutcome::Claimed(claimed) = one(outcome.expect("the store answers")) else {
            panic!("a claim was expected");
        };
        assert_eq!(claimed.projected.shown.len(), shown);
        assert_eq!(seqs(&claimed.window), read);
        release(store, 50, &claimed).await;
    }
}

pub async fn an_agent_that_shows_all_reads_all(store: &dyn Inspect) {
    ended(store, 4).await;
    let patch = SessionPatch {
        agent: Some(agent(Representation::Verbatim)),
        ..SessionPatch::default()
    };
    let updated = store.at(time(40)).update_session(key(1), patch).await;
    updated.expect("the store answers");
    let claimed = next(store, 5).await;
    assert_eq!(claimed.projected, Projected::default());
    assert_eq!(claimed.window.len(), 8);
    complete(store, 60, ending(&claimed, AfterSend::Release)).await;
    assert_eq!(rows(store, 1).await.len(), 4);
}

pub async fn what_is_missing_or_older_is_read_and_stored_with_the_next_end(store: &dyn Inspect) {
    register(store, 1).await;
    for n in 1..=4 {
        let claimed = next(store, n).await;
        let mut item = ends(
            store,
            &claimed,
            claimed.counters.next_seq - 1,
            AfterSend::Release,
        )
        .await;
        match n {
            // Its worker did not support projections.
            2 => item.projections.clear(),
            // It was written by another release.
            3 => item.projections[0].version += 1,
            _ => {}
        }
        complete(store, 30, item).await;
    }
    assert_eq!(rows(store, 1).await.len(), 3);
    let claimed = next(store, 5).await;
    // The second is missing, so everything after the first is read: it is the newest that can be
    // relied on.
    assert_eq!(claimed.projected.shown, []);
    assert_eq!(claimed.projected.stored_to, 2);
    assert_eq!(claimed.window.len(), 8);
    let item = ends(
        store,
        &claimed,
        claimed.projected.stored_to,
        AfterSend::Release,
    )
    .await;
    assert_eq!(item.projections.len(), 4);
    complete(store, 60, item).await;
    assert_eq!(rows(store, 1).await, given(transcript(store, 1).await));
    let claimed = next(store, 6).await;
    assert_eq!(
        (claimed.projected.shown.len(), claimed.window.len()),
        (4, 2)
    );
    assert_sound(store).await;
}

pub async fn an_end_that_is_not_stored_stores_no_projection(store: &dyn Inspect) {
    ended(store, 1).await;
    let claimed = next(store, 2).await;
    let item = ends(store, &claimed, 2, AfterSend::Release).await;
    let mut stale = item.clone();
    stale.lease.token = token(99);
    let outcome = store.at(time(40)).complete_sends(vec![stale]).await;
    let outcome = one(outcome.expect("the store answers"));
    assert_eq!(outcome, CompleteOutcome::LeaseLost);
    assert_eq!(rows(store, 1).await.len(), 1);
    // Sent twice, as by a worker that did not get the answer.
    for _ in 0..2 {
        let outcome = store.at(time(50)).complete_sends(vec![item.clone()]).await;
        outcome.expect("the store answers");
        assert_eq!(rows(store, 1).await, given(transcript(store, 1).await));
    }
    assert_sound(store).await;
}

pub async fn a_cancel_that_wins_stores_the_projection_of_what_was_said(store: &dyn Inspect) {
    ended(store, 1).await;
    let claimed = next(store, 2).await;
    cancel(store, 30, 2).await;
    let item = ends(store, &claimed, 2, AfterSend::Release).await;
    complete(store, 40, item).await;
    assert_eq!(rows(store, 1).await, given(transcript(store, 1).await));
    assert_sound(store).await;
}

pub async fn ends_of_several_sessions_share_a_statement(store: &dyn Inspect) {
    ended(store, 1).await;
    accept(store, 10, opening(20, 2)).await;
    let other = claim(store, 20, 1, 2, 30).await;
    let claimed = next(store, 2).await;
    let item = ends(store, &claimed, 2, AfterSend::Release).await;
    let items = vec![ending(&other, AfterSend::Release), item];
    let outcomes = store.at(time(40)).complete_sends(items).await;
    let outcomes = outcomes.expect("the store answers");
    let all = |it: &CompleteOutcome| matches!(it, CompleteOutcome::Completed(_));
    assert!(outcomes.iter().all(all), "{outcomes:?}");
    assert_eq!(rows(store, 1).await.len(), 2);
    assert_eq!(rows(store, 2).await, []);
    assert_sound(store).await;
}

pub async fn a_window_behind_folds_begins_with_the_digests_behind_them(store: &dyn Inspect) {
    ended(store, 4).await;
    let claimed = next(store, 5).await;
    let fold = AppendRound {
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        messages: Vec::new(),
        calls: Vec::new(),
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: Vec::new(),
        round: None,
        fold: Some(new_fold(1, 4, 0)),
        totals: SendTotals::default(),
    };
    append(store, 30, fold).await;
    release(store, 40, &claimed).await;
    let claimed = claim(store, 50, 1, 1, 9).await;
    assert_eq!(ranges(&claimed.projected.shown), [(5, 6)]);
    assert_eq!(
        (claimed.folds.len(), seqs(&claimed.window)),
        (1, vec![7, 8])
    );
    assert_sound(store).await;
}

pub async fn pruning_removes_the_projections_of_what_it_removes(store: &dyn Inspect) {
    ended(store, 5).await;
    for (before, left) in [
        (3, vec![(3, 4), (5, 6), (7, 8), (9, 10)]),
        (6, vec![(7, 8), (9, 10)]),
    ] {
        let item = PruneSession {
            key: key(1),
            to: PruneTo::Before(before),
            dry_run: false,
            limit: 100,
        };
        let pruned = store.at(time(100)).prune_session(item).await;
        pruned.expect("the store answers");
        assert_eq!(ranges(&rows(store, 1).await), left);
        assert_sound(store).await;
    }
    // The first send is there only in part and has no projection, so everything is read.
    let claimed = next(store, 6).await;
    assert_eq!(claimed.projected, Projected::default());
    assert_eq!(seqs(&claimed.window), [6, 7, 8, 9, 10]);
    complete(
        store,
        120,
        ends(store, &claimed, 0, AfterSend::Release).await,
    )
    .await;
    assert_eq!(
        ranges(&rows(store, 1).await),
        [(6, 6), (7, 8), (9, 10), (11, 12)]
    );
    let claimed = next(store, 7).await;
    assert_eq!(ranges(&claimed.projected.shown), [(6, 6), (7, 8), (9, 10)]);
    assert_sound(store).await;
}

pub async fn a_copy_has_the_projections_of_its_messages(store: &dyn Inspect) {
    ended(store, 4).await;
    let mut messages = transcript(store, 1).await;
    for (n, behind) in [(2, 0), (3, 4)] {
        let mut copied = ProjectionBuilder::new(0);
        let page = |messages, projections, behind, more| ImportSession {
            projections,
            folds: Vec::new(),
            session: projecting(n),
            messages,
            todo: List::default(),
            notes: List::default(),
            idempotency: None,
            behind,
            more,
        };
        if behind > 0 {
            let rest = messages.split_off(4);
            let first = std::mem::replace(&mut messages, rest);
            copied.add(&first, 0);
            let first = page(first, Vec::new(), 0, true);
            let staged = store.at(time(100)).import_session(first).await;
            assert_eq!(staged.expect("the store answers"), CreateOutcome::Staged);
        }
        copied.add(&messages, behind);
        let last = page(messages.clone(), copied.end(), behind, false);
        let made = store.at(time(101)).import_session(last).await;
        let made = made.expect("the store answers");
        assert!(matches!(made, CreateOutcome::Created(_)), "{made:?}");
        assert_eq!(rows(store, n).await, rows(store, 1).await);
        accept(store, 110, sending(n * 10, n)).await;
        let claimed = claim(store, 120, 1, n, 20 + n).await;
        assert_eq!(
            (claimed.projected.shown.len(), seqs(&claimed.window)),
            (3, vec![7, 8])
        );
    }
    assert_sound(store).await;
}

pub async fn the_projections_of_a_deleted_session_go_with_it(store: &dyn Inspect) {
    ended(store, 5).await;
    let deleted = store
        .at(time(110))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_sound(store).await;
    while dumped(store, 1).await.erasing {
        let step = store.at(time(100_000)).erase_session(key(1), 2).await;
        step.expect("the store answers");
        assert_sound(store).await;
    }
    assert_eq!(rows(store, 1).await, []);
}

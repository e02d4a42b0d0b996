//! Claiming sessions and their leases.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::lease::Lease;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::step::{Step, StepKind, StepRefs};
use mainspring_shared::store::{
    AfterSend, AppendOutcome, AppendRound, ClaimOutcome, ClaimSession, CompleteOutcome, Counters,
    Inspect, ParkOutcome, ParkUntil, ReleaseLoss, ReleaseSession, Renewal, Resumed, SendTotals,
    SessionPatch,
};

use super::prelude::*;

fn resumed(n: i64, epoch: i64, boot_n: u128, ms: i64, reason: &str) -> Step {
    Step {
        n,
        send_id: send(1),
        kind: StepKind::Resumed,
        epoch,
        boot: boot(boot_n),
        at: time(ms),
        refs: StepRefs {
            reason: Some(reason.to_owned()),
            ..StepRefs::default()
        },
    }
}

pub async fn a_claim_starts_the_head(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), until(700))).await;
    accept(store, 1, sending(2, 1)).await;
    let claimed = claim(store, 10, 1, 1, 77).await;
    let lease = Lease {
        boot: boot(1),
        token: token(77),
        epoch: 1,
        write: 0,
    };
    assert_eq!((claimed.key, claimed.lease), (key(1), lease));
    let counters = Counters {
        next_seq: 1,
        pending: 1,
        signals: 0,
        context_version: 0,
    };
    assert_eq!(claimed.counters, counters);
    assert_eq!(claimed.window, []);
    assert!(claimed.send.resumed.is_none());
    assert_eq!(claimed.send.agent, new_session(1).agent);
    let record = claimed.send.record;
    assert_eq!((record.id, record.status), (send(1), SendStatus::Running));
    assert_eq!((record.started_at, record.agent_version), (at(10), Some(1)));
    assert_eq!(record.alarm_at, at(700));
    assert_eq!(stored(store, 1).await, record);
    assert_eq!(
        steps(store, 1).await.len(),
        2,
        "a start is no durable step of its own"
    );
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.owner, hot.token), (Some(boot(1)), Some(token(77))));
    assert_eq!(hot.ready_since, at(0), "a claim leaves it");
}

pub async fn what_a_live_boot_holds_is_busy(store: &dyn Inspect) {
    running(store).await;
    register(store, 2).await;
    assert_eq!(try_claim(store, 20, 2, 1, 2).await, ClaimOutcome::Busy);
    assert_eq!(try_claim(store, 20, 1, 1, 3).await, ClaimOutcome::Busy);
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.epoch, hot.token), (1, Some(token(1))));
}

pub async fn a_session_without_work_is_idle(store: &dyn Inspect) {
    register(store, 1).await;
    assert_eq!(try_claim(store, 0, 1, 9, 1).await, ClaimOutcome::Idle);
    accept(store, 0, with(opening(1, 1), delayed(500))).await;
    assert_eq!(try_claim(store, 1, 1, 1, 2).await, ClaimOutcome::Idle);
    accept(store, 2, opening(2, 2)).await;
    let claimed = claim(store, 3, 1, 2, 3).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 4, item).await;
    accept(store, 5, sending(3, 2)).await;
    assert_eq!(try_claim(store, 6, 1, 2, 4).await, ClaimOutcome::Idle);
    assert_eq!(dumped(store, 2).await.hot.epoch, 1, "nothing was granted");
}

pub async fn an_expired_boot_loses_its_session_and_is_declared_dead(store: &dyn Inspect) {
    let first = running(store).await;
    let late = TTL + 1;
    register_at(store, late, 2).await;
    let second = claim(store, late, 2, 1, 2).await;
    assert!(second.send.resumed.is_some());
    assert_eq!(second.lease.epoch, 2);
    assert_eq!(second.send.record.status, SendStatus::Running);
    assert_eq!(second.send.record.crashes, 1);
    assert_eq!(second.send.record.started_at, first.send.record.started_at);
    let step = resumed(2, 2, 2, late, "takeover");
    assert_eq!(last_step(store, 1).await, step);
    let boots = store.dump().await.expect("the store answers").boots;
    let dead = boots.iter().find(|found| found.id == boot(1));
    assert_eq!(dead.expect("it is kept").dead_at, at(late));
    let renewal = store
        .at(time(late))
        .renew_boot(boot(1), millis(TTL), 1)
        .await;
    assert_eq!(renewal.expect("the store answers"), Renewal::Dead);
}

pub async fn a_lease_holds_to_its_last_millisecond(store: &dyn Inspect) {
    running(store).await;
    register(store, 2).await;
    assert_eq!(try_claim(store, TTL, 2, 1, 2).await, ClaimOutcome::Busy);
    claim(store, TTL + 1, 2, 1, 3).await;
}

pub async fn a_late_boot_does_not_take_over_from_itself(store: &dyn Inspect) {
    running(store).await;
    let late = TTL + 1;
    assert_eq!(try_claim(store, late, 1, 1, 2).await, ClaimOutcome::Busy);
    let renewal = store
        .at(time(late))
        .renew_boot(boot(1), millis(TTL), 1)
        .await;
    let renewal = renewal.expect("the store answers");
    assert!(!matches!(renewal, Renewal::Dead), "nobody declared it dead");
}

pub async fn a_stopped_boot_loses_its_session_at_once(store: &dyn Inspect) {
    running(store).await;
    register(store, 2).await;
    let stopped = store.at(time(20)).stop_boot(boot(1)).await;
    stopped.expect("the store answers");
    let claimed = claim(store, 20, 2, 1, 2).await;
    assert_eq!(claimed.send.record.crashes, 0);
}

pub async fn a_dead_boot_is_granted_nothing(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, opening(1, 1)).await;
    let stopped = store.at(time(5)).stop_boot(boot(1)).await;
    stopped.expect("the store answers");
    let before = store.dump().await.expect("the store answers");
    assert_eq!(try_claim(store, 10, 1, 1, 2).await, ClaimOutcome::Busy);
    assert_eq!(
        try_claim(store, 10, 1, 9, 3).await,
        ClaimOutcome::Idle,
        "there is no such session"
    );
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

/// A claim that must not take a session leaves it unchanged, without a step.
pub async fn a_suspect_is_left_alone_by_a_claim_that_is_not_for_it(store: &dyn Inspect) {
    running(store).await;
    for n in 2..=3 {
        let late = (n as i64) * 2 * TTL;
        register_at(store, late, n).await;
        claim(store, late, n, 1, n).await;
    }
    let late = 8 * TTL;
    register_at(store, late, 4).await;
    let before = dumped(store, 1).await;
    assert_eq!(before.sends[0].crashes, 2);
    let with = |crashes_below, orphans| ClaimSession {
        crashes_below,
        orphans,
        ..cold_claim(1, 9)
    };
    let tried = async |item: ClaimSession| {
        let outcomes = store
            .at(time(late))
            .claim_sessions(boot(4), vec![item])
            .await;
        one(outcomes.expect("the store answers"))
    };
    assert_eq!(tried(with(i32::MAX, false)).await, ClaimOutcome::Busy);
    assert_eq!(dumped(store, 1).await, before);
    // The death is counted once, without a step.
    for crashes_below in [3, 2, 3] {
        assert_eq!(
            tried(with(crashes_below, true)).await,
            ClaimOutcome::Suspect
        );
        let left = dumped(store, 1).await;
        assert_eq!((left.sends[0].crashes, left.sends[0].attempts), (3, 3));
        assert_eq!((left.hot.owner, left.hot.token), (None, None));
        assert_eq!(left.steps, before.steps);
        assert_eq!(left.hot.ready_since, before.hot.ready_since);
    }
    let item = ClaimSession {
        crashes_below: 4,
        ..cold_claim(1, 9)
    };
    let outcomes = store
        .at(time(late))
        .claim_sessions(boot(4), vec![item])
        .await;
    let ClaimOutcome::Claimed(claimed) = one(outcomes.expect("the store answers")) else {
        panic!("three are below four");
    };
    let record = &claimed.send.record;
    assert_eq!((record.crashes, record.attempts), (3, 3));
    assert_eq!(claimed.send.resumed, Some(Resumed::Takeover));
}

/// Starting a model call is not progress: deaths during the next call still count.
pub async fn begun_calls_do_not_reset_the_count_of_deaths(store: &dyn Inspect) {
    running(store).await;
    register_at(store, 2 * TTL, 2).await;
    let claimed = claim(store, 2 * TTL, 2, 1, 2).await;
    let begun = SendTotals {
        attempts: claimed.send.record.attempts + 1,
        ..SendTotals::default()
    };
    let item = AppendRound {
        totals: begun.clone(),
        messages: Vec::new(),
        calls: Vec::new(),
        changes: Vec::new(),
        round: None,
        ..round(&claimed, 0)
    };
    append(store, 2 * TTL + 1, item.clone()).await;
    let record = stored(store, 1).await;
    assert_eq!((record.crashes, record.attempts), (1, 2));
    let item = AppendRound {
        usage: Vec::new(),
        ..item
    };
    append(store, 2 * TTL + 2, item).await;
    assert_eq!(stored(store, 1).await.crashes, 0);
}

/// A release says if a model call may have been lost.
pub async fn a_release_counts_a_call_that_may_be_lost(store: &dyn Inspect) {
    let first = running(store).await;
    let item = ReleaseSession {
        key: key(1),
        lease: first.lease,
        lost: ReleaseLoss::ModelCall,
    };
    let released = store.at(time(20)).release_sessions(vec![item]).await;
    assert_eq!(released.expect("the store answers"), [true]);
    let again = store.at(time(21)).release_sessions(vec![item]).await;
    assert_eq!(again.expect("the store answers"), [false]);
    assert_eq!(stored(store, 1).await.attempts, 1);
}

/// If the subprocess that runs a send's calls dies, that counts like a worker's death; the worker
/// reports it.
pub async fn a_release_whose_work_is_lost_counts_a_death(store: &dyn Inspect) {
    let first = running(store).await;
    let item = ReleaseSession {
        key: key(1),
        lease: first.lease,
        lost: ReleaseLoss::Work,
    };
    let released = store.at(time(20)).release_sessions(vec![item]).await;
    assert_eq!(released.expect("the store answers"), [true]);
    let record = stored(store, 1).await;
    assert_eq!((record.crashes, record.attempts), (1, 0));
    register(store, 2).await;
    let second = claim(store, 30, 2, 1, 2).await;
    assert_eq!(second.send.record.crashes, 1);
    let step = resumed(2, 2, 2, 30, "takeover");
    assert_eq!(last_step(store, 1).await, step);
    append(store, 40, round(&second, 0)).await;
    assert_eq!(stored(store, 1).await.crashes, 0);
}

pub async fn each_takeover_counts_until_a_round_is_durable(store: &dyn Inspect) {
    running(store).await;
    let mut now = 0;
    for n in 2..=4 {
        now += TTL + 1;
        register_at(store, now, n).await;
        let claimed = claim(store, now, n, 1, n).await;
        assert_eq!(claimed.send.record.crashes, n as i32 - 1);
        if n == 4 {
            append(store, now, round(&claimed, 0)).await;
        }
    }
    assert_eq!(stored(store, 1).await.crashes, 0);
}

pub async fn a_released_session_is_handed_over_without_a_crash(store: &dyn Inspect) {
    let first = running(store).await;
    assert!(release(store, 20, &first).await);
    register(store, 2).await;
    let second = claim(store, 30, 2, 1, 2).await;
    assert!(second.send.resumed.is_some());
    assert_eq!(second.send.record.crashes, 0);
    let step = resumed(2, 2, 2, 30, "handover");
    assert_eq!(last_step(store, 1).await, step);
}

pub async fn a_stale_owner_changes_nothing(store: &dyn Inspect) {
    let stale = running(store).await;
    let late = TTL + 1;
    register_at(store, late, 2).await;
    claim(store, late, 2, 1, 2).await;
    let before = store.dump().await.expect("the store answers");
    let appended = store
        .at(time(late))
        .append_rounds(vec![round(&stale, 0)])
        .await;
    assert_eq!(
        appended.expect("the store answers"),
        [AppendOutcome::LeaseLost]
    );
    let item = ending(&stale, AfterSend::Continue);
    let completed = store.at(time(late)).complete_sends(vec![item]).await;
    assert_eq!(
        completed.expect("the store answers"),
        [CompleteOutcome::LeaseLost]
    );
    let item = waiting(&stale, WaitingOn::Retry, ParkUntil::After(millis(5)));
    assert_eq!(park(store, late, item).await, ParkOutcome::LeaseLost);
    assert!(!release(store, late, &stale).await);
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn the_token_is_the_fence_not_the_boot(store: &dyn Inspect) {
    let first = running(store).await;
    assert!(release(store, 20, &first).await);
    let second = claim(store, 30, 1, 1, 2).await;
    let item = ending(&first, AfterSend::Release);
    let outcome = store.at(time(40)).complete_sends(vec![item]).await;
    assert_eq!(
        outcome.expect("the store answers"),
        [CompleteOutcome::LeaseLost]
    );
    complete(store, 41, ending(&second, AfterSend::Release)).await;
}

pub async fn a_parked_send_goes_on_with_the_reason_of_its_wait(store: &dyn Inspect) {
    register(store, 1).await;
    for (n, on, reason) in [
        (1, WaitingOn::Retry, "retry"),
        (2, WaitingOn::Timer, "result"),
        (3, WaitingOn::Recovery, "resume"),
    ] {
        accept(store, 0, with(opening(n, n), until(9_000))).await;
        let claimed = claim(store, 10, 1, n, n).await;
        let item = waiting(&claimed, on, ParkUntil::After(millis(100)));
        park(store, 20, item).await;
        let swept = store.at(time(120)).sweep_alarms(boot(SCHEDULER), 10).await;
        assert_eq!(swept.expect("the store answers").served, 1);
        let resumed = claim(store, 130, 1, n, 10 + n).await;
        assert!(resumed.send.resumed.is_some());
        assert_eq!(resumed.send.record.status, SendStatus::Running);
        assert_eq!(resumed.send.record.waiting_on, None);
        assert_eq!(resumed.send.record.alarm_at, at(9_000));
        let step = last_step(store, n).await;
        assert_eq!((step.kind, step.epoch), (StepKind::Resumed, 2));
        assert_eq!(step.refs.reason.as_deref(), Some(reason));
    }
}

pub async fn a_send_keeps_the_agent_that_it_started_with(store: &dyn Inspect) {
    let first = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    let changed = AgentSpec {
        name: Some("changed".to_owned()),
        ..AgentSpec::default()
    };
    let patch = SessionPatch {
        agent: Some(changed.clone()),
        ..SessionPatch::default()
    };
    let updated = store.at(time(12)).update_session(key(1), patch).await;
    updated.expect("the store answers");
    release(store, 13, &first).await;
    let again = claim(store, 14, 1, 1, 2).await;
    assert_eq!(again.send.agent, first.send.agent);
    assert_eq!(again.send.record.agent_version, Some(1));
    let completed = complete(store, 15, ending(&again, AfterSend::Continue)).await;
    let (next, _) = completed.next.expect("the second send goes on");
    assert_eq!((next.agent, next.record.agent_version), (changed, Some(2)));
}

pub async fn claims_of_one_call_have_each_their_outcome(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, opening(1, 1)).await;
    accept(store, 0, opening(2, 2)).await;
    let item = |session, token_n| ClaimSession {
        cached_fold_end: 0,
        key: key(session),
        token: token(token_n),
        cached_next_seq: 0,
        cached_from_seq: 0,
        cached_version: 0,
        crashes_below: i32::MAX,
        orphans: true,
    };
    let items = vec![item(2, 1), item(9, 2), item(1, 3), item(2, 4)];
    let outcomes = store.at(time(10)).claim_sessions(boot(1), items).await;
    let outcomes = outcomes.expect("the store answers");
    let [second, unknown, first, again] = &outcomes[..] else {
        panic!("four outcomes were expected: {outcomes:?}");
    };
    assert!(matches!(second, ClaimOutcome::Claimed(c) if c.send.record.id == send(2)));
    assert_eq!(unknown, &ClaimOutcome::Idle);
    assert!(matches!(first, ClaimOutcome::Claimed(c) if c.lease.token == token(3)));
    assert_eq!(again, &ClaimOutcome::Busy);
}

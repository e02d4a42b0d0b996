//! Seats of published agents: how many sends of each are in flight at once.

use mainspring_shared::agent::{AgentLimits, AgentRef, AgentSpec, Bound, SendOptions};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AcceptSend, AfterSend, ClaimOutcome, Inspect, NewSession, ParkUntil, PublishAgent,
    SessionPatch, Target,
};
use mainspring_shared::tenant::Limits;

use super::agents::publishing;
use super::prelude::*;
use super::seats::{called, claim_all, end, limit, of, sound, swept};

/// Sets how many sends of the agent `support` may be in flight.
async fn limit_agent(store: &dyn Inspect, ms: i64, running: Option<u32>) {
    let item = PublishAgent {
        limits: Some(AgentLimits {
            sends_running: running,
            ..AgentLimits::default()
        }),
        ..publishing("support", "Help.")
    };
    let published = store.at(time(ms)).publish_agent(item).await;
    published.expect("the store answers");
}

/// A published agent, in the form in which sessions refer to it.
fn agent(name: &str) -> AgentSpec {
    let reference = AgentRef {
        name: name.parse().expect("a name"),
        version: 1,
    };
    AgentSpec {
        name: Some(name.to_owned()),
        bound: Some(Box::new(Bound {
            agent: Some(reference),
            ..Bound::default()
        })),
        ..AgentSpec::default()
    }
}

/// A send that creates its session with this agent, both with the same number.
fn sent(n: u128, agent: AgentSpec) -> AcceptSend {
    let session = NewSession {
        agent,
        ..new_session(n)
    };
    AcceptSend {
        target: Target::New(Box::new(session)),
        ..sending(n, n)
    }
}

/// Accepts sends to published agents one after another, each in the session of its number.
async fn accepted(store: &dyn Inspect, agents: &[&str]) {
    register(store, 1).await;
    for (n, name) in (1_u128..).zip(agents) {
        let ms = i64::try_from(n).expect("few");
        accept(store, ms, sent(n, agent(name))).await;
    }
}

pub async fn an_agents_sends_wait_and_keep_no_other_agents_waiting(store: &dyn Inspect) {
    limit_agent(store, 0, Some(1)).await;
    accepted(store, &["support", "support", "triage", "support"]).await;
    // An inline agent is a different agent, whatever its name.
    let inline = AgentSpec {
        name: Some("support".to_owned()),
        ..AgentSpec::default()
    };
    accept(store, 5, sent(5, inline)).await;
    let outcomes = claim_all(store, 10, &[1, 2, 3, 4, 5]).await;
    assert_eq!(
        outcomes,
        ["claimed", "waits", "claimed", "waits", "claimed"]
    );
    assert_eq!(claim_all(store, 11, &[2]).await, ["waits"]);
    assert_eq!(called(store, 12).await, (vec![], 2));
    assert_eq!(swept(store, 13).await, []);
    sound(store, 14).await;
    end(store, 20, 1).await;
    assert_eq!(called(store, 21).await, (vec![key(2)], 2));
    assert_eq!(claim_all(store, 22, &[4, 2]).await, ["waits", "claimed"]);
    end(store, 23, 2).await;
    assert_eq!(called(store, 24).await, (vec![key(4)], 1));
    assert_eq!(claim_all(store, 25, &[4]).await, ["claimed"]);
    assert_eq!(called(store, 26).await, (vec![], 0));
    sound(store, 27).await;
}

pub async fn an_agents_seats_are_exact_however_many_claim_at_once(store: &dyn Inspect) {
    limit_agent(store, 0, Some(3)).await;
    accepted(store, &["support"; 12]).await;
    let claims = (1..=12).map(|n| async move { claim_all(store, 20 + n as i64, &[n]).await });
    let outcomes = futures::future::join_all(claims).await.concat();
    let had = outcomes.iter().filter(|outcome| **outcome == "claimed");
    assert_eq!(had.count(), 3, "{outcomes:?}");
    sound(store, 40).await;
}

pub async fn an_agents_limit_and_its_tenants_hold_together(store: &dyn Inspect) {
    limit(store, 0, of(Some(2), None)).await;
    limit_agent(store, 0, Some(1)).await;
    accepted(store, &["support", "support", "triage", "triage"]).await;
    let outcomes = claim_all(store, 10, &[1, 2, 3, 4]).await;
    assert_eq!(outcomes, ["claimed", "waits", "claimed", "waits"]);
    // The free seat is the tenant's; the agent still has none.
    end(store, 20, 3).await;
    assert_eq!(called(store, 21).await, (vec![key(4)], 2));
    assert_eq!(claim_all(store, 22, &[2, 4]).await, ["waits", "claimed"]);
    end(store, 23, 1).await;
    assert_eq!(called(store, 24).await, (vec![key(2)], 1));
    assert_eq!(claim_all(store, 25, &[2]).await, ["claimed"]);
    sound(store, 26).await;
    // Without the tenant's limit, the agent's still applies.
    accept(store, 30, sent(5, agent("support"))).await;
    accept(store, 31, sent(6, agent("triage"))).await;
    assert_eq!(claim_all(store, 32, &[5, 6]).await, ["waits", "waits"]);
    limit(store, 33, Limits::default()).await;
    assert_eq!(called(store, 34).await, (vec![key(6)], 2));
    assert_eq!(claim_all(store, 35, &[5, 6]).await, ["waits", "claimed"]);
    sound(store, 36).await;
    // Without either limit, nothing waits any more.
    limit_agent(store, 40, None).await;
    assert_eq!(called(store, 41).await, (vec![], 0));
    assert_eq!(swept(store, 42).await, [key(5)]);
    let claimed = claim(store, 43, 1, 5, 90).await;
    assert!(!claimed.seated, "it costs nothing");
    let dump = store.dump().await.expect("the store answers");
    assert_eq!((dump.seat_limits, dump.seats), (vec![], vec![]));
}

pub async fn an_agents_limit_counts_what_runs_when_it_is_set(store: &dyn Inspect) {
    accepted(store, &["support", "support", "support", "triage"]).await;
    for n in [1, 2] {
        assert!(!claim(store, 10, 1, n, n).await.seated);
    }
    limit_agent(store, 20, Some(1)).await;
    assert_eq!(claim_all(store, 21, &[3, 4]).await, ["waits", "claimed"]);
    end(store, 22, 1).await;
    assert_eq!(called(store, 23).await, (vec![], 1));
    end(store, 24, 2).await;
    assert_eq!(called(store, 25).await, (vec![key(3)], 1));
    assert_eq!(claim_all(store, 26, &[3]).await, ["claimed"]);
    // Raising the limit admits the next send at once; lowering it interrupts none.
    for n in [5, 6] {
        accept(store, 30, sent(n, agent("support"))).await;
    }
    assert_eq!(claim_all(store, 31, &[5, 6]).await, ["waits", "waits"]);
    limit_agent(store, 32, Some(2)).await;
    assert_eq!(called(store, 33).await, (vec![key(5)], 2));
    assert_eq!(claim_all(store, 34, &[5]).await, ["claimed"]);
    limit_agent(store, 35, Some(1)).await;
    end(store, 36, 3).await;
    assert_eq!(called(store, 37).await, (vec![], 1));
    sound(store, 38).await;
    // Removing the limit admits whatever the tenant's limit permits.
    limit(store, 39, of(Some(3), None)).await;
    limit_agent(store, 40, None).await;
    assert_eq!(called(store, 41).await, (vec![key(6)], 1));
    assert_eq!(claim_all(store, 42, &[6]).await, ["claimed"]);
    sound(store, 43).await;
}

pub async fn an_agents_limit_counts_who_waits_when_it_is_set(store: &dyn Inspect) {
    limit(store, 0, of(Some(1), None)).await;
    accepted(store, &["support", "support", "support", "triage"]).await;
    assert_eq!(
        claim_all(store, 10, &[1, 2, 3, 4]).await,
        ["claimed", "waits", "waits", "waits"]
    );
    limit_agent(store, 11, Some(1)).await;
    limit(store, 12, of(Some(2), None)).await;
    // The agent's sessions waited first, but must not hold up another agent's.
    assert_eq!(called(store, 13).await, (vec![key(4)], 3));
    assert_eq!(
        claim_all(store, 14, &[2, 3, 4]).await,
        ["waits", "waits", "claimed"]
    );
    end(store, 15, 1).await;
    assert_eq!(called(store, 16).await, (vec![key(2)], 2));
    assert_eq!(claim_all(store, 17, &[2]).await, ["claimed"]);
    sound(store, 18).await;
}

pub async fn a_send_with_its_own_agent_takes_a_seat_of_that_one(store: &dyn Inspect) {
    limit_agent(store, 0, Some(1)).await;
    register(store, 1).await;
    let own = |name: &str| SendOptions {
        agent: Some(Box::new(agent(name))),
        ..SendOptions::default()
    };
    accept(store, 1, with(sent(1, agent("triage")), own("support"))).await;
    accept(store, 2, sent(2, agent("support"))).await;
    accept(store, 3, with(sent(3, agent("support")), own("triage"))).await;
    let outcomes = claim_all(store, 10, &[1, 2, 3]).await;
    assert_eq!(outcomes, ["claimed", "waits", "claimed"]);
    end(store, 20, 3).await;
    assert_eq!(called(store, 21).await, (vec![], 1));
    end(store, 22, 1).await;
    assert_eq!(called(store, 23).await, (vec![key(2)], 1));
    assert_eq!(claim_all(store, 24, &[2]).await, ["claimed"]);
    // It also counts for that agent if the limit is set while the send runs.
    limit_agent(store, 30, None).await;
    accept(store, 31, with(sent(4, agent("triage")), own("support"))).await;
    claim(store, 32, 1, 4, 90).await;
    limit_agent(store, 33, Some(2)).await;
    accept(store, 34, sent(5, agent("support"))).await;
    assert_eq!(claim_all(store, 35, &[5]).await, ["waits"]);
    sound(store, 36).await;
}

pub async fn who_waits_for_an_agents_seat_and_gets_another_agent_goes_on(store: &dyn Inspect) {
    limit_agent(store, 0, Some(1)).await;
    accepted(store, &["support", "support"]).await;
    // A send with this agent in a session of another agent, with one more send behind it.
    let own = SendOptions {
        agent: Some(Box::new(agent("support"))),
        ..SendOptions::default()
    };
    accept(store, 3, with(sent(3, agent("triage")), own)).await;
    accept(store, 4, sending(4, 3)).await;
    let outcomes = claim_all(store, 10, &[1, 2, 3]).await;
    assert_eq!(outcomes, ["claimed", "waits", "waits"]);
    let patch = SessionPatch {
        agent: Some(agent("triage")),
        ..SessionPatch::default()
    };
    let updated = store.at(time(20)).update_session(key(2), patch).await;
    updated.expect("the store answers");
    cancel(store, 21, 3).await;
    // Called without a boot, as a sweep does.
    let called = store.at(time(22)).call_seats(None).await;
    let called = called.expect("the store answers").enqueue.into_iter();
    let called: Vec<_> = called.map(|ready| ready.key).collect();
    assert_eq!(called, [key(2), key(3)]);
    assert_eq!(claim_all(store, 23, &[2, 3]).await, ["claimed", "claimed"]);
    sound(store, 24).await;
}

pub async fn an_agents_send_that_is_taken_over_keeps_its_seat(store: &dyn Inspect) {
    limit_agent(store, 0, Some(1)).await;
    accepted(store, &["support", "support"]).await;
    assert_eq!(claim_all(store, 10, &[1, 2]).await, ["claimed", "waits"]);
    register_at(store, TTL + 1, 2).await;
    assert_eq!(called(store, TTL + 2).await, (vec![], 1));
    let taken = try_claim(store, TTL + 3, 2, 2, 70).await;
    assert_eq!(taken, ClaimOutcome::Waits);
    let claimed = claim(store, TTL + 4, 2, 1, 71).await;
    assert!(claimed.seated);
    // Parking gives the seat back, so another one is needed to continue.
    let wait = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(10)));
    park(store, TTL + 5, wait).await;
    assert_eq!(called(store, TTL + 6).await.0, [key(2)]);
    let second = claim(store, TTL + 7, 2, 2, 72).await;
    let due = store.at(time(TTL + 20));
    let due = due.sweep_alarms(boot(SCHEDULER), 10).await;
    assert_eq!(due.expect("the store answers").enqueue.len(), 1);
    let taken = try_claim(store, TTL + 21, 2, 1, 73).await;
    assert_eq!(taken, ClaimOutcome::Waits);
    complete(store, TTL + 22, ending(&second, AfterSend::Release)).await;
    assert_eq!(called(store, TTL + 23).await, (vec![key(1)], 1));
    sound(store, TTL + 24).await;
}

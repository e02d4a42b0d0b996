//! Queries.

use std::collections::BTreeMap;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::SessionStatus;
use mainspring_shared::store::{
    AfterSend, FindMessages, FindSteps, Inspect, ListSends, ListSessions, NewSession, QueueStats,
    ReadMessages, ScalingStats, Target,
};
use serde_json::json;

use super::prelude::*;
use super::tenants::tenant;

fn all_sessions() -> ListSessions {
    ListSessions {
        tenant: TenantId::DEFAULT,
        status: None,
        agent: None,
        metadata: BTreeMap::new(),
        before: None,
        limit: 100,
    }
}

fn all_sends() -> ListSends {
    ListSends {
        tenant: TenantId::DEFAULT,
        session: None,
        status: None,
        before: None,
        limit: 100,
    }
}

/// The numbers of the listed sessions, and whether more follow.
async fn sessions(store: &dyn Inspect, query: ListSessions) -> (Vec<u128>, bool) {
    let page = store.list_sessions(query).await.expect("the store answers");
    let numbers = page
        .data
        .iter()
        .map(|record| record.key.session.0.as_u128());
    (numbers.collect(), page.more)
}

/// The numbers of the listed sends, and whether more follow.
async fn sends(store: &dyn Inspect, query: ListSends) -> (Vec<u128>, bool) {
    let page = store.list_sends(query).await.expect("the store answers");
    let numbers = page.data.iter().map(|record| record.id.0.as_u128());
    (numbers.collect(), page.more)
}

async fn create(store: &dyn Inspect, n: u128, name: &str, metadata: serde_json::Value) {
    let new = NewSession {
        agent: AgentSpec {
            name: Some(name.to_owned()),
            ..AgentSpec::default()
        },
        metadata: metadata.as_object().cloned().unwrap_or_default(),
        ..new_session(n)
    };
    let created = store.at(time(0)).create_sessions(vec![(new, None)]).await;
    created.expect("the store answers");
}

pub async fn the_store_tells_the_time_and_what_it_is(store: &dyn Inspect) {
    let before = store.now().await.expect("the store answers");
    let info = store.check().await.expect("the store is in order");
    assert!(info.now >= before);
    assert!(!info.server.is_empty());
    assert!(info.schema >= 1);
}

pub async fn sends_are_found_by_id_in_the_asked_order(store: &dyn Inspect) {
    accept(store, 0, opening(1, 1)).await;
    accept(store, 0, sending(2, 1)).await;
    let ids = vec![
        (TenantId::DEFAULT, send(2)),
        (TenantId::DEFAULT, send(9)),
        (TenantId(2), send(1)),
        (TenantId::DEFAULT, send(1)),
        (TenantId::DEFAULT, send(2)),
    ];
    let found = store.get_sends(ids).await.expect("the store answers");
    let found: Vec<_> = found.iter().map(|f| f.as_ref().map(|s| s.id)).collect();
    let expected = [Some(send(2)), None, None, Some(send(1)), Some(send(2))];
    assert_eq!(found, expected);
}

pub async fn sessions_are_listed_newest_first_by_page(store: &dyn Inspect) {
    for n in 1..=5 {
        create(store, n, "a", json!({})).await;
    }
    let query = ListSessions {
        limit: 2,
        ..all_sessions()
    };
    assert_eq!(sessions(store, query.clone()).await, (vec![5, 4], true));
    let query = ListSessions {
        before: Some(key(4).session),
        limit: 3,
        ..query
    };
    assert_eq!(sessions(store, query).await, (vec![3, 2, 1], false));
}

pub async fn sessions_are_filtered(store: &dyn Inspect) {
    create(store, 1, "a", json!({ "team": "x", "n": 1 })).await;
    create(store, 2, "b", json!({ "team": "x", "tier": "gold" })).await;
    create(store, 3, "a", json!({ "team": "y" })).await;
    accept(store, 0, sending(1, 3)).await;
    let by_agent = ListSessions {
        agent: Some("a".to_owned()),
        ..all_sessions()
    };
    assert_eq!(sessions(store, by_agent).await.0, [3, 1]);
    let by_metadata = |pairs: &[(&str, &str)]| ListSessions {
        metadata: pairs
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect(),
        ..all_sessions()
    };
    let found = sessions(store, by_metadata(&[("team", "x")])).await;
    assert_eq!(found.0, [2, 1]);
    let both = by_metadata(&[("team", "x"), ("tier", "gold")]);
    assert_eq!(sessions(store, both).await.0, [2]);
    let number = by_metadata(&[("n", "1")]);
    assert_eq!(sessions(store, number).await.0, [], "1 is no text");
    for (status, expected) in [
        (SessionStatus::Queued, vec![3]),
        (SessionStatus::Idle, vec![2, 1]),
        (SessionStatus::Running, vec![]),
    ] {
        let query = ListSessions {
            status: Some(status),
            ..all_sessions()
        };
        assert_eq!(sessions(store, query).await.0, expected, "{status:?}");
    }
    let other = ListSessions {
        tenant: TenantId(2),
        ..all_sessions()
    };
    assert_eq!(sessions(store, other).await.0, []);
}

pub async fn sessions_are_found_by_members_of_their_metadata_whatever_their_names(
    store: &dyn Inspect,
) {
    let metadata = json!({
        "plain": "a", "with \"quotes\".and[0]": "b", "\u{e9}\n": "c", "number": 1, "list": ["d"],
    });
    create(store, 1, "a", metadata).await;
    create(store, 2, "a", json!({})).await;
    for (name, text, found) in [
        ("plain", "a", 1),
        ("with \"quotes\".and[0]", "b", 1),
        ("\u{e9}\n", "c", 1),
        ("plain", "b", 0),
        ("number", "1", 0),
        ("list", "d", 0),
        ("absent", "a", 0),
    ] {
        let query = ListSessions {
            metadata: BTreeMap::from([(name.to_owned(), text.to_owned())]),
            ..all_sessions()
        };
        assert_eq!(
            sessions(store, query).await.0.len(),
            found,
            "{name} = {text}"
        );
    }
}

pub async fn every_status_of_a_session_can_be_asked_for(store: &dyn Inspect) {
    use mainspring_shared::send::WaitingOn;
    use mainspring_shared::store::{ParkUntil, SessionPatch};
    running(store).await;
    accept(store, 0, opening(2, 2)).await;
    let claimed = claim(store, 10, 1, 2, 2).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    accept(store, 0, opening(3, 3)).await;
    create(store, 4, "a", json!({})).await;
    create(store, 5, "a", json!({})).await;
    let patch = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    let closed = store.at(time(0)).update_session(key(5), patch).await;
    closed.expect("the store answers");
    for (status, n) in [
        (SessionStatus::Running, 1),
        (SessionStatus::Waiting, 2),
        (SessionStatus::Queued, 3),
        (SessionStatus::Idle, 4),
        (SessionStatus::Closed, 5),
    ] {
        let query = ListSessions {
            status: Some(status),
            ..all_sessions()
        };
        assert_eq!(sessions(store, query).await, (vec![n], false));
        let record = store.get_session(key(n)).await.expect("the store answers");
        assert_eq!(record.expect("it exists").status, status);
    }
}

pub async fn sends_are_listed_and_filtered_newest_first(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 0, opening(2, 2)).await;
    accept(store, 0, sending(3, 1)).await;
    complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    assert_eq!(sends(store, all_sends()).await, (vec![3, 2, 1], false));
    let page = ListSends {
        limit: 2,
        ..all_sends()
    };
    assert_eq!(sends(store, page).await, (vec![3, 2], true));
    let behind = ListSends {
        before: Some(send(3)),
        ..all_sends()
    };
    assert_eq!(sends(store, behind).await, (vec![2, 1], false));
    let of_session = ListSends {
        session: Some(key(1).session),
        ..all_sends()
    };
    assert_eq!(sends(store, of_session.clone()).await.0, [3, 1]);
    let completed = ListSends {
        status: Some(SendStatus::Completed),
        ..all_sends()
    };
    assert_eq!(sends(store, completed).await.0, [1]);
    let both = ListSends {
        status: Some(SendStatus::Queued),
        ..of_session
    };
    assert_eq!(sends(store, both).await.0, [3]);
    let other = ListSends {
        tenant: TenantId(2),
        ..all_sends()
    };
    assert_eq!(sends(store, other).await.0, []);
}

pub async fn a_transcript_is_read_piece_by_piece(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    append(store, 30, round(&claimed, 1)).await;
    for (after, limit, expected) in [
        (0, 2, vec![1, 2]),
        (2, 2, vec![3, 4]),
        (4, 2, vec![5]),
        (5, 2, vec![]),
    ] {
        let query = ReadMessages {
            key: key(1),
            after,
            limit,
        };
        let piece = store.read_messages(query).await.expect("the store answers");
        assert_eq!(seqs(&piece), expected);
    }
    assert_eq!(transcript(store, 9).await, [], "an unknown session");
    let record = store.get_session(key(1)).await.expect("the store answers");
    assert_eq!(record.expect("it exists").messages, 5);
}

pub async fn messages_are_found_newest_first_by_send_and_by_call(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    item.round = Some(round_ref(1));
    item.totals = totals(2);
    complete(store, 30, item).await;
    accept(store, 40, sending(2, 1)).await;
    let claimed = claim(store, 41, 1, 1, 2).await;
    complete(store, 42, ending(&claimed, AfterSend::Release)).await;
    let all = transcript(store, 1).await;
    let last = all.len() as i64;
    let ask = async |query: FindMessages| {
        let found = store.find_messages(query).await.expect("the store answers");
        found.iter().map(|message| message.seq).collect::<Vec<_>>()
    };
    let any = FindMessages {
        key: key(1),
        send: None,
        call: None,
        after: 0,
        before: i64::MAX,
        limit: 100,
    };
    assert_eq!(ask(any.clone()).await, (1..=last).rev().collect::<Vec<_>>());
    let between = FindMessages {
        after: 1,
        before: last,
        limit: 2,
        ..any.clone()
    };
    assert_eq!(ask(between).await, [last - 1, last - 2]);
    let of_send = |n| FindMessages {
        send: Some(send(n)),
        ..any.clone()
    };
    for n in [1, 2] {
        let mine = all.iter().filter(|message| message.send_id == send(n));
        let mine: Vec<i64> = mine.rev().map(|message| message.seq).collect();
        assert!(!mine.is_empty());
        assert_eq!(ask(of_send(n)).await, mine);
    }
    assert!(ask(of_send(9)).await.is_empty());
    let result = all.iter().find(|message| message.tool_call_id.is_some());
    let result = result.expect("there was a call");
    let of_call = FindMessages {
        call: result.tool_call_id.clone(),
        ..any.clone()
    };
    assert_eq!(ask(of_call).await, [result.seq]);
    let foreign = FindMessages { key: key(2), ..any };
    assert!(ask(foreign).await.is_empty());
}

pub async fn steps_are_read_piece_by_piece(store: &dyn Inspect) {
    for n in 1..=3 {
        let item = if n == 1 { opening(n, 1) } else { sending(n, 1) };
        accept(store, 0, item).await;
    }
    let read = async |after, limit| {
        let steps = store.read_steps(key(1), after, limit).await;
        let steps = steps.expect("the store answers");
        steps.iter().map(|step| step.n).collect::<Vec<_>>()
    };
    assert_eq!(read(0, 2).await, [1, 2]);
    assert_eq!(read(2, 2).await, [3]);
    assert!(read(3, 2).await.is_empty());
    assert_eq!(steps(store, 9).await, [], "an unknown session");
}

pub async fn steps_are_found_by_when_they_were_committed(store: &dyn Inspect) {
    accept(store, 10, opening(1, 2)).await;
    accept(store, 10, opening(2, 1)).await;
    accept(store, 10, sending(3, 1)).await;
    accept(store, 25, sending(4, 2)).await;
    let find = async |from, until, after, limit| {
        let query = FindSteps {
            from: time(from),
            until: time(until),
            after,
            limit,
        };
        let found = store.find_steps(query).await.expect("the store answers");
        let numbers = found
            .iter()
            .map(|it| (it.key.session.0.as_u128(), it.first, it.last));
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(find(0, 100, None, 9).await, [(1, 1, 2), (2, 1, 2)]);
    assert_eq!(find(0, 100, None, 1).await, [(1, 1, 2)]);
    assert_eq!(find(0, 100, Some(key(1)), 9).await, [(2, 1, 2)]);
    assert_eq!(find(0, 100, Some(key(2)), 9).await, []);
    assert_eq!(find(11, 26, None, 9).await, [(2, 2, 2)]);
    assert_eq!(find(10, 25, None, 9).await, [(1, 1, 2), (2, 1, 1)]);
    assert_eq!(find(26, 100, None, 9).await, []);
}

pub async fn sessions_with_steps_of_one_moment_are_found_page_by_page(store: &dyn Inspect) {
    for n in 1..=7 {
        accept(store, if n < 6 { 10 } else { 20 }, opening(n, n)).await;
        // The index can be created at any time, and repeatedly.
        let indexed = store.index_steps().await;
        indexed.expect("the schema may be changed");
    }
    let mut query = FindSteps {
        from: time(0),
        until: time(100),
        after: None,
        limit: 2,
    };
    let mut sessions = Vec::new();
    loop {
        let page = store.find_steps(query.clone()).await;
        let page = page.expect("the store answers");
        sessions.extend(page.iter().map(|it| it.key.session.0.as_u128()));
        query.after = page.last().map(|it| it.key);
        if page.len() < 2 {
            break;
        }
    }
    assert_eq!(sessions, [1, 2, 3, 4, 5, 6, 7]);
    // The filter applies on every page.
    query.after = Some(key(5));
    query.from = time(15);
    let late = store.find_steps(query).await.expect("the store answers");
    assert_eq!(late.len(), 2);
}

pub async fn tenants_do_not_see_each_other(store: &dyn Inspect) {
    tenant(store, "blue").await;
    let foreign = SessionKey {
        tenant: TenantId(2),
        ..key(7)
    };
    let mut item = opening(7, 7);
    let Target::New(session) = &mut item.target else {
        unreachable!("an opening send creates its session");
    };
    session.key = foreign;
    accept(store, 0, item).await;
    accept(store, 0, opening(1, 1)).await;
    let read = store.get_session(key(7)).await.expect("the store answers");
    assert_eq!(read, None);
    let read = store.get_session(foreign).await.expect("the store answers");
    assert_eq!(read.expect("its owner sees it").key, foreign);
    assert_eq!(steps(store, 7).await, []);
    assert_eq!(sends(store, all_sends()).await.0, [1]);
    assert_eq!(sessions(store, all_sessions()).await.0, [1]);
    register(store, 1).await;
    let outcome = try_claim(store, 1, 1, 7, 1).await;
    assert_eq!(outcome, mainspring_shared::store::ClaimOutcome::Idle);
}

pub async fn stats_count_what_waits_and_runs(store: &dyn Inspect) {
    running(store).await;
    accept(store, 20, opening(2, 2)).await;
    accept(store, 50, opening(3, 3)).await;
    create(store, 4, "a", json!({})).await;
    let stats = store
        .at(time(100))
        .queue_stats()
        .await
        .expect("the store answers");
    let expected = QueueStats {
        pool: "default".to_owned(),
        ready: 2,
        running: 1,
        oldest_ready_ms: 80,
    };
    assert_eq!(stats, [expected]);
    let scaling = store.at(time(100)).scaling("default").await;
    let expected = ScalingStats {
        ready: 2,
        running: 1,
        demand: 3,
    };
    assert_eq!(scaling.expect("the store answers"), expected);
    let other = store.at(time(100)).scaling("gpu").await;
    assert_eq!(other.expect("the store answers"), ScalingStats::default());
    let orphaned = store.at(time(TTL + 1)).scaling("default").await;
    let expected = ScalingStats {
        ready: 3,
        running: 0,
        demand: 3,
    };
    assert_eq!(orphaned.expect("the store answers"), expected);
}

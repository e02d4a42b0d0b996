//! Pauses, and the sends that wait for them to end.

use mainspring_shared::id::TenantId;
use mainspring_shared::pause::{PauseKey, PauseKind, PauseRecord};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::store::{
    DeleteTenantOutcome, Inspect, ListPauses, NewPause, ParkUntil, PauseWait, RESUMED_KEPT_MS,
};

use super::prelude::*;
use super::tenants::new;

/// The key of an agent of the default tenant.
pub fn agent_key() -> PauseKey {
    PauseKey::of(TenantId::DEFAULT, PauseKind::Agent, "a")
}

/// A pause of the agent.
pub fn pausing() -> NewPause {
    NewPause {
        key: agent_key(),
        reason: Some("costs".to_owned()),
    }
}

/// Send 1 waits for this pause to end.
pub fn awaiting(pause: PauseKey) -> PauseWait {
    PauseWait {
        tenant: TenantId::DEFAULT,
        send: send(1),
        pause,
    }
}

async fn pause(store: &dyn Inspect, ms: i64, key: &PauseKey, reason: Option<&str>) -> PauseRecord {
    let item = NewPause {
        key: key.clone(),
        reason: reason.map(str::to_owned),
    };
    store.at(time(ms)).pause(item).await.expect("pauses")
}

async fn resume(store: &dyn Inspect, ms: i64, key: &PauseKey) {
    let resumed = store.at(time(ms)).resume(key.clone()).await;
    resumed.expect("resumes");
}

async fn listed(store: &dyn Inspect, tenant: Option<TenantId>) -> Vec<PauseRecord> {
    let query = ListPauses {
        tenant,
        after: None,
        limit: 100,
    };
    let page = store.list_pauses(query).await.expect("lists");
    assert!(!page.more);
    page.data
}

async fn note(store: &dyn Inspect, ms: i64, item: PauseWait) {
    let noted = store.at(time(ms)).await_resume(item).await;
    noted.expect("notes");
}

async fn wake(store: &dyn Inspect, ms: i64, limit: u32) -> u32 {
    let woken = store.at(time(ms)).wake_paused(limit).await;
    woken.expect("the store answers")
}

/// Parks send 1 because of a pause, until 10 000.
pub(super) async fn parked(store: &dyn Inspect, pause: &PauseKey) {
    let claimed = running(store).await;
    note(store, 20, awaiting(pause.clone())).await;
    let item = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(9_980)));
    park(store, 20, item).await;
    assert_eq!(stored(store, 1).await.alarm_at, at(10_000));
}

pub async fn a_pause_is_listed_until_it_ends(store: &dyn Inspect) {
    let key = agent_key();
    assert_eq!(listed(store, None).await, []);
    let record = pause(store, 10, &key, Some("costs")).await;
    let expected = PauseRecord {
        key: key.clone(),
        reason: Some("costs".to_owned()),
        created_at: time(10),
    };
    assert_eq!(record, expected);
    assert_eq!(listed(store, None).await, std::slice::from_ref(&expected));
    // A repeat changes only the reason, if it gives one.
    assert_eq!(pause(store, 20, &key, None).await, expected);
    let other = pause(store, 30, &key, Some("load")).await;
    assert_eq!(other.reason.as_deref(), Some("load"));
    assert_eq!(other.created_at, time(10));
    resume(store, 40, &key).await;
    resume(store, 50, &key).await;
    assert_eq!(listed(store, None).await, []);
    // Pausing again starts anew, without the old reason.
    let again = pause(store, 60, &key, None).await;
    assert_eq!((again.reason, again.created_at), (None, time(60)));
    assert_eq!(listed(store, None).await.len(), 1);
}

pub async fn what_is_not_paused_can_be_resumed(store: &dyn Inspect) {
    resume(store, 10, &agent_key()).await;
    assert_eq!(listed(store, None).await, []);
}

pub async fn pauses_are_listed_in_the_order_of_their_keys(store: &dyn Inspect) {
    let blue = TenantId(2);
    let keys = [
        PauseKey::of(TenantId::DEFAULT, PauseKind::Agent, "B"),
        PauseKey::of(TenantId::DEFAULT, PauseKind::Agent, "a"),
        PauseKey::of_system(PauseKind::Pool, "gpu"),
        PauseKey::of_system(PauseKind::Provider, "main"),
        PauseKey::of(TenantId::DEFAULT, PauseKind::Tool, "a.b"),
        PauseKey::tenant(blue),
        PauseKey::of(blue, PauseKind::Tool, "x"),
    ];
    for key in keys.iter().rev() {
        pause(store, 10, key, None).await;
    }
    let found: Vec<_> = listed(store, None).await;
    let found: Vec<_> = found.into_iter().map(|record| record.key).collect();
    assert_eq!(found, keys);
    let mine = listed(store, Some(blue)).await;
    assert_eq!(mine.len(), 2);
    assert!(mine.iter().all(|record| record.key.tenant == blue));
    let mut read = Vec::new();
    let mut after = None;
    loop {
        let query = ListPauses {
            tenant: None,
            after: after.clone(),
            limit: 2,
        };
        let page = store.list_pauses(query).await.expect("lists");
        read.extend(page.data.into_iter().map(|record| record.key));
        after = read.last().cloned();
        if !page.more {
            break;
        }
    }
    assert_eq!(read, keys);
}

pub async fn a_send_is_woken_when_its_pause_ends(store: &dyn Inspect) {
    let key = agent_key();
    pause(store, 15, &key, None).await;
    parked(store, &key).await;
    assert_eq!(wake(store, 30, 10).await, 0);
    assert_eq!(stored(store, 1).await.alarm_at, at(10_000));
    resume(store, 40, &key).await;
    assert_eq!(wake(store, 50, 10).await, 1);
    let record = stored(store, 1).await;
    assert_eq!(
        (record.status, record.alarm_at),
        (SendStatus::Waiting, at(50))
    );
    let swept = store.at(time(60)).sweep_alarms(boot(SCHEDULER), 10).await;
    assert_eq!(
        one(swept.expect("serves").enqueue).key,
        super::prelude::key(1)
    );
    assert_eq!(wake(store, 70, 10).await, 0);
}

pub async fn a_send_that_parks_after_the_end_of_its_pause_is_woken(store: &dyn Inspect) {
    let key = agent_key();
    pause(store, 5, &key, None).await;
    let claimed = running(store).await;
    note(store, 20, awaiting(key.clone())).await;
    resume(store, 30, &key).await;
    // It is still running, so waking keeps the note.
    assert_eq!(wake(store, 40, 10).await, 0);
    let item = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(9_950)));
    park(store, 50, item).await;
    assert_eq!(wake(store, 60, 10).await, 1);
    assert_eq!(stored(store, 1).await.alarm_at, at(60));
}

pub async fn a_send_that_waits_for_something_else_is_not_woken(store: &dyn Inspect) {
    let key = agent_key();
    pause(store, 5, &key, None).await;
    let claimed = running(store).await;
    note(store, 20, awaiting(key.clone())).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::After(millis(9_980)));
    park(store, 20, item).await;
    resume(store, 30, &key).await;
    assert_eq!(wake(store, 40, 10).await, 1, "its note goes");
    assert_eq!(stored(store, 1).await.alarm_at, at(10_000));
}

pub async fn a_later_note_takes_the_place_of_the_one_before(store: &dyn Inspect) {
    let (first, second) = (agent_key(), PauseKey::of_system(PauseKind::Provider, "p"));
    pause(store, 5, &first, None).await;
    pause(store, 5, &second, None).await;
    parked(store, &first).await;
    note(store, 25, awaiting(second.clone())).await;
    resume(store, 30, &first).await;
    assert_eq!(wake(store, 40, 10).await, 0);
    resume(store, 50, &second).await;
    assert_eq!(wake(store, 60, 10).await, 1);
}

pub async fn sends_are_woken_piece_by_piece(store: &dyn Inspect) {
    let key = agent_key();
    pause(store, 5, &key, None).await;
    register(store, 1).await;
    for n in 1..=5 {
        accept(store, 0, opening(n, n)).await;
        let claimed = claim(store, 10, 1, n, n).await;
        let item = PauseWait {
            send: send(n),
            ..awaiting(key.clone())
        };
        note(store, 20, item).await;
        let item = waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(9_980)));
        park(store, 20, item).await;
    }
    resume(store, 30, &key).await;
    assert_eq!(wake(store, 40, 2).await, 2);
    assert_eq!(wake(store, 40, 2).await, 2);
    assert_eq!(wake(store, 40, 2).await, 1);
    for n in 1..=5 {
        assert_eq!(stored(store, n).await.alarm_at, at(40), "send {n}");
    }
}

pub async fn a_paused_send_that_was_cancelled_leaves_its_note(store: &dyn Inspect) {
    let key = agent_key();
    pause(store, 5, &key, None).await;
    parked(store, &key).await;
    cancel(store, 25, 1).await;
    assert_eq!(stored(store, 1).await.status, SendStatus::Cancelled);
    resume(store, 30, &key).await;
    assert_eq!(wake(store, 40, 10).await, 1);
    assert_eq!(stored(store, 1).await.alarm_at, None);
}

pub async fn a_pause_that_ended_is_remembered_for_late_notes(store: &dyn Inspect) {
    let key = agent_key();
    pause(store, 5, &key, None).await;
    resume(store, 6, &key).await;
    assert_eq!(wake(store, 7 + RESUMED_KEPT_MS - 10, 10).await, 0);
    parked(store, &key).await;
    // It is not forgotten while a send waits for it.
    assert_eq!(wake(store, 7 + RESUMED_KEPT_MS, 10).await, 1);
    assert_eq!(wake(store, 7 + RESUMED_KEPT_MS, 10).await, 0);
    note(store, 30, awaiting(key.clone())).await;
    assert_eq!(
        wake(store, 8 + RESUMED_KEPT_MS, 10).await,
        0,
        "it is forgotten"
    );
}

pub async fn the_pauses_of_a_tenant_go_with_it(store: &dyn Inspect) {
    let created = store.at(time(0)).create_tenant(new("blue"), None).await;
    created.expect("creates");
    let blue = TenantId(2);
    pause(store, 5, &PauseKey::tenant(blue), None).await;
    pause(store, 5, &PauseKey::of(blue, PauseKind::Tool, "x"), None).await;
    pause(store, 5, &agent_key(), None).await;
    let deleted = store.at(time(10)).delete_tenant(blue).await;
    assert_eq!(deleted.expect("deletes"), DeleteTenantOutcome::Deleted);
    let left = listed(store, None).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].key, agent_key());
}

use futures::FutureExt;
use mainspring_runtime::SystemClock;
use mainspring_shared::id::SessionId;
use mainspring_store_model::ModelStore;
use uuid::Uuid;

use super::*;

fn watch() -> Watch {
    Watch::new(Arc::new(ModelStore::open(Arc::new(SystemClock::new()))))
}

fn notice(n: u128, settled: bool) -> StepNotice {
    let key = SessionKey {
        tenant: TenantId::DEFAULT,
        session: SessionId(Uuid::from_u128(n)),
    };
    StepNotice::new(key, SendId(Uuid::from_u128(n)), 1, settled)
}

#[tokio::test]
async fn a_settled_notice_wakes_only_watchers_of_that_send() {
    let watch = watch();
    let one = watch.send(SendId(Uuid::from_u128(1)));
    let other = watch.send(SendId(Uuid::from_u128(2)));
    watch.step_committed(&notice(1, false));
    assert!(one.woken().now_or_never().is_none());
    watch.step_committed(&notice(1, true));
    assert!(one.woken().now_or_never().is_some());
    assert!(other.woken().now_or_never().is_none());
}

#[tokio::test]
async fn only_the_watchers_of_a_deleted_session_are_told_that_it_is_gone() {
    let watch = watch();
    let one = watch.session(notice(1, false).key);
    let other = watch.session(notice(2, false).key);
    watch.step_committed(&notice(1, true));
    assert!(one.woken().now_or_never().is_some() && !one.is_gone());
    watch.step_committed(&StepNotice::deleted(one.key()));
    assert!(one.woken().now_or_never().is_some() && one.is_gone());
    assert!(other.woken().now_or_never().is_none() && !other.is_gone());
}

#[tokio::test]
async fn several_wakes_before_a_read_are_one() {
    let watch = watch();
    let one = watch.session(notice(1, false).key);
    watch.step_committed(&notice(1, false));
    watch.step_committed(&notice(1, true));
    assert!(one.woken().now_or_never().is_some());
    assert!(one.woken().now_or_never().is_none());
}

#[tokio::test]
async fn every_watcher_is_woken_within_the_safety_interval() {
    let watch = watch();
    let all: Vec<_> = (0..100)
        .map(|n| watch.send(SendId(Uuid::from_u128(n))))
        .collect();
    for slice in 0..SLICES {
        watch.sends.wake_where(|hash| hash % SLICES == slice);
    }
    assert!(all.iter().all(|one| one.woken().now_or_never().is_some()));
    assert_eq!(SAFETY, Duration::from_secs(2));
}

#[tokio::test]
async fn only_sessions_of_which_more_is_expected_are_never_quiet() {
    let watch = watch();
    let one = watch.session(notice(1, false).key);
    let other = watch.session(notice(2, false).key);
    one.expects(true);
    let keys = [one.key(), other.key()];
    assert_eq!(watch.sessions.expecting(&keys), HashSet::from([one.key()]));
    // A second watcher of it expects nothing.
    let _second = watch.session(one.key());
    assert_eq!(watch.sessions.expecting(&keys), HashSet::from([one.key()]));
    one.expects(false);
    assert_eq!(watch.sessions.expecting(&keys), HashSet::new());
}

#[tokio::test]
async fn every_session_is_in_one_slice() {
    let watch = watch();
    let all: Vec<_> = (0..100)
        .map(|n| watch.session(notice(n, false).key))
        .collect();
    let slices =
        (0..SLICES).flat_map(|slice| watch.sessions.keys(move |hash| hash % SLICES == slice));
    let mut keys: Vec<_> = slices.collect();
    let mut expected: Vec<_> = all.iter().map(Watcher::key).collect();
    keys.sort();
    expected.sort();
    assert_eq!(keys, expected);
}

#[test]
fn quiet_sessions_are_looked_at_more_rarely_until_they_have_a_step() {
    let turns = |looked: &mut Looked, step| {
        let turns = (1..=8).find(|_| looked.is_due()).expect("some turn");
        (turns, looked.note(step))
    };
    let mut looked = Looked::new(7);
    let periods: Vec<u32> = (0..9).map(|_| turns(&mut looked, 7).0).collect();
    assert_eq!(periods, [1, 1, 2, 2, 4, 4, 8, 8, 8], "of two seconds");
    assert_eq!(turns(&mut looked, 8), (8, true));
    assert_eq!(turns(&mut looked, 8), (1, false));
}

#[tokio::test]
async fn a_dropped_watcher_is_unregistered() {
    let watch = watch();
    let one = watch.send(SendId(Uuid::from_u128(1)));
    let two = watch.send(SendId(Uuid::from_u128(1)));
    drop(one);
    assert_eq!(watch.sends.lock().len(), 1);
    drop(two);
    assert!(watch.sends.lock().is_empty());
}

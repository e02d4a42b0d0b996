//! Properties that hold along any history of a session.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;

fn check(before: &Scene, change: &Change, after: &Scene) -> TestCaseResult {
    let (old, new) = (&before.hot, &change.hot);
    let deleted = new.lifecycle == Lifecycle::Deleted;
    // A queued send has an owner only between an end and the next start in the same transaction.
    let between = change.end.is_some() && new.owner.is_some();
    prop_assert!(between || after.place() != "unsound", "an unsound state");
    let queued = after
        .sends
        .iter()
        .filter(|send| send.status == SendStatus::Queued && send.position.is_some());
    let queued = i64::try_from(queued.count()).unwrap_or(i64::MAX);
    prop_assert!(
        deleted || new.pending == queued,
        "pending is the queued sends"
    );
    let active = after.sends.iter().filter(|send| send.is_active());
    prop_assert!(active.count() <= 1, "two sends are active");
    prop_assert_eq!(new.owner.is_some(), new.token.is_some());
    prop_assert!(new.epoch >= old.epoch && new.epoch <= old.epoch + 1);
    prop_assert!(new.next_position >= old.next_position);
    prop_assert_eq!(
        new.next_step,
        old.next_step + i64::from(change.step.is_some())
    );
    if let Some(step) = &change.step {
        prop_assert_eq!(step.n, old.next_step);
        prop_assert!(
            step.epoch == 0 || step.epoch == new.epoch,
            "an epoch of the past"
        );
    }
    if let Some(ready) = &change.notify.ready {
        prop_assert_eq!(Some(ready.ready_since), new.ready_since, "not ready");
    }
    if let Some(send) = &change.send {
        let known = before.sends.iter().find(|known| known.id == send.id);
        let was_final = known.is_some_and(|known| known.status.is_final());
        prop_assert!(!was_final || known.map(|known| known.status) == Some(send.status));
        prop_assert_eq!(change.end.is_some(), send.status.is_final() && !was_final);
        prop_assert_eq!(
            send.waiting_on.is_some(),
            send.status == SendStatus::Waiting
        );
        prop_assert_eq!(send.finished_at.is_some(), send.status.is_final());
        if send.cancel_requested && change.end.is_some() {
            prop_assert_eq!(send.status, SendStatus::Cancelled);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_history_keeps_a_session_sound(
        picks in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..60),
    ) {
        let events = matrix::events();
        let mut scene = Scene::idle();
        for (pick, owner_lives) in picks {
            scene.owner_lives = owner_lives;
            let (_, run) = pick.get(&events);
            let changes = run(&scene).unwrap_or_default();
            // Later changes of the same transaction were decided from the row without new messages.
            let writes = changes.len() == 1;
            for change in changes {
                let wrote = u32::from(writes && change.step.is_some()) * 2;
                let change = change.with_messages(wrote);
                let after = scene.after(&change);
                check(&scene, &change, &after)?;
                prop_assert_eq!(change.hot.next_seq, scene.hot.next_seq + i64::from(wrote));
                scene = after;
            }
        }
    }
}

//! Windows and pruned transcripts, for workers that have the session cached and for those that do not.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ContextSpec};
use mainspring_shared::store::{PruneOutcome, PruneSession, PruneTo, prune_all};
use mainspring_tests::world::{Asked, World};

#[tokio::test(start_paused = true)]
async fn a_bounded_window_is_the_same_for_a_warm_and_a_cold_worker() {
    let world = World::new().await;
    let context = ContextSpec {
        last_messages: Some(5),
        ..ContextSpec::default()
    };
    let agent = AgentSpec {
        context,
        ..AgentSpec::default()
    };
    let (warm, cold) = (
        world.session(agent.clone()).await,
        world.session(agent).await,
    );
    let keeper = world.worker("keeper", world.store.clone());
    for n in 0..6 {
        let text = if n % 3 == 1 {
            format!("tools {n}")
        } else {
            format!("n{n}")
        };
        let id = world.send(warm, &text).await;
        world.settle(&[id]).await;
    }
    keeper.shut_down(Duration::from_mins(1)).await;
    let asked_warm = world.script.ledger();
    for n in 0..6 {
        let worker = world.worker(&format!("w{n}"), world.store.clone());
        let text = if n % 3 == 1 {
            format!("tools {n}")
        } else {
            format!("n{n}")
        };
        let id = world.send(cold, &text).await;
        world.settle(&[id]).await;
        worker.shut_down(Duration::from_mins(1)).await;
    }
    let asked = world.script.ledger();
    // Ids and times differ between sessions.
    let words = |asked: &Asked| (asked.system.clone(), asked.transcript.clone());
    let cold: Vec<_> = asked[asked_warm.len()..].iter().map(words).collect();
    assert_eq!(cold, asked_warm.iter().map(words).collect::<Vec<_>>());
    // A send's window starts with at most five messages, plus a call that precedes them.
    let first_of = |pair: &[Asked]| pair[1].messages.len() <= 6;
    let moved = asked_warm.windows(2).filter(|pair| {
        let (before, after) = (&pair[0].transcript, &pair[1].transcript);
        let goes_on = after.starts_with(before);
        assert!(goes_on || first_of(pair), "{before:?} {after:?}");
        !goes_on
    });
    let moved = moved.count();
    assert!(moved > 0, "the window never moved");
    assert!(
        moved < asked_warm.len() / 2,
        "the window moved {moved} times"
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_pruned_transcript_is_the_same_for_a_warm_and_a_cold_worker() {
    let world = World::new().await;
    let warm = world.session(AgentSpec::default()).await;
    let cold = world.session(AgentSpec::default()).await;
    let say = async |key, words: &str| {
        let id = world.send(key, words).await;
        world.settle(&[id]).await;
    };
    let prune = async |key| {
        let item = PruneSession {
            key,
            to: PruneTo::KeepLast(2),
            dry_run: false,
            limit: 1,
        };
        let pruned = prune_all(world.store.as_ref(), item).await;
        assert!(matches!(
            pruned.expect("the store answers"),
            PruneOutcome::Pruned { removed: 4, .. }
        ));
    };
    let keeper = world.worker("keeper", world.store.clone());
    for key in [warm, cold] {
        for words in ["one", "two", "three"] {
            say(key, words).await;
        }
        prune(key).await;
    }
    say(warm, "four").await;
    keeper.shut_down(Duration::from_mins(1)).await;
    let _fresh = world.worker("fresh", world.store.clone());
    say(cold, "four").await;
    let asked = world.script.ledger();
    let [.., by_warm, by_cold] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(by_warm.transcript, by_cold.transcript);
    assert_eq!(by_warm.transcript.len(), 3, "two messages and the new one");
    world.audit().await;
}

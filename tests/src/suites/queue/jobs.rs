//! Cases of the queue.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::queue::{Activation, Queue};
use tokio::time::Instant;

use super::harness::{
    Recorder, Worker, activations, high, low, pause, pool, push, session, sessions, until,
};

pub async fn a_pushed_session_reaches_the_handler(queue: Arc<dyn Queue>) {
    let (pool, recorder, key) = (pool(), Recorder::ready(), session());
    let worker = Worker::start(&queue, &pool, &recorder);
    push(&*queue, &high(&pool), &[key]).await;
    recorder.saw(&[key]).await;
    assert!(queue.is_available());
    worker.stop().await;
}

pub async fn every_session_of_a_large_push_arrives(queue: Arc<dyn Queue>) {
    let (pool, recorder) = (pool(), Recorder::ready());
    let keys = sessions(1_200);
    // With one session, with several, with none, and with more than a job may name.
    let mut pushed = activations(&keys[..400]);
    pushed.extend(keys[400..800].chunks(16).map(|keys| Activation {
        sessions: keys.to_vec(),
    }));
    pushed.push(Activation { sessions: vec![] });
    pushed.push(Activation {
        sessions: keys[800..].to_vec(),
    });
    let worker = Worker::start(&queue, &pool, &recorder);
    let lane = high(&pool);
    until("a connection", || async { queue.is_available() }).await;
    until("a push", || queue.push(&lane, pushed.clone())).await;
    recorder.saw(&keys).await;
    worker.stop().await;
}

pub async fn both_lanes_and_only_this_pool_are_served(queue: Arc<dyn Queue>) {
    let (mine, other, recorder) = (pool(), pool(), Recorder::ready());
    let keys = sessions(3);
    let worker = Worker::start(&queue, &mine, &recorder);
    push(&*queue, &high(&other), &keys[2..]).await;
    push(&*queue, &low(&mine), &keys[..1]).await;
    push(&*queue, &high(&mine), &keys[1..2]).await;
    recorder.saw(&keys[..2]).await;
    assert!(!recorder.admitted().contains(&keys[2]));
    assert_eq!(queue.depth(&high(&other)).await, Some(1));
    worker.stop().await;
}

pub async fn depth_counts_what_waits(queue: Arc<dyn Queue>) {
    let (pool, recorder, keys) = (pool(), Recorder::ready(), sessions(5));
    push(&*queue, &low(&pool), &keys).await;
    assert_eq!(queue.depth(&low(&pool)).await, Some(5));
    assert_eq!(queue.depth(&high(&pool)).await, Some(0));
    let worker = Worker::start(&queue, &pool, &recorder);
    recorder.saw(&keys).await;
    assert_eq!(queue.depth(&low(&pool)).await, Some(0));
    worker.stop().await;
}

pub async fn a_panicking_handler_stops_nobody(queue: Arc<dyn Queue>) {
    let (pool, recorder) = (pool(), Recorder::ready());
    let (bad, good) = (sessions(20), sessions(20));
    for key in &bad {
        recorder.panic_on(*key);
    }
    let worker = Worker::start(&queue, &pool, &recorder);
    push(&*queue, &high(&pool), &bad).await;
    push(&*queue, &high(&pool), &good).await;
    recorder.saw(&good).await;
    push(&*queue, &low(&pool), &bad[..1]).await;
    push(&*queue, &low(&pool), &good[..1]).await;
    until("all jobs", || async { recorder.called() >= 42 }).await;
    assert_eq!(recorder.called(), 42, "no job is run again");
    worker.stop().await;
}

pub async fn what_waits_for_a_slot_in_the_high_lane_goes_first(queue: Arc<dyn Queue>) {
    let (pool, recorder) = (pool(), Recorder::new(1, 3));
    let (first, second) = (sessions(60), sessions(60));
    push(&*queue, &low(&pool), &second).await;
    push(&*queue, &high(&pool), &first).await;
    let worker = Worker::start(&queue, &pool, &recorder);
    recorder.saw(&first).await;
    let low_before = |key| second.contains(key);
    let seen = recorder.admitted();
    let end = seen
        .iter()
        .rposition(|key| first.contains(key))
        .expect("they arrived");
    let early = seen[..end].iter().filter(|key| low_before(key)).count();
    assert!(early <= 20, "{early} low jobs among the high ones");
    recorder.saw(&second).await;
    worker.stop().await;
}

pub async fn handlers_that_wait_bound_what_is_fetched(queue: Arc<dyn Queue>) {
    let (pool, recorder, keys) = (pool(), Recorder::new(0, 0), sessions(60));
    let worker = Worker::start(&queue, &pool, &recorder);
    push(&*queue, &high(&pool), &keys).await;
    until("handlers that wait", || async { recorder.called() >= 4 }).await;
    // Long enough for further handlers to start.
    pause(300).await;
    assert!(
        recorder.called() <= 8,
        "{} handlers at once",
        recorder.called()
    );
    let depth = queue.depth(&high(&pool)).await;
    assert!(depth.is_some_and(|depth| depth >= 52), "{depth:?}");
    recorder.open(100);
    recorder.saw(&keys).await;
    worker.stop().await;
}

pub async fn a_stop_is_prompt_and_leaves_the_rest_to_another_worker(queue: Arc<dyn Queue>) {
    let (pool, keys) = (pool(), sessions(60));
    // Some are admitted, then it is full.
    let (first, second) = (Recorder::new(1, 30), Recorder::ready());
    let worker = Worker::start(&queue, &pool, &first);
    push(&*queue, &high(&pool), &keys[..30]).await;
    push(&*queue, &low(&pool), &keys[30..]).await;
    until("some work", || async { first.admitted().len() >= 5 }).await;
    let stopped = Instant::now();
    worker.stop().await;
    assert!(
        stopped.elapsed() < Duration::from_millis(2_500),
        "{:?}",
        stopped.elapsed()
    );
    let done = first.admitted();
    assert!(done.len() < keys.len(), "it was not stopped in the middle");
    let successor = Worker::start(&queue, &pool, &second);
    let rest: Vec<_> = keys
        .iter()
        .filter(|key| !done.contains(key))
        .copied()
        .collect();
    second.saw(&rest).await;
    successor.stop().await;
}

pub async fn two_workers_share_a_pool(queue: Arc<dyn Queue>) {
    let (pool, keys) = (pool(), sessions(200));
    let recorders = [Recorder::new(4, 2), Recorder::new(4, 2)];
    let workers = recorders
        .each_ref()
        .map(|recorder| Worker::start(&queue, &pool, recorder));
    push(&*queue, &high(&pool), &keys).await;
    until("all sessions", || async {
        let mut seen = recorders[0].admitted();
        seen.extend(recorders[1].admitted());
        keys.iter().all(|key| seen.contains(key))
    })
    .await;
    for recorder in &recorders {
        assert!(
            !recorder.admitted().is_empty(),
            "one worker had nothing to do"
        );
    }
    for worker in workers {
        worker.stop().await;
    }
}

/// A worker without a free handler may be notified of new jobs, but does not keep them from others.
pub async fn a_full_worker_leaves_new_jobs_to_an_idle_one(queue: Arc<dyn Queue>) {
    let (pool, full, idle) = (pool(), Recorder::new(0, 0), Recorder::ready());
    let worker = Worker::start(&queue, &pool, &full);
    // Six handlers and one prefetched job: it takes no more.
    let kept = sessions(7 * 16);
    for sessions in kept.chunks(16) {
        push(&*queue, &high(&pool), sessions).await;
    }
    until("handlers that wait", || async { full.called() >= 6 }).await;
    let other = Worker::start(&queue, &pool, &idle);
    let first = session();
    push(&*queue, &high(&pool), &[first]).await;
    idle.saw(&[first]).await;
    let mut waits = Vec::new();
    for _ in 0..15 {
        let (key, begun) = (session(), Instant::now());
        push(&*queue, &high(&pool), &[key]).await;
        idle.saw(&[key]).await;
        waits.push(begun.elapsed());
    }
    waits.sort();
    // A worker that polls once a second would take half a second.
    assert!(waits[7] < Duration::from_millis(100), "{waits:?}");
    full.open(1_000);
    for worker in [worker, other] {
        worker.stop().await;
    }
}

/// A worker whose handlers all wait still takes what is pushed ahead; what it sends to the back
/// waits with the rest.
pub async fn what_goes_ahead_passes_what_waits_for_a_slot(queue: Arc<dyn Queue>) {
    let (pool, recorder) = (pool(), Recorder::new(0, 0));
    let lane = high(&pool);
    let worker = Worker::start(&queue, &pool, &recorder);
    let kept = sessions(20 * 16);
    for sessions in kept.chunks(16) {
        push(&*queue, &lane, sessions).await;
    }
    until("handlers that wait", || async { recorder.called() >= 6 }).await;
    // They go to the back of the queue until the worker has announced that it accepts sessions ahead.
    until("one that passes", || async {
        let key = session();
        assert!(queue.push_ahead(&lane, activations(&[key])).await);
        pause(50).await;
        recorder.admitted().contains(&key)
    })
    .await;
    let (light, heavy) = (sessions(20), session());
    recorder.send_behind(heavy);
    for key in [heavy].iter().chain(&light) {
        assert!(queue.push_ahead(&lane, activations(&[*key])).await);
    }
    recorder.saw(&light).await;
    assert!(!recorder.admitted().contains(&heavy));
    recorder.open(1_000);
    recorder.saw(&kept).await;
    recorder.saw(&[heavy]).await;
    worker.stop().await;
}

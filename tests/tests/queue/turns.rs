//! Fair queueing over a FIFO like both of our queues, in front of workers with slots, on a paused
//! clock.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use mainspring_runtime::FairQueue;
use mainspring_shared::agent::Priority;
use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::queue::{ACTIVATION_SESSIONS_MAX, Activation, Handler, Lane, Queue};
use mainspring_shared::time::{Clock, Timestamp};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use uuid::Uuid;

/// More sessions than a process buffers for a lane.
const VERY_MANY: u128 = 17_000;

/// How long a send takes.
const SEND: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct TokioClock(Instant);

#[async_trait]
impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp(i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A FIFO queue in memory.
#[derive(Debug, Default)]
struct Fifo {
    jobs: Mutex<VecDeque<Activation>>,
    came: Notify,
    away: std::sync::atomic::AtomicBool,
    looks: std::sync::atomic::AtomicUsize,
    put: std::sync::atomic::AtomicUsize,
    ahead: Mutex<Vec<SessionKey>>,
}

impl Fifo {
    async fn take(&self) -> Activation {
        loop {
            let job = self
                .jobs
                .lock()
                .expect("nothing panics under it")
                .pop_front();
            match job {
                Some(job) => return job,
                None => self.came.notified().await,
            }
        }
    }

    fn sessions(&self) -> Vec<SessionKey> {
        let jobs = self.jobs.lock().expect("nothing panics under it");
        jobs.iter().flat_map(|job| job.sessions.clone()).collect()
    }
}

#[async_trait]
impl Queue for Fifo {
    async fn push(&self, _: &Lane, activations: Vec<Activation>) -> bool {
        self.put
            .fetch_add(activations.len(), std::sync::atomic::Ordering::Relaxed);
        self.jobs
            .lock()
            .expect("nothing panics under it")
            .extend(activations);
        self.came.notify_waiters();
        self.came.notify_one();
        true
    }

    async fn push_ahead(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        let sessions = activations.iter().flat_map(|job| job.sessions.clone());
        self.ahead
            .lock()
            .expect("nothing panics under it")
            .extend(sessions);
        self.push(lane, activations).await
    }

    async fn depth(&self, _: &Lane) -> Option<u64> {
        use std::sync::atomic::Ordering::Relaxed;
        self.looks.fetch_add(1, Relaxed);
        (!self.away.load(Relaxed))
            .then(|| self.jobs.lock().expect("nothing panics under it").len() as u64)
    }

    fn is_available(&self) -> bool {
        true
    }

    async fn run(&self, _: &str, _: Arc<dyn Handler>, stop: BoxFuture<'static, ()>) {
        stop.await;
    }
}

type Ends = Arc<Mutex<HashMap<SessionKey, Duration>>>;

/// A worker: six handlers that each admit one job at a time, and `slots` slots. Sends of tenant 1
/// take between half and one and a half times as long as others, so that they do not all end at
/// once.
fn work(fifo: &Arc<Fifo>, clock: &Arc<TokioClock>, slots: usize, takes: Duration) -> Ends {
    let ends = Ends::default();
    let slots = Arc::new(Semaphore::new(slots));
    for _ in 0..6 {
        let (fifo, clock) = (fifo.clone(), clock.clone());
        let (slots, ends) = (slots.clone(), ends.clone());
        tokio::spawn(async move {
            loop {
                for key in fifo.take().await.sessions {
                    let slot = slots.clone().acquire_owned().await.expect("it stays open");
                    let (clock, ends) = (clock.clone(), ends.clone());
                    let n = u32::try_from(key.session.0.as_u128() * 37 % 101).expect("small");
                    let takes = if key.tenant.0 == 1 {
                        takes / 2 + takes * n / 100
                    } else {
                        takes
                    };
                    tokio::spawn(async move {
                        clock.sleep(takes).await;
                        ends.lock()
                            .expect("nothing panics under it")
                            .insert(key, clock.monotonic());
                        drop(slot);
                    });
                }
            }
        });
    }
    ends
}

fn lane() -> Lane {
    Lane {
        pool: "default".to_owned(),
        priority: Priority::High,
    }
}

fn key(tenant: i32, n: u128) -> SessionKey {
    SessionKey {
        tenant: TenantId(tenant),
        session: SessionId(Uuid::from_u128(n)),
    }
}

fn jobs(tenant: i32, ns: std::ops::Range<u128>) -> Vec<Activation> {
    let sessions: Vec<SessionKey> = ns.map(|n| key(tenant, n)).collect();
    let jobs = sessions.chunks(ACTIVATION_SESSIONS_MAX);
    jobs.map(|sessions| Activation {
        sessions: sessions.to_vec(),
    })
    .collect()
}

/// The 95th percentile latency of a quiet tenant that enqueues one send every tenth of a second,
/// while another tenant floods the lane with `flood` sends.
async fn quiet_p95(is_fair: bool, flood: u128) -> Duration {
    let clock = Arc::new(TokioClock(Instant::now()));
    let fifo = Arc::new(Fifo::default());
    let ends = work(&fifo, &clock, 64, SEND);
    let queue: Arc<dyn Queue> = if is_fair {
        Arc::new(FairQueue::new(fifo.clone(), clock.clone()))
    } else {
        fifo.clone()
    };
    queue.push(&lane(), jobs(1, 0..flood)).await;
    // Skip the start, when the lane's drain rate is still unknown.
    clock.sleep(3 * SEND).await;
    let mut began = Vec::new();
    for n in 0..100 {
        began.push((key(2, n), clock.monotonic()));
        queue.push(&lane(), jobs(2, n..n + 1)).await;
        clock.sleep(Duration::from_millis(100)).await;
    }
    clock.sleep(120 * SEND).await;
    let ends = ends.lock().expect("nothing panics under it");
    let mut took: Vec<Duration> = began
        .iter()
        .map(|(key, began)| ends[key].saturating_sub(*began))
        .collect();
    took.sort_unstable();
    assert_eq!(took.len(), 100, "none was lost");
    took[94]
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_floods_hardly_delays_another_one() {
    // A hundred times the 64 sends that are in flight at once.
    let flood = 6_400;
    let alone = quiet_p95(true, 0).await;
    let beside = quiet_p95(true, flood).await;
    let unfair = quiet_p95(false, flood).await;
    assert_eq!(alone, SEND, "nobody waits alone");
    assert!(beside <= SEND.mul_f64(1.25), "{beside:?}");
    assert!(unfair > 50 * SEND, "without turns: {unfair:?}");
}

#[tokio::test(start_paused = true)]
async fn one_tenant_alone_keeps_every_slot_busy() {
    for (takes, sends) in [(SEND, 6_400), (Duration::from_millis(20), 64_000)] {
        let clock = Arc::new(TokioClock(Instant::now()));
        let fifo = Arc::new(Fifo::default());
        let ends = work(&fifo, &clock, 64, takes);
        let queue = FairQueue::new(fifo.clone(), clock.clone());
        // Enqueue as much as is buffered at once, as the sweep does.
        let mut pushed = 0;
        while pushed < sends {
            let more = (sends - pushed).min(4_096);
            if queue.depth(&lane()).await.expect("it is there") < 512 {
                assert!(queue.push(&lane(), jobs(1, pushed..pushed + more)).await);
                pushed += more;
            }
            clock.sleep(Duration::from_millis(50)).await;
        }
        while ends.lock().expect("nothing panics under it").len() < sends as usize {
            clock.sleep(Duration::from_millis(5)).await;
        }
        let ideal = takes * u32::try_from(sends / 64).expect("it is there");
        let took = clock.monotonic();
        assert!(
            took <= ideal.mul_f64(1.05) + 2 * takes + Duration::from_millis(100),
            "{took:?} of {ideal:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn tenants_that_flood_share_by_their_weights() {
    let clock = Arc::new(TokioClock(Instant::now()));
    let fifo = Arc::new(Fifo::default());
    let ends = work(&fifo, &clock, 16, SEND);
    let queue = FairQueue::new(fifo.clone(), clock.clone());
    queue.weigh(TenantId(2), 3);
    for tenant in [1, 2] {
        queue.push(&lane(), jobs(tenant, 0..2_000)).await;
    }
    clock.sleep(60 * SEND).await;
    let ends = ends.lock().expect("nothing panics under it");
    let of = |tenant: i32| ends.keys().filter(|key| key.tenant.0 == tenant).count();
    let (one, two) = (of(1), of(2));
    assert!(one + two >= 58 * 16, "{one} {two}");
    let ratio = two as f64 / one as f64;
    assert!((2.6..3.4).contains(&ratio), "{one} {two}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_waits_is_not_kept_twice_and_the_lane_stays_short() {
    let clock = Arc::new(TokioClock(Instant::now()));
    let fifo = Arc::new(Fifo::default());
    let queue = FairQueue::new(fifo.clone(), clock.clone());
    for _ in 0..3 {
        assert!(queue.push(&lane(), jobs(1, 0..1_000)).await);
        clock.sleep(Duration::from_secs(1)).await;
    }
    let there = fifo.sessions();
    assert!(there.len() <= 40, "nobody takes any: {}", there.len());
    let held = queue.depth(&lane()).await.expect("it is there") as usize;
    assert!(
        held <= 1_000 / ACTIVATION_SESSIONS_MAX + 1 + there.len(),
        "{held}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_left_to_the_sweep() {
    let clock = Arc::new(TokioClock(Instant::now()));
    let fifo = Arc::new(Fifo::default());
    let queue = FairQueue::new(fifo.clone(), clock.clone());
    assert!(!queue.push(&lane(), jobs(1, 0..VERY_MANY)).await);
    // The queue becomes unavailable: buffered sessions are dropped, and accepted again once it is
    // back.
    fifo.away.store(true, std::sync::atomic::Ordering::Relaxed);
    clock.sleep(Duration::from_secs(1)).await;
    fifo.away.store(false, std::sync::atomic::Ordering::Relaxed);
    fifo.jobs.lock().expect("nothing panics under it").clear();
    let ends = work(&fifo, &clock, 64, SEND);
    assert!(queue.push(&lane(), jobs(1, 0..200)).await);
    clock.sleep(10 * SEND).await;
    assert_eq!(ends.lock().expect("nothing panics under it").len(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_little_to_do_costs_no_look_at_the_lane() {
    let clock = Arc::new(TokioClock(Instant::now()));
    let fifo = Arc::new(Fifo::default());
    let queue = FairQueue::new(fifo.clone(), clock.clone());
    for n in 0..20 {
        assert!(queue.push(&lane(), jobs(1, n..n + 1)).await);
        clock.sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(fifo.sessions().len(), 20, "each went at once");
    assert_eq!(fifo.looks.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn the_first_sessions_of_a_tenant_pass_the_lane_and_a_flood_does_not() {
    let clock = Arc::new(TokioClock(Instant::now()));
    let fifo = Arc::new(Fifo::default());
    let queue = FairQueue::new(fifo.clone(), clock.clone());
    queue.push(&lane(), jobs(1, 0..1_000)).await;
    for n in 0..3 {
        clock.sleep(Duration::from_millis(100)).await;
        queue.push(&lane(), jobs(2, n..n + 1)).await;
    }
    clock.sleep(Duration::from_secs(10)).await;
    let ahead = || fifo.ahead.lock().expect("nothing panics under it").clone();
    let first = (0..4).map(|n| key(1, n));
    let expected: Vec<_> = first.chain((0..3).map(|n| key(2, n))).collect();
    assert_eq!(ahead(), expected);
    // In the low lane they are enqueued at once, at the back.
    let low = Lane {
        priority: Priority::Low,
        ..lane()
    };
    queue.push(&low, jobs(3, 0..2)).await;
    assert_eq!(ahead(), expected);
    assert_eq!(
        fifo.sessions()[fifo.sessions().len() - 2..],
        [key(3, 0), key(3, 1)]
    );
}

/// Clients that each send again as soon as their last send ended. Sends pushed in batches reach the
/// workers at once and in about as few jobs, because there are slots for all of them.
#[tokio::test(start_paused = true)]
async fn a_closed_loop_of_one_tenant_is_not_held_up() {
    const CLIENTS: u128 = 64;
    const TURNS: u32 = 100;
    let takes = Duration::from_millis(20);
    let clock = Arc::new(TokioClock(Instant::now()));
    let fifo = Arc::new(Fifo::default());
    let ends = work(&fifo, &clock, 256, takes);
    let queue = FairQueue::new(fifo.clone(), clock.clone());
    let mut turns = vec![0; CLIENTS as usize];
    let (mut running, mut pushed) = (Vec::new(), 0);
    while turns.iter().any(|turn| *turn < TURNS) || !running.is_empty() {
        {
            let ends = ends.lock().expect("nothing panics under it");
            running.retain(|session| !ends.contains_key(session));
        }
        let next: Vec<SessionKey> = (0..CLIENTS)
            .filter_map(|client| {
                let turn = &mut turns[client as usize];
                let rests = !running
                    .iter()
                    .any(|key: &SessionKey| key.session.0.as_u128() / 1_000 == client);
                (rests && *turn < TURNS).then(|| {
                    *turn += 1;
                    key(2, client * 1_000 + u128::from(*turn))
                })
            })
            .collect();
        for job in next.chunks(8) {
            let sessions = job.to_vec();
            assert!(queue.push(&lane(), vec![Activation { sessions }]).await);
            pushed += 1;
        }
        running.extend(next);
        clock.sleep(Duration::from_millis(1)).await;
    }
    let (ideal, took) = (takes * TURNS, clock.monotonic());
    assert!(took < ideal.mul_f64(1.15), "{took:?} of {ideal:?}");
    let jobs = fifo.put.load(std::sync::atomic::Ordering::Relaxed);
    assert!(jobs <= pushed * 5 / 4, "{jobs} jobs of {pushed}");
    let looks = fifo.looks.load(std::sync::atomic::Ordering::Relaxed);
    assert!(
        looks as u128 <= took.as_millis() / 5 + 50,
        "{looks} looks in {took:?}"
    );
}

//! Redis faults and their effect on the queue. Each test has a server of its own.

use std::sync::Arc;
use std::time::Duration;

use mainspring_queue_redis::RedisQueue;
use mainspring_shared::id::SessionKey;
use mainspring_shared::queue::Queue;
use mainspring_tests::suites::queue::harness::{
    Recorder, Worker, activations, high, low, pause, pool, push, session, sessions, until,
};
use mainspring_tests::suites::queue::server::{Server, queue};
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

/// Number of lines that a worker takes jobs from: both lanes, and the one for jobs that go ahead of
/// the high lane.
const LINES: u64 = 3;

/// A server, a queue on it, a pool and its worker.
struct World {
    server: Server,
    redis: Arc<RedisQueue>,
    queue: Arc<dyn Queue>,
    pool: String,
    recorder: Arc<Recorder>,
    worker: Worker,
}

impl World {
    async fn start(recorder: Arc<Recorder>) -> Option<Self> {
        let server = Server::start().await?;
        let redis = server.queue();
        let queue: Arc<dyn Queue> = Arc::clone(&redis) as Arc<dyn Queue>;
        let pool = pool();
        let worker = Worker::start(&queue, &pool, &recorder);
        let world = Self {
            server,
            redis,
            queue,
            pool,
            recorder,
            worker,
        };
        Some(world)
    }

    async fn push(&self, keys: &[SessionKey]) {
        push(&*self.queue, &high(&self.pool), keys).await;
    }

    /// The Redis key of this name in the high lane.
    fn key(&self, name: &str) -> String {
        format!("mainspring:{{{}}}:hi:{name}", self.pool)
    }

    /// Asserts that jobs of both lanes reach the worker.
    async fn serves(&self) {
        let keys = sessions(2);
        self.push(&keys[..1]).await;
        push(&*self.queue, &low(&self.pool), &keys[1..]).await;
        self.recorder.saw(&keys).await;
    }
}

async fn count(connection: &mut MultiplexedConnection, command: &str, key: &str) -> u64 {
    redis::cmd(command)
        .arg(key)
        .query_async(connection)
        .await
        .expect("a count")
}

async fn used_memory(connection: &mut MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("memory")
        .query_async(connection)
        .await
        .expect("its memory");
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    used.and_then(|used| used.trim().parse().ok())
        .expect("a number")
}

/// Injects a fault while handlers wait for slots: none of them may be cancelled, and all later jobs
/// must arrive.
async fn survives(fault: impl AsyncFnOnce(&mut World)) {
    let Some(mut world) = World::start(Recorder::new(0, 0)).await else {
        return;
    };
    let running = sessions(4);
    world.push(&running).await;
    until("running handlers", || async {
        world.recorder.called() >= 4
    })
    .await;
    fault(&mut world).await;
    // Handlers from before the fault finish normally, although the queue has lost track of their
    // jobs.
    world.recorder.open(10_000);
    world.recorder.saw(&running).await;
    for _ in 0..3 {
        world.serves().await;
    }
    // A cancelled handler would have been called but never finish.
    let recorder = &world.recorder;
    until("the end of every handler", || async {
        recorder.called() == recorder.admitted().len()
    })
    .await;
    world.worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_cuts_no_handler() {
    survives(async |world| {
        for kind in ["normal", "pubsub", "normal"] {
            world.server.cut(kind).await;
            pause(150).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_server_is_served_again() {
    survives(async |world| {
        let mut connection = world.server.connection().await;
        for command in ["FLUSHALL", "SCRIPT"] {
            let mut flush = redis::cmd(command);
            if command == "SCRIPT" {
                flush.arg("FLUSH");
            }
            flush
                .query_async::<()>(&mut connection)
                .await
                .expect("it is flushed");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_costs_nobody_anything() {
    survives(async |world| world.server.stall(1_200).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_is_served_again() {
    survives(async |world| {
        world.server.kill();
        until("its loss is noticed", || async {
            !world.queue.is_available()
        })
        .await;
        world.server.start_again().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_wakes_at_once() {
    let Some(world) = World::start(Recorder::ready()).await else {
        return;
    };
    world.serves().await;
    let mut waits = Vec::new();
    for _ in 0..30 {
        pause(15).await;
        let key = session();
        let begun = Instant::now();
        world.push(&[key]).await;
        world.recorder.saw(&[key]).await;
        waits.push(begun.elapsed());
    }
    waits.sort();
    // The fallback for a lost doorbell ring would take 125 ms on average.
    assert!(waits[15] < Duration::from_millis(50), "{waits:?}");
    assert_eq!(world.redis.counts().lives, LINES, "one life per line");
    world.worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_without_a_server_is_false_at_once_and_true_again_later() {
    let away = queue(&Server::absent());
    let lane = high("default");
    let begun = Instant::now();
    for _ in 0..100 {
        assert!(!away.push(&lane, activations(&sessions(3))).await);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    assert!(!away.is_available());
    assert_eq!(away.depth(&lane).await, None);
    assert_eq!(away.counts().failed, 300);

    let Some(mut world) = World::start(Recorder::ready()).await else {
        return;
    };
    world.serves().await;
    world.server.kill();
    let mut longest = Duration::ZERO;
    for _ in 0..50 {
        let begun = Instant::now();
        assert!(!world.queue.push(&lane, activations(&[session()])).await);
        longest = longest.max(begun.elapsed());
    }
    assert!(longest < Duration::from_millis(400), "{longest:?}");
    assert!(!world.queue.is_available());
    world.server.start_again().await;
    until("it is back", || async { world.queue.is_available() }).await;
    world.serves().await;
    world.worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_into_a_stalled_server_is_bounded_and_the_next_ones_do_not_wait() {
    let Some(world) = World::start(Recorder::ready()).await else {
        return;
    };
    world.serves().await;
    let stall = world.server.stall(1_000);
    let pushes = async {
        pause(50).await;
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(
                !world
                    .queue
                    .push(&high(&world.pool), activations(&[session()]))
                    .await
            );
        }
        begun.elapsed()
    };
    let (took, ()) = futures::future::join(pushes, stall).await;
    assert!(took < Duration::from_millis(500), "{took:?}");
    world.serves().await;
    assert_eq!(world.redis.counts().lives, LINES, "the stall ended no life");
    world.worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_has_a_cap_and_drains_from_it() {
    let Some(server) = Server::start().await else {
        return;
    };
    let redis = server.queue();
    let queue: Arc<dyn Queue> = Arc::clone(&redis) as Arc<dyn Queue>;
    let (pool, recorder) = (pool(), Recorder::ready());
    until("a connection", || async { queue.is_available() }).await;
    let (mut taken, mut refused) = (Vec::new(), 0);
    for _ in 0..90 {
        let keys = sessions(100);
        if queue.push(&high(&pool), activations(&keys)).await {
            taken.extend(keys);
        } else {
            refused += 1;
        }
    }
    assert!(refused >= 60, "{refused} refused");
    assert_eq!(redis.counts().full + redis.counts().pushed, 9_000);
    let depth = queue.depth(&high(&pool)).await.unwrap();
    assert!((2_000..2_200).contains(&depth), "{depth}");
    let worker = Worker::start(&queue, &pool, &recorder);
    recorder.saw(&taken).await;
    let later = sessions(50);
    push(&*queue, &high(&pool), &later).await;
    recorder.saw(&later).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_job_leaves_nothing_once_it_is_tidied() {
    let Some(world) = World::start(Recorder::ready()).await else {
        return;
    };
    let (good, bad) = (sessions(300), session());
    world.recorder.panic_on(bad);
    world.push(&good).await;
    world.push(&[bad]).await;
    world.recorder.saw(&good).await;
    let mut connection = world.server.connection().await;
    let (done, dead) = (world.key("done"), world.key("dead"));
    until("all acks", || async {
        let mut connection = connection.clone();
        count(&mut connection, "SCARD", &done).await == 300
            && count(&mut connection, "SCARD", &dead).await == 1
    })
    .await;
    assert_eq!(world.recorder.called(), 301, "the panic was not run again");
    assert_eq!(
        count(&mut connection, "ZCARD", &world.key("scheduled")).await,
        0
    );
    assert_eq!(
        count(&mut connection, "LLEN", &world.key("active")).await,
        0
    );
    let held: Vec<String> = redis::cmd("KEYS")
        .arg("*:inflight:*")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(held, [""; 0]);
    // If an id were not returned exactly as it was given, its ack would have ended a life.
    assert_eq!(world.redis.counts().lives, LINES);

    assert_eq!(world.redis.tidy().await, 301);
    assert_eq!(count(&mut connection, "HLEN", &world.key("data")).await, 0);
    // A busy worker leaves its tokens to others; once idle, it removes those that have no job.
    let bell = world.key("bell");
    until("no token is left", || async {
        count(&mut connection.clone(), "LLEN", &bell).await == 0
    })
    .await;
    world.worker.stop().await;
    let mut left: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut connection)
        .await
        .unwrap();
    left.sort();
    assert_eq!(left, ["core:apalis:queues:list"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_flat_with_a_janitor() {
    let Some(world) = World::start(Recorder::ready()).await else {
        return;
    };
    let mut connection = world.server.connection().await;
    let mut used = Vec::new();
    for _ in 0..6 {
        let keys = sessions(1_500);
        for part in keys.chunks(500) {
            world.push(part).await;
        }
        world.recorder.saw(&keys).await;
        let mut connection = connection.clone();
        until("all acks", || async {
            world.redis.tidy().await;
            count(&mut connection.clone(), "HLEN", &world.key("data")).await == 0
        })
        .await;
        used.push(used_memory(&mut connection).await);
    }
    // Until they are tidied, 1 500 jobs take up about a megabyte.
    assert!(used[5] < used[1] + 300_000, "{used:?}");
    let keys: u64 = redis::cmd("DBSIZE")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(keys < 10, "{keys} keys");
    world.worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_description_of_a_worker_passes() {
    let Some(world) = World::start(Recorder::ready()).await else {
        return;
    };
    world.serves().await;
    let mut connection = world.server.connection().await;
    let described = async || {
        let mut keys = redis::cmd("KEYS");
        let keys = keys.arg("*:workers:metadata:*");
        let mut connection = connection.clone();
        let described = keys.query_async::<Vec<String>>(&mut connection);
        described.await.expect("keys")
    };
    let all = usize::try_from(LINES).expect("a few");
    until("a description for each line", || async {
        described().await.len() == all
    })
    .await;
    for key in described().await {
        let ttl: i64 = redis::cmd("TTL")
            .arg(&key)
            .query_async(&mut connection)
            .await
            .unwrap();
        assert!(ttl > 0, "{key} stays for ever");
    }
    world.worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_jobs_of_a_worker_that_died_alone_are_found() {
    let Some(world) = World::start(Recorder::new(0, 0)).await else {
        return;
    };
    let keys = sessions(3);
    world.push(&keys).await;
    until("running handlers", || async {
        world.recorder.called() == 3
    })
    .await;
    let (server, redis, queue, pool) = (world.server, world.redis, world.queue, world.pool);
    world.worker.crash();
    // Make the heartbeat look more than a minute old.
    let workers = format!("mainspring:{{{pool}}}:hi:workers");
    let mut connection = server.connection().await;
    let names: Vec<String> = redis::cmd("ZRANGE")
        .arg(&workers)
        .arg(0)
        .arg(-1)
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(names.len(), 1);
    let mut age = redis::cmd("ZADD");
    age.arg(&workers).arg(1).arg(&names[0]);
    age.query_async::<()>(&mut connection).await.unwrap();

    redis.tidy().await;
    assert_eq!(queue.depth(&high(&pool)).await, Some(3));
    assert_eq!(count(&mut connection, "ZCARD", &workers).await, 0);
    let successor = Recorder::ready();
    let worker = Worker::start(&queue, &pool, &successor);
    successor.saw(&keys).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_cannot_be_read_stops_nobody() {
    let Some(world) = World::start(Recorder::ready()).await else {
        return;
    };
    world.serves().await;
    let mut connection = world.server.connection().await;
    // One job without data, and one whose data is garbage.
    for (id, data) in [("gone-1", None), ("odd-1", Some("\u{7f}{[nonsense"))] {
        let mut pipe = redis::pipe();
        if let Some(data) = data {
            pipe.cmd("HSET").arg(world.key("data")).arg(id).arg(data);
            pipe.cmd("HSET").arg(world.key(&format!("meta:{id}")));
            pipe.arg(&["attempts", "0", "max_attempts", "1", "status", "Pending"]);
        }
        pipe.cmd("RPUSH").arg(world.key("active")).arg(id);
        pipe.query_async::<()>(&mut connection).await.unwrap();
        for _ in 0..2 {
            world.serves().await;
        }
    }
    until("the odd job is done", || async {
        let mut connection = connection.clone();
        let mut done = redis::cmd("SISMEMBER");
        done.arg(world.key("done")).arg("odd-1");
        done.query_async::<bool>(&mut connection).await.unwrap()
    })
    .await;
    world.worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_janitor_ends_when_it_is_told_to() {
    let Some(server) = Server::start().await else {
        return;
    };
    let queue = server.queue();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = Box::pin(async move {
        let _ = stopped.await;
    });
    let janitor = tokio::spawn(async move { queue.janitor(stopped).await });
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(5), janitor)
        .await
        .unwrap()
        .unwrap();
}

/// The situation during a rolling upgrade to a release whose workers serve the ahead line, and
/// during the rollback.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_go_ahead_goes_behind_unless_all_workers_take_it() {
    let Some(server) = Server::start().await else {
        return;
    };
    let queue: Arc<dyn Queue> = server.queue();
    let (pool, keys) = (pool(), sessions(6));
    let mut connection = server.connection().await;
    let key = |name: &str| format!("mainspring:{{{pool}}}:hi:{name}");
    let lane = high(&pool);
    until("a push", || {
        queue.push_ahead(&lane, activations(&keys[..1]))
    })
    .await;
    let hear = r"return redis.call('ZADD', KEYS[1], redis.call('TIME')[1] - ARGV[1], ARGV[2])";
    let hear = redis::Script::new(hear);
    // The line with the heartbeat, the worker, and its age in seconds; then the jobs expected
    // behind and ahead.
    let steps = [
        ("workers", "old", 1, (2, 0)),
        ("ahead:workers", "gone", 60, (3, 0)),
        ("ahead:workers", "new", 1, (3, 1)),
        ("workers", "old-2", 1, (4, 1)),
        // The only worker that served the ahead line is gone, so the jobs waiting there move
        // behind.
        ("ahead:workers", "new", 60, (5, 0)),
    ];
    for (n, (line, worker, seconds, (behind, ahead))) in steps.into_iter().enumerate() {
        let mut heard = hear.key(key(line));
        let heard = heard.arg(seconds).arg(worker);
        heard.invoke_async::<()>(&mut connection).await.unwrap();
        let session = activations(&keys[n + 1..n + 2]);
        assert!(queue.push_ahead(&lane, session).await);
        let waits = (
            count(&mut connection, "LLEN", &key("active")).await,
            count(&mut connection, "LLEN", &key("ahead:active")).await,
        );
        assert_eq!(waits, (behind, ahead), "{worker} {seconds}");
        let data = count(&mut connection, "HLEN", &key("ahead:data")).await;
        assert_eq!(data, ahead);
    }
    assert_eq!(queue.depth(&lane).await, Some(5));
}

//! The scripts that Redis runs for this crate. Each step is one script, so that a crash cannot
//! leave it half done.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script, Value};

use crate::lane::{Keys, REGISTRY, SILENCE};
use crate::prefix::Prefix;

/// Maximum number of jobs that one script pushes or removes: about a millisecond of Redis' time.
/// Lua's `unpack` would fail at 8 000.
pub(crate) const STEP: usize = 200;
/// Maximum number of jobs in a lane. Further ones wait in the database; workers take far fewer than
/// this between two sweeps.
const LANE_JOBS_MAX: usize = 2_000;
/// How long a worker waits at the bell before it checks the lane's length again, and so the cost of
/// a lost token. In seconds, as Redis takes it.
const WAIT_SECONDS: u64 = 1;
/// Maximum number of workers that one step of the janitor ends.
const STALE_MAX: usize = 50;

/// How long the key that a probe writes stays, in seconds.
const MARK_SECONDS: u64 = 60;

const PROBE: &str = include_str!("lua/probe.lua");
const QUIET: &str = include_str!("lua/quiet.lua");
static PUSH: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/push.lua")));
static RETIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/retire.lua")));
static TIDY: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/tidy.lua")));
static STALE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/stale.lua")));

/// Does a bit of all that work on the queue needs. Fails if the server refuses any of it.
pub(crate) async fn probe(
    connection: &mut MultiplexedConnection,
    prefix: &Prefix,
) -> RedisResult<()> {
    let mut probe = redis::cmd("EVAL");
    probe.arg(PROBE).arg(2);
    probe.arg(prefix.probe()).arg(REGISTRY).arg(prefix.probe());
    probe.query_async(connection).await
}

/// Writes one key, for a minute.
pub(crate) async fn mark(
    connection: &mut MultiplexedConnection,
    prefix: &Prefix,
) -> RedisResult<()> {
    let mut set = redis::cmd("SET");
    set.arg(prefix.probe()).arg("1").arg("EX").arg(MARK_SECONDS);
    set.query_async(connection).await
}

/// Publishes to a channel that nobody listens to.
pub(crate) async fn call_nobody(
    connection: &mut MultiplexedConnection,
    prefix: &Prefix,
) -> RedisResult<()> {
    let mut publish = redis::cmd("PUBLISH");
    publish.arg(prefix.probe()).arg("");
    publish.query_async(connection).await
}

/// The outcome of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    Done,
    /// The line has no room.
    Full,
    /// Not all workers of the lane take from the line.
    Unserved,
}

/// Pushes at most [`STEP`] jobs under their ids and rings for them. With `unless_fewer`, it pushes
/// nothing if fewer workers take from this line than from that one. Workers report when they were
/// alive by their own clocks, and this is compared with the server's: a worker whose clock is
/// behind by more than [`SILENCE`] counts as gone.
pub(crate) async fn push(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    jobs: &[(String, String)],
    unless_fewer: Option<&Keys>,
) -> RedisResult<Pushed> {
    let mut call = PUSH.prepare_invoke();
    call.key(&keys.active)
        .key(&keys.scheduled)
        .key(&keys.data)
        .key(&keys.meta)
        .key(&keys.bell)
        .key(&keys.workers)
        .key(&unless_fewer.unwrap_or(keys).workers)
        .arg(LANE_JOBS_MAX)
        .arg(unless_fewer.map_or(0, |_| SILENCE.as_secs()));
    for (id, job) in jobs {
        call.arg(id).arg(job);
    }
    Ok(match call.invoke_async::<i64>(connection).await? {
        -1 => Pushed::Full,
        -2 => Pushed::Unserved,
        _ => Pushed::Done,
    })
}

/// Why a worker's wait at the bell ended. If neither is set, nothing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wakes {
    /// This worker got a token.
    pub(crate) token: bool,
    /// Jobs were waiting the whole time, so a token was lost.
    pub(crate) jobs: bool,
}

/// Waits for a token of the bell in one round trip, over a connection that nobody else uses.
pub(crate) async fn wait(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
) -> RedisResult<Wakes> {
    let mut steps = redis::pipe();
    // EVAL with the short text, not EVALSHA: a server that has just started does not know the
    // digest, and would report that only after handing out a token.
    steps
        .cmd("EVAL")
        .arg(QUIET)
        .arg(2)
        .arg(&keys.active)
        .arg(&keys.bell);
    steps.cmd("BLPOP").arg(&keys.bell).arg(WAIT_SECONDS);
    let (waiting, token): (u64, Value) = steps.query_async(connection).await?;
    Ok(Wakes {
        token: token != Value::Nil,
        jobs: waiting > 0,
    })
}

/// Puts a token back, for another worker.
pub(crate) async fn hand_on(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
) -> RedisResult<()> {
    redis::cmd("LPUSH")
        .arg(&keys.bell)
        .arg("1")
        .query_async(connection)
        .await
}

/// Ends a worker and returns the jobs that it held to its lane.
pub(crate) async fn retire(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    name: &str,
) -> RedisResult<u64> {
    RETIRE
        .key(format!("{}:{name}", keys.inflight))
        .key(&keys.active)
        .key(&keys.data)
        .key(&keys.workers)
        .key(keys.worker_metadata(name))
        .key(&keys.bell)
        .arg(name)
        .arg(STEP)
        .invoke_async(connection)
        .await
}

/// Removes at most [`STEP`] of the finished jobs in `set`.
pub(crate) async fn tidy(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    set: &str,
) -> RedisResult<usize> {
    TIDY.key(set)
        .key(&keys.data)
        .key(&keys.meta)
        .arg(STEP)
        .invoke_async(connection)
        .await
}

/// Some of the lane's workers that have been silent for `silence`, by Redis' clock.
pub(crate) async fn stale(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    silence: Duration,
) -> RedisResult<Vec<String>> {
    STALE
        .key(&keys.workers)
        .arg(silence.as_secs())
        .arg(STALE_MAX)
        .invoke_async(connection)
        .await
}

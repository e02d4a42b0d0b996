//! What Redis runs for this crate. Each step is one script, so that a crash leaves no half of it.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script};

use crate::lane::Keys;

/// Jobs that one script pushes or forgets: about a millisecond of Redis' time. Lua's `unpack`
/// would fail at 8 000.
pub(crate) const STEP: usize = 200;
/// Jobs that may wait in a lane. What is beyond waits in the database; workers take in far less
/// than this between two sweeps.
const LANE_JOBS_MAX: usize = 2_000;
/// Workers that one step of the janitor ends.
const STALE_MAX: usize = 50;

static PUSH: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/push.lua")));
static RETIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/retire.lua")));
static TIDY: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/tidy.lua")));
static STALE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/stale.lua")));

/// Pushes at most [`STEP`] jobs under their ids and rings, if asked to. False when the lane is
/// full.
pub(crate) async fn push(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    jobs: &[(String, String)],
    ring: bool,
) -> RedisResult<bool> {
    let mut call = PUSH.prepare_invoke();
    call.key(&keys.active)
        .key(&keys.scheduled)
        .key(&keys.data)
        .key(&keys.meta)
        .arg(LANE_JOBS_MAX)
        .arg(if ring { keys.bell.as_str() } else { "" });
    for (id, job) in jobs {
        call.arg(id).arg(job);
    }
    let depth: i64 = call.invoke_async(connection).await?;
    Ok(depth >= 0)
}

/// Ends a worker and returns what it held to its lane.
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
        .arg(name)
        .arg(&keys.bell)
        .arg(STEP)
        .invoke_async(connection)
        .await
}

/// Forgets at most [`STEP`] of the finished jobs in `set`.
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

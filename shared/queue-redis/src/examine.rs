//! Looks at a Redis for people who want to know why it does not work, or whether it will.

use std::fmt;
use std::time::Duration;

use mainspring_shared::queue::Lane;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use crate::address::{Address, AddressError};
use crate::lane::{Keys, Line, REGISTRY};
use crate::link;
use crate::prefix::Prefix;
use crate::refusal::Refusal;
use crate::scripts;

/// Time limit for all questions together.
const LIMIT: Duration = Duration::from_secs(5);

/// Something about a Redis that has to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Whether work does without the queue because of it. Otherwise, it will at times.
    pub is_grave: bool,
    /// The cause.
    pub cause: String,
    /// What to do.
    pub cure: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.cure)
    }
}

impl Fault {
    fn refused(what: &str, refusal: Refusal, prefix: &Prefix) -> Self {
        Self {
            is_grave: true,
            cause: format!("{what}: {}", refusal.cause()),
            cure: refusal.cure().replace("PREFIX", &prefix.to_string()),
        }
    }
}

/// Looks for whatever keeps this Redis from carrying the jobs of a lane and the notices: it does a
/// bit of that work itself.
pub async fn examine(address: &Address, lane: &Lane) -> Result<Vec<Fault>, AddressError> {
    let client = address.client()?;
    let prefix = address.prefix();
    let faults = async {
        let mut connection = link::connect(&client).await?;
        Ok(faults(&mut connection, &prefix, lane).await)
    };
    let unreachable = |why: &str| Fault {
        is_grave: true,
        cause: format!("{address} does not answer: {why}"),
        cure: "is it running, and is the address right?".to_owned(),
    };
    Ok(match tokio::time::timeout(LIMIT, faults).await {
        Ok(Ok(faults)) => faults,
        Ok(Err(why)) => vec![unreachable(why)],
        Err(_) => vec![unreachable("timed out")],
    })
}

async fn faults(
    connection: &mut MultiplexedConnection,
    prefix: &Prefix,
    lane: &Lane,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut refused = |what: &str, done: RedisResult<()>| {
        if let Err(error) = done {
            let refusal = Refusal::of(&error).unwrap_or(Refusal::Other);
            faults.push(Fault::refused(what, refusal, prefix));
        }
    };
    refused(
        "jobs cannot be pushed",
        scripts::probe(connection, prefix).await,
    );
    refused(
        "notices cannot be published",
        scripts::call_nobody(connection, prefix).await,
    );
    let lines = [Some(Line::of(lane)), Line::ahead_of(lane)];
    for line in lines.into_iter().flatten() {
        faults.extend(foreign(connection, &Keys::of(prefix, &line)).await);
    }
    faults.extend(memory(connection).await);
    faults
}

/// Keys of a line that hold values of another type.
async fn foreign(connection: &mut MultiplexedConnection, keys: &Keys) -> Vec<Fault> {
    let expected = [
        (keys.active.as_str(), "list"),
        (&keys.bell, "list"),
        (&keys.scheduled, "zset"),
        (&keys.workers, "zset"),
        (REGISTRY, "zset"),
        (&keys.data, "hash"),
        (&keys.done, "set"),
        (&keys.dead, "set"),
    ];
    let mut faults = Vec::new();
    for (key, expected) in expected {
        let mut ask = redis::cmd("TYPE");
        let asked = ask.arg(key).query_async::<String>(connection).await;
        // Without the right to ask, the bit of work has told.
        let Ok(found) = asked else { continue };
        if found != expected && found != "none" {
            faults.push(Fault {
                is_grave: true,
                cause: format!("the key {key} is a {found}, not a {expected}"),
                cure: "another application uses the same keys: choose another redis_prefix, or \
                       delete it"
                    .to_owned(),
            });
        }
    }
    faults
}

/// How much of the memory may be used before that is worth a warning, in percent.
const USED_MAX: u64 = 90;

/// What the server does when its memory is full, and how far that is.
async fn memory(connection: &mut MultiplexedConnection) -> Vec<Fault> {
    let mut ask = redis::cmd("INFO");
    let asked = ask.arg("memory").query_async::<String>(connection);
    // A user without the right to ask is told nothing.
    let Ok(info) = asked.await else {
        return Vec::new();
    };
    pressed(&info)
}

fn pressed(info: &str) -> Vec<Fault> {
    let value = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.strip_prefix(':')).map(str::trim)
    };
    let number = |name| value(name).and_then(|number| number.parse::<u64>().ok());
    let policy = value("maxmemory_policy").unwrap_or("noeviction");
    let mut faults = Vec::new();
    if policy != "noeviction" {
        faults.push(Fault {
            is_grave: false,
            cause: format!(
                "maxmemory-policy is {policy}: jobs are thrown away when memory is short"
            ),
            cure: "set it to noeviction; work that is thrown away starts seconds late".to_owned(),
        });
    }
    let (used, most) = (number("used_memory"), number("maxmemory"));
    if let (Some(used), Some(most @ 1..)) = (used, most)
        && used.saturating_mul(100) >= most.saturating_mul(USED_MAX)
    {
        faults.push(Fault {
            is_grave: false,
            cause: format!("{used} of {most} bytes of its memory are used"),
            cure: Refusal::Full.cure().to_owned(),
        });
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_will_throw_jobs_away_or_is_nearly_full_is_told() {
        let told = |info: &str| pressed(info).len();
        assert_eq!(
            told("# Memory\r\nused_memory:95\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            0
        );
        assert_eq!(
            told("used_memory:89\r\nmaxmemory:100\r\nmaxmemory_policy:noeviction\r\n"),
            0
        );
        assert_eq!(
            told("used_memory:90\r\nmaxmemory:100\r\nmaxmemory_policy:noeviction\r\n"),
            1
        );
        assert_eq!(
            told("used_memory:1\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n"),
            1
        );
        assert_eq!(told(""), 0);
    }
}

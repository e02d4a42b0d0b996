//! A lane's keys in Redis and apalis' settings for it.

use std::time::Duration;

use apalis_redis::Config;
use mainspring_shared::agent::Priority;
use mainspring_shared::queue::Lane;

use crate::prefix::Prefix;

/// How often a worker says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Heartbeats after whose absence its jobs go to others.
const HEARTBEATS_MISSED: usize = 3;
/// For how long a worker that says nothing more counts as there.
pub(crate) const SILENCE: Duration = HEARTBEAT.saturating_mul(3);
/// Where apalis lists every queue that a worker was ever registered for, of all installations: the one key that has no
/// prefix.
pub(crate) const REGISTRY: &str = "core:apalis:queues:list";

/// One of the lists that jobs of a lane wait in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) lane: Lane,
    /// For jobs that pass the lane's others.
    pub(crate) ahead: bool,
}

impl Line {
    /// The one that most jobs wait in.
    pub(crate) fn of(lane: &Lane) -> Self {
        Self {
            lane: lane.clone(),
            ahead: false,
        }
    }

    /// The one that passes it, if there is one.
    pub(crate) fn ahead_of(lane: &Lane) -> Option<Self> {
        lane.has_way_past().then(|| Self {
            lane: lane.clone(),
            ahead: true,
        })
    }
}

/// The keys of one line. The pool's braces keep them together in a server that shards by key.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    config: Config,
    pub(crate) active: String,
    pub(crate) scheduled: String,
    pub(crate) data: String,
    pub(crate) meta: String,
    pub(crate) done: String,
    pub(crate) dead: String,
    pub(crate) workers: String,
    pub(crate) inflight: String,
    pub(crate) bell: String,
}

impl Keys {
    pub(crate) fn of(prefix: &Prefix, line: &Line) -> Self {
        let name = match (line.lane.priority, line.ahead) {
            (Priority::High, true) => "hi:ahead",
            (Priority::High, false) => "hi",
            (Priority::Low, _) => "lo",
        };
        Self::of_queue(&prefix.queue(&line.lane.pool, name))
    }

    /// The lane behind an entry of [`REGISTRY`], when it is one of this installation's.
    pub(crate) fn of_registered(prefix: &Prefix, workers: &str) -> Option<Self> {
        let queue = workers.strip_suffix(":workers")?;
        let mut names = [":hi:ahead", ":hi", ":lo"].into_iter();
        let lane = names.find_map(|name| queue.strip_suffix(name))?;
        prefix.has_pool(lane).then(|| Self::of_queue(queue))
    }

    fn of_queue(queue: &str) -> Self {
        let config = Config::default()
            .queue(queue)
            // A fetched job that waits for a free handler would stop heartbeats and acks.
            .batch_size(1)
            // Display fields, at the price of a scan of the backlog. Leases are in the database.
            .lock_tasks(false)
            .emit_events(false)
            // This is the ack, whatever its name says.
            .persist_results(true)
            .heartbeat_interval(HEARTBEAT)
            .missed_heartbeats(HEARTBEATS_MISSED);
        Self {
            active: config.active_jobs_list(),
            scheduled: config.scheduled_jobs_set(),
            data: config.job_data_hash(),
            meta: config.job_meta_hash(),
            done: config.done_jobs_set(),
            dead: config.dead_jobs_set(),
            workers: config.workers_set(),
            inflight: config.inflight_jobs_set(),
            bell: format!("{queue}:bell"),
            config,
        }
    }

    /// How apalis is told to work on this lane.
    pub(crate) fn config(&self) -> Config {
        self.config.clone()
    }

    /// Where apalis describes a worker.
    pub(crate) fn worker_metadata(&self, name: &str) -> String {
        format!("{}:metadata:{name}", self.workers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_the_names_that_operators_know() {
        let lane = |priority| Lane {
            pool: "default".into(),
            priority,
        };
        let prefix = Prefix::default();
        let keys = Keys::of(&prefix, &Line::of(&lane(Priority::High)));
        assert_eq!(keys.active, "mainspring:{default}:hi:active");
        assert_eq!(keys.bell, "mainspring:{default}:hi:bell");
        let low = Keys::of(&prefix, &Line::of(&lane(Priority::Low)));
        assert_eq!(low.data, "mainspring:{default}:lo:data");
        let ahead = Line::ahead_of(&lane(Priority::High)).unwrap();
        let active = Keys::of(&prefix, &ahead).active;
        assert_eq!(active, "mainspring:{default}:hi:ahead:active");
        assert_eq!(Line::ahead_of(&lane(Priority::Low)), None);
        let other: Prefix = "team-2".parse().unwrap();
        let keys = Keys::of(&other, &Line::of(&lane(Priority::High)));
        assert_eq!(keys.active, "team-2:{default}:hi:active");
        assert_eq!(keys.bell, "team-2:{default}:hi:bell");
    }

    #[test]
    fn only_this_installations_lanes_are_recognized_in_the_registry() {
        let prefix = Prefix::default();
        let keys = Keys::of_registered(&prefix, "mainspring:{gpu}:lo:workers").unwrap();
        assert_eq!(keys.done, "mainspring:{gpu}:lo:done");
        let ahead = Keys::of_registered(&prefix, "mainspring:{gpu}:hi:ahead:workers").unwrap();
        assert_eq!(ahead.done, "mainspring:{gpu}:hi:ahead:done");
        for other in [
            "emails:workers",
            "mainspring:{gpu}:lo",
            "mainspring:{gpu}:lo:ahead:workers",
            "mainspring:gpu:hi:workers",
            "mainspring-2:{gpu}:hi:workers",
            "{gpu}:hi:workers",
        ] {
            assert!(Keys::of_registered(&prefix, other).is_none(), "{other}");
        }
    }
}

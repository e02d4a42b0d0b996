//! A lane's keys in Redis and apalis' settings for it.

use std::time::Duration;

use apalis_redis::Config;
use mainspring_shared::agent::Priority;
use mainspring_shared::queue::Lane;

use crate::prefix::Prefix;

/// Interval of a worker's heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Number of missed heartbeats after which a worker's jobs go to others.
const HEARTBEATS_MISSED: usize = 3;
/// How long a worker without heartbeats counts as alive.
pub(crate) const SILENCE: Duration = HEARTBEAT.saturating_mul(3);
/// The key under which apalis lists every queue that ever had a worker, of all installations: the
/// only key without a prefix.
pub(crate) const REGISTRY: &str = "core:apalis:queues:list";

/// One of the lists in which jobs of a lane wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) lane: Lane,
    /// Whether it is for jobs that overtake the lane's others.
    pub(crate) ahead: bool,
}

impl Line {
    /// The line in which most jobs wait.
    pub(crate) fn of(lane: &Lane) -> Self {
        Self {
            lane: lane.clone(),
            ahead: false,
        }
    }

    /// The line that overtakes it, if the lane has one.
    pub(crate) fn ahead_of(lane: &Lane) -> Option<Self> {
        lane.has_way_past().then(|| Self {
            lane: lane.clone(),
            ahead: true,
        })
    }
}

/// The keys of one line. The braces around the pool put them in one slot on a server that shards by
/// key.
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

    /// The line of an entry in [`REGISTRY`], if it belongs to this installation.
    pub(crate) fn of_registered(prefix: &Prefix, workers: &str) -> Option<Self> {
        let queue = workers.strip_suffix(":workers")?;
        let mut names = [":hi:ahead", ":hi", ":lo"].into_iter();
        let lane = names.find_map(|name| queue.strip_suffix(name))?;
        prefix.has_pool(lane).then(|| Self::of_queue(queue))
    }

    fn of_queue(queue: &str) -> Self {
        let config = Config::default()
            .queue(queue)
            // With more, a fetched job that waits for a free handler would stop heartbeats and
            // acks.
            .batch_size(1)
            // Task locks are only fields for display, and cost a scan of the backlog. Leases are in
            // the database.
            .lock_tasks(false)
            .emit_events(false)
            // Despite its name, this is the ack.
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

    /// apalis' settings for this line.
    pub(crate) fn config(&self) -> Config {
        self.config.clone()
    }

    /// The key under which apalis describes a worker.
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

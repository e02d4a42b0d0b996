//! Write groups: concurrent items share one transaction.
//!
//! A group consists of the items that arrived while the previous one was in flight, at most
//! [`GROUP_MAX`]. An item that arrives while nothing is in flight is written at once, and under
//! load the commit rate does not limit the throughput. Groups of large items are limited by their
//! size in bytes as well.
//!
//! A small group mostly pays the fixed cost of its transaction. So after a group of at least
//! [`BUSY`] items, the next group starts no earlier than [`PERIOD`] after the start of that one, to
//! let more items join.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::buggify;

/// Maximum number of items per transaction.
pub const GROUP_MAX: usize = 128;

/// Size of a group from which the next one may be delayed.
const BUSY: usize = 4;

/// Minimum time from the start of such a group to the start of the next. It is longer than a commit
/// on a fast disk, so that groups there become as large as on a slow one, and a fraction of a
/// send's duration at that concurrency. Measured in docs/benchmarks.md.
const PERIOD: Duration = Duration::from_millis(1);

/// Maximum number of items that wait for the next group; further callers wait for room.
const WAITING_MAX: usize = 16_384;

/// Collects the items of concurrent callers and passes them to a function in groups. Dropping the
/// last clone ends its task.
#[derive(Debug)]
pub struct Group<T, R> {
    items: mpsc::Sender<(T, oneshot::Sender<R>)>,
}

impl<T, R> Clone for Group<T, R> {
    fn clone(&self) -> Self {
        Self {
            items: self.items.clone(),
        }
    }
}

/// The group's function returned no result for the item: it panicked, did not return one result per
/// item, or the runtime is shutting down. It is not known whether the item was processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the group ended without an answer")]
pub struct GroupEnded;

/// The limit on the total size of a group's items.
#[derive(Debug)]
pub struct Weight<T> {
    /// Size in bytes at which a group is closed; a larger item gets a group of its own.
    pub bytes_max: usize,
    /// The approximate size of an item in bytes.
    pub bytes_of: fn(&T) -> usize,
}

/// An item with the channel for its result.
type Handed<T, R> = (T, oneshot::Sender<R>);

/// The items waiting for a group.
struct Inbox<T, R> {
    items: mpsc::Receiver<Handed<T, R>>,
    /// An item that did not fit into the previous group.
    carried: Option<Handed<T, R>>,
    weight: Weight<T>,
    /// Whether groups may be delayed: not with several lanes, where one collects while the others
    /// are in flight.
    waits: bool,
    /// The next group does not start before this time, unless it is full.
    not_before: Option<Instant>,
}

impl<T, R> Inbox<T, R> {
    /// The next group; none once all senders are dropped.
    async fn next(&mut self) -> Option<Vec<Handed<T, R>>> {
        let first = match self.carried.take() {
            Some(carried) => carried,
            None => self.items.recv().await?,
        };
        let mut bytes = (self.weight.bytes_of)(&first.0);
        let mut batch = vec![first];
        self.fill(&mut batch, &mut bytes);
        // Yield once, so that callers released by the previous group can join this one. It costs
        // nothing if there are none.
        tokio::task::yield_now().await;
        self.fill(&mut batch, &mut bytes);
        if let Some(not_before) = self.not_before.take()
            && batch.len() < GROUP_MAX
            && self.carried.is_none()
        {
            tokio::time::sleep_until(not_before).await;
            self.fill(&mut batch, &mut bytes);
        }
        if self.waits && batch.len() >= BUSY {
            self.not_before = Some(Instant::now() + PERIOD);
        }
        Some(batch)
    }

    fn fill(&mut self, batch: &mut Vec<Handed<T, R>>, bytes: &mut usize) {
        while self.carried.is_none()
            && batch.len() < GROUP_MAX
            && !buggify("group.small")
            && let Ok(more) = self.items.try_recv()
        {
            let weight = (self.weight.bytes_of)(&more.0);
            if bytes.saturating_add(weight) > self.weight.bytes_max {
                self.carried = Some(more);
            } else {
                *bytes += weight;
                batch.push(more);
            }
        }
    }
}

impl<T: Send + 'static, R: Send + 'static> Group<T, R> {
    /// Starts the task. `run` takes a group and returns one result per item, in order. At most
    /// `lanes` groups are in flight; with one, every group is as large as the load allows.
    pub fn spawn<F, Fut>(lanes: usize, run: F) -> Self
    where
        F: Fn(Vec<T>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Vec<R>> + Send + 'static,
    {
        let weight = Weight {
            bytes_max: usize::MAX,
            bytes_of: |_: &T| 0,
        };
        Self::weighed(lanes, weight, run)
    }

    /// Like `spawn`, with groups that are limited in bytes as well.
    pub fn weighed<F, Fut>(lanes: usize, weight: Weight<T>, run: F) -> Self
    where
        F: Fn(Vec<T>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Vec<R>> + Send + 'static,
    {
        let (items, inbox) = mpsc::channel::<Handed<T, R>>(WAITING_MAX);
        let inbox = Inbox {
            items: inbox,
            carried: None,
            weight,
            waits: lanes == 1,
            not_before: None,
        };
        let inbox = std::sync::Arc::new(tokio::sync::Mutex::new(inbox));
        for _ in 0..lanes.max(1) {
            let (inbox, run) = (inbox.clone(), run.clone());
            tokio::spawn(async move {
                loop {
                    let next = inbox.lock().await.next().await;
                    let Some(batch) = next else { return };
                    let (work, callers): (Vec<T>, Vec<_>) = batch.into_iter().unzip();
                    // A panic only affects this group: its callers get an error.
                    let Ok(answers) = AssertUnwindSafe(run(work)).catch_unwind().await else {
                        tracing::error!(
                            items = callers.len(),
                            "a batch panicked; its callers get an error"
                        );
                        continue;
                    };
                    if buggify("group.unanswered") {
                        continue;
                    }
                    for (answer, caller) in answers.into_iter().zip(callers) {
                        // The caller may have been cancelled.
                        let _ = caller.send(answer);
                    }
                }
            });
        }
        Self { items }
    }

    /// Adds an item to the next group; the future returns its result. The call itself submits the
    /// item, so the future does not store it, unless so many items wait that the future first has
    /// to wait for room. Once submitted, the item is processed even if the future is dropped.
    pub fn submit(&self, item: T) -> impl Future<Output = Result<R, GroupEnded>> + use<T, R> {
        let (caller, answer) = oneshot::channel();
        let room = match self.items.try_send((item, caller)) {
            // If the group is closed, now or while waiting for room, the sender of the answer is
            // dropped with the item.
            Ok(()) | Err(TrySendError::Closed(_)) => None,
            Err(TrySendError::Full(handed)) => {
                let items = self.items.clone();
                Some(Box::pin(async move { items.send(handed).await.ok() }))
            }
        };
        async move {
            if let Some(room) = room {
                room.await;
            }
            answer.await.map_err(|_| GroupEnded)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_panic_costs_its_group_the_answer_and_no_one_else() {
        let group = Group::spawn(1, |items: Vec<u32>| async move {
            assert!(!items.contains(&13), "unlucky");
            items
        });
        assert_eq!(group.submit(13).await, Err(GroupEnded));
        assert_eq!(group.submit(14).await, Ok(14));
    }

    #[tokio::test]
    async fn an_item_is_submitted_at_once_and_its_future_keeps_no_room_for_it() {
        let group = Group::spawn(1, |items: Vec<[u8; 4096]>| async move {
            items.iter().map(|item| item[0]).collect()
        });
        let (first, second) = (group.submit([1; 4096]), group.submit([2; 4096]));
        assert!(size_of_val(&first) < 128, "{}", size_of_val(&first));
        assert_eq!(second.await, Ok(2));
        assert_eq!(first.await, Ok(1));
    }

    #[tokio::test]
    async fn items_that_find_no_room_wait_for_it() {
        let group = Group::spawn(1, |items: Vec<usize>| async move { items });
        // Nothing is taken before the first await, when all of them start to wait.
        let answers = (0..WAITING_MAX + 3).map(|n| group.submit(n));
        let answers = futures::future::join_all(answers).await;
        let expected: Vec<_> = (0..WAITING_MAX + 3).map(Ok).collect();
        assert_eq!(answers, expected);
    }

    /// The start times and sizes of groups while `width` callers submit in a loop.
    async fn begins(width: usize) -> Vec<(Duration, usize)> {
        let start = Instant::now();
        let (begun, mut groups) = mpsc::unbounded_channel();
        let group = Group::spawn(1, move |items: Vec<u32>| {
            let begun = begun.clone();
            async move {
                let _ = begun.send((start.elapsed(), items.len()));
                items
            }
        });
        let callers = (0..width).map(|_| {
            let group = group.clone();
            tokio::spawn(async move {
                for n in 0..10 {
                    assert_eq!(group.submit(n).await, Ok(n));
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("joins");
        }
        drop(group);
        let mut all = Vec::new();
        while let Some(group) = groups.recv().await {
            all.push(group);
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn groups_of_many_begin_apart_and_a_few_never_wait() {
        for (width, apart) in [(1, 0), (BUSY - 1, 0), (20, 1)] {
            let begins = begins(width).await;
            assert!(
                begins.iter().all(|(_, items)| *items == width),
                "{begins:?}"
            );
            for pair in begins.windows(2) {
                let after = pair[1].0.saturating_sub(pair[0].0);
                let expected = Duration::from_millis(apart);
                assert!(
                    after >= expected && after <= expected + Duration::from_millis(1),
                    "{width}: {after:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn what_queues_while_a_group_is_under_way_forms_the_next() {
        let gate = Arc::new(Semaphore::new(0));
        let groups = Arc::new(AtomicUsize::new(0));
        let group = Group::spawn(1, {
            let (gate, groups) = (gate.clone(), groups.clone());
            move |items: Vec<u32>| {
                let (gate, groups) = (gate.clone(), groups.clone());
                async move {
                    groups.fetch_add(1, Ordering::SeqCst);
                    gate.acquire().await.expect("open").forget();
                    items.into_iter().map(|n| n * 2).collect()
                }
            }
        });
        let first = tokio::spawn({
            let group = group.clone();
            async move { group.submit(1).await }
        });
        while groups.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let rest: Vec<_> = (2..10)
            .map(|n| {
                let group = group.clone();
                tokio::spawn(async move { group.submit(n).await })
            })
            .collect();
        while group.items.capacity() > WAITING_MAX - 8 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        assert_eq!(first.await.expect("joins"), Ok(2));
        for (task, n) in rest.into_iter().zip(2..) {
            assert_eq!(task.await.expect("joins"), Ok(n * 2));
        }
        assert_eq!(groups.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_group_is_closed_before_it_has_too_many_bytes() {
        let gate = Arc::new(Semaphore::new(0));
        let weight = Weight {
            bytes_max: 10,
            bytes_of: |bytes: &usize| *bytes,
        };
        let begun = Arc::new(AtomicUsize::new(0));
        let group = Group::weighed(1, weight, {
            let (gate, begun) = (gate.clone(), begun.clone());
            move |items: Vec<usize>| {
                let (gate, begun) = (gate.clone(), begun.clone());
                async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    gate.acquire().await.expect("open").forget();
                    // Each caller gets all items of its group.
                    items.iter().map(|_| items.clone()).collect()
                }
            }
        });
        let first = tokio::spawn({
            let group = group.clone();
            async move { group.submit(1).await }
        });
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let mut rest = Vec::new();
        for bytes in [4, 6, 1, 99, 2] {
            let before = group.items.capacity();
            let group = group.clone();
            let handed = group.clone();
            rest.push(tokio::spawn(async move { group.submit(bytes).await }));
            while handed.items.capacity() == before {
                tokio::task::yield_now().await;
            }
        }
        gate.add_permits(5);
        assert_eq!(first.await.expect("joins"), Ok(vec![1]));
        let mut together = Vec::new();
        for task in rest {
            together.push(task.await.expect("joins").expect("answers"));
        }
        let expected = [vec![4, 6], vec![4, 6], vec![1], vec![99], vec![2]];
        assert_eq!(together, expected);
    }
}

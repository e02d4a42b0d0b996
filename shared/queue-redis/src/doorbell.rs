//! When an idle worker polls its lane: at every notification, and every quarter of a second in case
//! one was lost.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use apalis_core::backend::ext::poll_strategy::{PollSnapshot, PollStrategy};
use futures::StreamExt;
use futures::stream::{BoxStream, Fuse};
use mainspring_shared::bus::Notice;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::tracked::InFlight;

/// The longest that a job waits for an idle worker if its notification was lost.
const NET: Duration = Duration::from_millis(250);

/// Wakes a worker. apalis drops a notification that arrives during a fetch, although that fetch may
/// have read the lane before the job was pushed: such a notification is kept until the fetch is
/// over.
pub(crate) struct Doorbell {
    rings: Fuse<BoxStream<'static, Notice>>,
    net: Interval,
    in_flight: InFlight,
    rung: bool,
    waker: Option<Waker>,
}

impl Doorbell {
    pub(crate) fn new(rings: BoxStream<'static, Notice>, in_flight: InFlight) -> Self {
        let mut net = interval(NET);
        net.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            rings: rings.fuse(),
            net,
            in_flight,
            rung: false,
            waker: None,
        }
    }
}

impl PollStrategy for Doorbell {
    fn poll_drive(&mut self, cx: &mut Context<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        // The lost notification may have been for this lane.
        while let Poll::Ready(Some(_)) = self.rings.poll_next_unpin(cx) {
            self.rung = true;
        }
        // Being polled is all that it is for. Polled to its end, so that it wakes again.
        while self.net.poll_tick(cx).is_ready() {}
        if self.in_flight.is_zero() {
            // The fetch that this poll starts will see the job.
            self.rung = false;
        }
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
        // apalis ignores this.
        Poll::Pending
    }

    fn on_poll(&mut self, _: &PollSnapshot) {
        if self.rung
            && self.in_flight.is_zero()
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }
}

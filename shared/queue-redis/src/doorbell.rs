//! When an idle worker looks into its lane: at every ring, and every quarter of a second in case a
//! ring was lost.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use apalis_core::backend::ext::poll_strategy::{PollSnapshot, PollStrategy};
use futures::StreamExt;
use futures::stream::{BoxStream, Fuse};
use mainspring_shared::bus::Notice;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::tracked::InFlight;

/// The longest that a job whose ring was lost waits for an idle worker.
const NET: Duration = Duration::from_millis(250);

/// Wakes a worker. apalis forgets a ring that comes while a fetch is under way, yet that fetch may
/// have looked before the job was there: such a ring is kept until the fetch is over.
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
        // A gap may have been a ring.
        while let Poll::Ready(Some(_)) = self.rings.poll_next_unpin(cx) {
            self.rung = true;
        }
        // Being polled is all that it is for. Polled to its end, so that it wakes again.
        while self.net.poll_tick(cx).is_ready() {}
        if self.in_flight.is_zero() {
            // The fetch that this very poll begins will see what was rung for.
            self.rung = false;
        }
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
        // apalis does not look at this.
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

//! The cell of an isolated agent: what becomes of a send that has none.

use std::time::Duration;

use mainspring_shared::error::Failure;
use mainspring_shared::send::machine::{Event, Open};

use super::load;
use super::run::Run;
use crate::tool::NoCell;

/// Whether the cell is there that the agent's tools run in.
#[derive(Debug, Default)]
pub(super) enum Apart {
    /// It is, or none is needed.
    #[default]
    There,
    /// It could not be started, which nobody was told yet.
    Failed(NoCell),
    /// It is tried again with the next attempt to ask the model.
    Away,
}

/// How long a send waits as a row for a cell where all are in use.
const BUSY_WAIT: Duration = Duration::from_secs(2);

impl Run<'_> {
    /// The event of a send whose cell would be one too many: it waits as a row, and nothing counts as failed.
    /// One that was under way at a death goes on as long as its deaths are counted.
    pub(super) fn waits_for_cell(&self) -> Option<Event> {
        let is_busy = matches!(self.prompt.apart, Apart::Failed(NoCell::Busy));
        let waits = is_busy && self.send.record.crashes == 0;
        waits.then_some(Event::Paused { within: BUSY_WAIT })
    }

    /// Whether calls are to be made in a cell that may be there for whoever takes the send up anew. Then it
    /// counts a death: no call is lost, and no send is tried for ever.
    pub(super) fn lacks_cell(&mut self, open: Open) -> bool {
        let Apart::Failed(why) = &self.prompt.apart else {
            return false;
        };
        let lacks = open == Open::Here && !why.is_permanent();
        if lacks {
            tracing::warn!(send.id = %self.send.record.id, %why, "calls wait for their process");
            self.ending.crashed = true;
        }
        lacks
    }

    /// What the open round needs: without a cell nothing is run here, and the send ends.
    pub(super) fn without_cell(&self, open: Open) -> Open {
        match self.prompt.apart {
            Apart::Failed(_) if open == Open::Here => Open::Nothing,
            Apart::There | Apart::Failed(_) | Apart::Away => open,
        }
    }

    /// Sees to it that the cell is there before the model is asked; an event where it is not.
    pub(super) async fn enter_cell(&mut self) -> Option<Event> {
        match std::mem::replace(&mut self.prompt.apart, Apart::Away) {
            Apart::There => {
                self.prompt.apart = Apart::There;
                None
            }
            Apart::Failed(why) => Some(self.no_cell(&why)),
            Apart::Away => {
                let parts = &self.kernel.parts;
                let again = load::offers(&parts.tools, parts.clock.as_ref(), &self.send).await;
                Some(match again {
                    // What the send begins with was made without its tools: it begins anew.
                    Ok(_) => self.release_as_lost().await,
                    Err(why) => self.no_cell(&why),
                })
            }
        }
    }

    fn no_cell(&mut self, why: &NoCell) -> Event {
        if *why == NoCell::Busy {
            return Event::Paused { within: BUSY_WAIT };
        }
        tracing::warn!(
            send.id = %self.send.record.id,
            session.id = %self.send.record.key.session,
            code = NoCell::CODE.as_str(),
            %why,
            "an isolated send has no process"
        );
        self.ending.failure = Some(Failure::new(NoCell::CODE, why.to_string()));
        Event::Failed {
            code: NoCell::CODE,
            permanent: why.is_permanent(),
            retry_after: None,
            fraction: self.kernel.parts.entropy.fraction(),
            not_failed: self.asking.not_failed(),
        }
    }
}

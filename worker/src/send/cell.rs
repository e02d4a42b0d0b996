//! The cell of an isolated agent, and what happens to a send that has none.

use std::time::Duration;

use mainspring_shared::error::Failure;
use mainspring_shared::send::machine::{Event, Open};

use super::load;
use super::run::Run;
use crate::tool::NoCell;

/// Whether the cell that the agent's tools run in is available.
#[derive(Debug, Default)]
pub(super) enum CellState {
    /// It is, or none is needed.
    #[default]
    There,
    /// It could not be started; the machine has not been told yet.
    Failed(NoCell),
    /// It is tried again with the next attempt to ask the model.
    Away,
}

/// How long a send is parked if all cells are in use.
const BUSY_WAIT: Duration = Duration::from_secs(2);

impl Run<'_> {
    /// The event of a send that gets no cell because all are in use: it is parked, and nothing
    /// counts as failed. A send that was interrupted by a crash continues as long as its crashes
    /// are counted.
    pub(super) fn waits_for_cell(&self) -> Option<Event> {
        let is_busy = matches!(self.prompt.cell, CellState::Failed(NoCell::Busy));
        let waits = is_busy && self.send.record.crashes == 0;
        waits.then_some(Event::Paused { within: BUSY_WAIT })
    }

    /// Whether calls must be made in a cell that the next worker may be able to start. That counts
    /// as a crash, so that no call is lost and no send is retried forever.
    pub(super) fn lacks_cell(&mut self, open: Open) -> bool {
        let CellState::Failed(why) = &self.prompt.cell else {
            return false;
        };
        let lacks = open == Open::Here && !why.is_permanent();
        if lacks {
            tracing::warn!(
                send.id = %self.send.record.id,
                %why,
                "could not start the process for a send's calls; leaving them to the next worker"
            );
            self.ending.crashed = true;
        }
        lacks
    }

    /// What the open round needs: without a cell nothing runs here, and the send ends.
    pub(super) fn without_cell(&self, open: Open) -> Open {
        match self.prompt.cell {
            CellState::Failed(_) if open == Open::Here => Open::Nothing,
            CellState::There | CellState::Failed(_) | CellState::Away => open,
        }
    }

    /// Makes sure the cell is available before the model is asked; returns an event if it is not.
    pub(super) async fn enter_cell(&mut self) -> Option<Event> {
        match std::mem::replace(&mut self.prompt.cell, CellState::Away) {
            CellState::There => {
                self.prompt.cell = CellState::There;
                None
            }
            CellState::Failed(why) => Some(self.no_cell(&why)),
            CellState::Away => {
                let parts = &self.kernel.parts;
                let again = load::offers(&parts.tools, parts.clock.as_ref(), &self.send).await;
                Some(match again {
                    // The send was started without its tools, so it has to start again.
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
            "could not start the process of an isolated send"
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

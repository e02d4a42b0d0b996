//! What the send's machine asks for, a file for each command: methods of [`Run`](super::run::Run) that return
//! the event which the machine is given next, where it has already happened.

mod abort_calls;
mod abort_deciding;
mod ask;
mod decide;
mod end;
mod fold;
mod park;
mod release;
mod run_calls;
mod stop_calls;
mod store_results;
mod store_round;
mod wait;

pub(crate) use fold::room_of;
pub(super) use fold::{Beside, Folding};

//! One send, from its claim until this worker gives it up.
//!
//! | module | what it is |
//! |---|---|
//! | `run` | the interpreter of the send's state machine |
//! | `commands` | the machine's commands, one file each |
//! | `lease_state`, `round`, `bill` | parts of a run: lease and signals, the open round, what was spent |
//! | `model_call`, `pending_messages` | parts of a run: the model call, messages not yet in the transcript |
//! | `answered`, `results`, `inbox`, `recalling`, `remembering` | methods of a run: what comes in |
//! | `cell`, `fallback`, `pausing`, `spending` | methods of a run: what limits it or holds it back |
//! | `delegating`, `starting` | methods of a run: the children and workflow runs that it starts |
//! | `persist` | database reads and writes, retried until the database has answered |
//! | `load`, `forgetting`, `settle`, `output`, `vet` | functions: what the model is asked, what is stored |
//! | `plan`, `allowance`, `children`, `calls` | functions: which calls run when, what may still be spent, children |

mod allowance;
mod answered;
mod background;
mod bill;
mod calls;
mod cell;
mod checkpoint;
mod children;
mod commands;
mod deciding;
mod delegating;
mod fallback;
mod fired;
mod forgetting;
mod inbox;
mod lease_state;
pub(crate) mod load;
mod markup;
mod mending;
mod model_call;
mod output;
mod pausing;
mod pending_messages;
mod persist;
mod plan;
mod projecting;
mod recalling;
mod received;
mod remembering;
mod results;
mod round;
mod run;
mod settle;
mod spending;
mod starting;
mod vet;

pub(crate) use allowance::{size_at_most, spending};
pub(crate) use commands::room_of;
pub(crate) use forgetting::{Extent, Forgotten, forget, relieved};
pub(crate) use lease_state::SendHandles;
pub(crate) use output::{Output, values_in};
pub(crate) use pending_messages::PendingMessages;
pub(crate) use recalling::OwnLists;
pub(crate) use remembering::foreseen;
pub(crate) use run::{LeasedSend, Run, RunOutcome};

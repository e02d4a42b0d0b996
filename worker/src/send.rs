//! One send, from its claim until this worker leaves it.
//!
//! | module | what it is |
//! |---|---|
//! | `run` | the interpreter of the send's machine |
//! | `commands` | what the machine asks for, a file for each command |
//! | `hold`, `round`, `bill`, `model_call`, `pending_messages` | the parts of a run: lease and signals, the open round, what was spent, the model call, what is not in the transcript yet |
//! | `answered`, `apart`, `results`, `inbox`, `spending`, `delegating`, `fallback`, `pausing`, `starting`, `recalling`, `remembering` | what happens to it |
//! | `persist` | writing and reading until the database has answered |
//! | `load`, `forgetting`, `settle`, `output`, `vet`, `plan`, `allowance`, `children`, `calls` | functions: what the model is asked, what is stored of an answer, which calls run when, what may still be spent, what a child is |

mod allowance;
mod answered;
mod apart;
mod background;
mod bill;
mod calls;
mod checkpoint;
mod children;
mod commands;
mod deciding;
mod delegating;
mod fallback;
mod fired;
mod forgetting;
mod hold;
mod inbox;
pub(crate) mod load;
mod model_call;
mod output;
mod pausing;
mod pending_messages;
mod persist;
mod plan;
mod projecting;
mod recalling;
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
pub(crate) use hold::SendHandles;
pub(crate) use output::{Output, values_in};
pub(crate) use pending_messages::PendingMessages;
pub(crate) use recalling::OwnLists;
pub(crate) use remembering::foreseen;
pub(crate) use run::{LeasedSend, Run, RunOutcome};

//! One send, from its claim until this worker leaves it.
//!
//! `run` interprets the send's machine, `load` builds what the model is asked, `settle` builds
//! what is stored.

mod load;
mod run;
mod settle;

pub(crate) use run::{Left, Run};

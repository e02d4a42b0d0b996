//! One send, from its claim until this worker leaves it.
//!
//! `run` interprets the send's machine, `load` builds what the model is asked, `settle` builds
//! what is stored of an answer, `output` reads an answer that has a shape, `vet` looks at an answer's
//! calls before they are stored, `plan` says which calls run when, `purse` what may still be spent,
//! `calls` runs them, and `unsaid` holds what the model is told before the transcript has it.

mod calls;
mod children;
mod load;
mod output;
mod plan;
mod purse;
mod run;
mod settle;
mod unsaid;
mod vet;

pub(crate) use run::{Left, Reach, Run, Turn};
pub(crate) use unsaid::Unsaid;

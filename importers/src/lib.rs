#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod archive;
mod database;
mod error;
mod langgraph;
mod left_out;
mod openai;
mod parts;
mod power_loop;
mod session;
mod source;
mod transcript;

pub use error::Error;
pub use left_out::LeftOut;
pub use session::{Session, System, Timer};
pub use source::{Found, Source};

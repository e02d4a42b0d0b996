#![doc = include_str!("../README.md")]

pub mod answer;
pub mod catalogue;
pub mod count;
pub mod emulator;
pub mod judge;
pub mod kind;
pub mod laboratory;
pub mod ledger;
pub mod memory;
pub mod path;
pub mod plant;
pub mod refusal;
pub mod rules;
pub mod script;
pub mod view;

pub use emulator::Emulator;
pub use laboratory::Laboratory;
pub use ledger::{Judgement, Verdict};
pub use rules::Rules;

#![doc = include_str!("../README.md")]

pub mod process;
pub mod servers;

#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod file;

pub use file::FileBlobs;

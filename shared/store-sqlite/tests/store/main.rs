//! The store on a file of its own per test.

mod audit;
mod file;
mod kill;
mod load;
mod path;
mod statements;
mod steps;

//! The store on a file of its own per test.

mod audit;
mod calls;
mod children;
mod file;
mod inbox;
mod kill;
mod load;
mod migration;
mod path;
mod posts;
mod statements;
mod steps;

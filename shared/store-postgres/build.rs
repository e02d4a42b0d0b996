//! Rebuilds the crate when a migration is added: the macro that embeds them watches files only.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations/postgres");
}

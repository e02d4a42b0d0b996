# Shortcuts; each is one cargo command that works without just.

# Everything in one process.
dev *ARGS:
    cargo run --release -- dev {{ARGS}}

# Every test, on servers of their own.
test *ARGS:
    cargo xtask test {{ARGS}}

# Formatting, clippy, documentation, who may know whom, licences, the oldest Rust.
lint:
    cargo xtask lint

# What must hold before a change lands.
ci:
    cargo xtask ci

fmt:
    cargo fmt --all
    rustfmt --edition 2024 scheduler/src/engine/nodes/*.rs

//! Running several systems one after another in one test.

/// Runs a system in its own simulated time, and drops whatever is left of it afterwards.
///
/// # Panics
/// If the runtime cannot be built.
pub fn alone<T>(system: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("a runtime starts").block_on(system)
}

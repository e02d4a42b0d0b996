//! Systems one after the other in one test.

/// Runs one system in a simulated time of its own, and ends whatever is left of it.
///
/// # Panics
/// When the machine gives no runtime.
pub fn alone<T>(system: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("a runtime starts").block_on(system)
}

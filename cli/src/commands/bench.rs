//! `mainspring bench`

use mainspring_benches::{Options, WORKLOADS};

use crate::args::BenchArgs;
use crate::failure::{Exit, Failure, usage_text};
use crate::output;

pub(crate) async fn run(args: &BenchArgs) -> Result<(), Failure> {
    let Some(workload) = &args.workload else {
        return WORKLOADS
            .iter()
            .try_for_each(|(name, what)| output::line(&format!("{name:<14} {what}")));
    };
    if !WORKLOADS.iter().any(|(name, _)| name == workload) {
        let message = format!("unknown workload {workload}");
        return Err(usage_text(message, "`mainspring bench` lists them"));
    }
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::new(Exit::Failure, format!("where am I? {error}")))?,
    };
    let options = Options {
        binary,
        runs: args.runs,
        short: args.short,
    };
    // A measurement that cannot be printed any more is not worth going on for; the next one fails.
    let mut emit = |figures: serde_json::Value| drop(output::line(&figures.to_string()));
    mainspring_benches::run(workload, &options, &mut emit)
        .await
        .map_err(|error| Failure::new(Exit::Failure, format!("{error:#}")))
}

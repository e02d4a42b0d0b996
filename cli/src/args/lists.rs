//! Lists, on the command line.

use clap::Args;
use mainspring_shared::time::{Span, Timestamp};

use crate::output;

#[derive(Debug, Clone, Args)]
pub(crate) struct PageArgs {
    /// Maximum number of items
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CreatedArgs {
    /// Only those that were created at this time or later: 2030-01-31T08:00:00Z, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) since: Option<String>,
    /// Only those that were created before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) before: Option<String>,
}

/// A time as the API takes it, or a duration before now.
fn time(text: &str) -> Result<String, String> {
    if text.contains('T') {
        return Ok(text.to_owned());
    }
    let Span(ago) = text
        .parse()
        .map_err(|_| "takes a time like 2030-01-31T08:00:00Z, or a duration before now like 2h")?;
    let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    Ok(Timestamp(output::now().0.saturating_sub(ago).max(0)).to_string())
}

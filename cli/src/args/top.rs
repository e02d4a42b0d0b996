//! The live view, on the command line.

use std::time::Duration;

use clap::Args;
use mainspring_shared::time::Span;

#[derive(Debug, Clone, Args)]
pub(crate) struct TopArgs {
    /// How often to look, 500ms to 1h
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    pub(crate) interval: Span,
    /// Prints it once, as where stdout is no terminal and with -o json
    #[arg(long)]
    pub(crate) once: bool,
}

/// An interval that neither floods the server nor never ends.
fn interval(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    let bounds = Duration::from_millis(500)..=Duration::from_hours(1);
    if !bounds.contains(&span.0) {
        return Err("takes 500ms to 1h".to_owned());
    }
    Ok(span)
}

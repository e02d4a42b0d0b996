//! Webhooks, on the command line.

use clap::Subcommand;

use super::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksCommand {
    /// Lists webhooks, newest first
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows a webhook
    Show {
        /// The webhook, like whk_…
        id: String,
    },
    /// Creates a webhook and prints its secret: it cannot be shown again
    Create {
        /// URL that events are posted to
        url: String,
        /// Event type like send.completed, prefix like send.*, or *; may be repeated
        #[arg(long = "event", value_name = "FILTER", required = true)]
        events: Vec<String>,
        /// A secret of your own: whsec_ and base64, in this variable of the environment
        #[arg(long, value_name = "VARIABLE")]
        secret_env: Option<String>,
    },
    /// Changes a webhook's URL or filters, or disables or enables it
    Update {
        /// The webhook
        id: String,
        /// URL that events are posted to
        #[arg(long)]
        url: Option<String>,
        /// Replaces its filters; may be repeated
        #[arg(long = "event", value_name = "FILTER")]
        events: Vec<String>,
        /// Disable the webhook
        #[arg(long, conflicts_with = "enable")]
        disable: bool,
        /// Re-enable the webhook
        #[arg(long)]
        enable: bool,
    },
    /// Replaces a webhook's secret and prints the new one
    Rotate {
        /// The webhook
        id: String,
        /// How long the previous secret remains valid for signing [default: 24h]
        #[arg(long, value_name = "DURATION")]
        overlap: Option<String>,
    },
    /// Deletes a webhook
    Delete {
        /// The webhook
        id: String,
    },
    /// Lists deliveries to a webhook, newest event first
    Deliveries {
        /// The webhook
        id: String,
        /// Only those with this status
        #[arg(long, value_parser = ["pending", "delivered", "dead"])]
        status: Option<String>,
        /// Does this to each of them that it can be done to; at least one other option has to name which
        #[arg(long, value_name = "ACTION", value_parser = ["redeliver"])]
        then: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Delivers an event again
    Redeliver {
        /// The webhook
        id: String,
        /// The delivery, like evt_…
        delivery: String,
    },
}

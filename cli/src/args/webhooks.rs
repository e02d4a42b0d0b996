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
        /// Where events are posted
        url: String,
        /// Event type like send.completed, prefix like send.*, or *; may be repeated
        #[arg(long = "event", value_name = "FILTER", required = true)]
        events: Vec<String>,
        /// A secret of your own: whsec_ and base64, in this variable of the environment
        #[arg(long, value_name = "VARIABLE")]
        secret_env: Option<String>,
    },
    /// Changes where a webhook's events go and which, or disables or enables it
    Update {
        /// The webhook
        id: String,
        /// Where events are posted
        #[arg(long)]
        url: Option<String>,
        /// In place of its filters; may be repeated
        #[arg(long = "event", value_name = "FILTER")]
        events: Vec<String>,
        /// It gets nothing
        #[arg(long, conflicts_with = "enable")]
        disable: bool,
        /// It gets something again
        #[arg(long)]
        enable: bool,
    },
    /// Replaces a webhook's secret and prints the new one
    Rotate {
        /// The webhook
        id: String,
        /// How long the secret before signs, too [default: 24h]
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

//! Timers, on the command line.

use clap::{Args, Subcommand};

use super::{CreatedArgs, PageArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum TimersCommand {
    /// Lists timers, newest first
    List {
        /// Only those of this session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Only those in this state
        #[arg(long, value_parser = ["armed", "paused", "done", "cancelled", "dead"])]
        status: Option<String>,
        #[command(flatten)]
        created: CreatedArgs,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows a timer with its next five occurrences
    Show {
        /// The timer
        id: String,
    },
    /// Creates a timer that sends a text to a session
    Create(NewTimerArgs),
    /// Pauses a timer
    Pause {
        /// The timer
        id: String,
    },
    /// Changes what a timer says and when it is due; what is not given stays as it is
    Set(ChangedTimerArgs),
    /// Fires a timer's next occurrence now; the schedule of one that recurs goes on as it was
    Fire {
        /// The timer
        id: String,
    },
    /// Resumes a paused or dead timer
    Resume {
        /// The timer
        id: String,
    },
    /// Cancels a timer; sends that it created continue
    Cancel {
        /// The timer
        id: String,
    },
    /// Lists a timer's occurrences with their outcome, newest first
    Occurrences {
        /// The timer
        id: String,
        #[command(flatten)]
        page: PageArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NewTimerArgs {
    /// The text to send
    pub(crate) text: String,
    /// The session
    #[arg(long, value_name = "ID")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) rule: RuleArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ChangedTimerArgs {
    /// The timer
    pub(crate) id: String,
    /// The text to send from now on
    #[arg(long)]
    pub(crate) text: Option<String>,
    #[command(flatten)]
    pub(crate) rule: RuleArgs,
}

/// When a timer is due.
#[derive(Debug, Args)]
pub(crate) struct RuleArgs {
    /// Time of the only or first occurrence, like 2027-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Delay until the only or first occurrence
    #[arg(long, value_name = "DURATION")]
    pub(crate) after: Option<String>,
    /// Interval between occurrences
    #[arg(long, value_name = "DURATION")]
    pub(crate) every: Option<String>,
    /// Cron expression, like "0 8 * * MON-FRI"
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: Option<String>,
    /// Time zone of the cron expression, like Europe/Berlin; UTC by default
    #[arg(long, value_name = "NAME")]
    pub(crate) timezone: Option<String>,
    /// What to do with missed occurrences
    #[arg(long, value_name = "RULE", value_parser = ["skip", "once", "all"])]
    pub(crate) catch_up: Option<String>,
    /// Maximum number of occurrences
    #[arg(long, value_name = "N")]
    pub(crate) max_occurrences: Option<u32>,
    /// Time after which there are no more occurrences
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Random delay of each occurrence, less than this
    #[arg(long, value_name = "DURATION")]
    pub(crate) jitter: Option<String>,
}

//! Timers, on the command line.

use clap::{Args, Subcommand};

use super::PageArgs;

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
        page: PageArgs,
    },
    /// Shows a timer with its next five times
    Show {
        /// The timer
        id: String,
    },
    /// Makes a timer that sends a text to a session
    Create(NewTimerArgs),
    /// Stops a timer for a while
    Pause {
        /// The timer
        id: String,
    },
    /// Lets a paused or dead timer go on
    Resume {
        /// The timer
        id: String,
    },
    /// Ends a timer; what it has sent goes on
    Cancel {
        /// The timer
        id: String,
    },
    /// Lists what became of a timer's occurrences, newest first
    Occurrences {
        /// The timer
        id: String,
        #[command(flatten)]
        page: PageArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NewTimerArgs {
    /// What it says
    pub(crate) text: String,
    /// The session
    #[arg(long, value_name = "ID")]
    pub(crate) session: String,
    /// When it is due, once or the first time, like 2027-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// How long from now it is due, once or the first time
    #[arg(long, value_name = "DURATION")]
    pub(crate) after: Option<String>,
    /// Again and again at this rate
    #[arg(long, value_name = "DURATION")]
    pub(crate) every: Option<String>,
    /// By a calendar, like "0 8 * * MON-FRI"
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: Option<String>,
    /// The calendar's time zone, like Europe/Berlin; UTC unless named
    #[arg(long, value_name = "NAME")]
    pub(crate) timezone: Option<String>,
    /// What becomes of missed occurrences
    #[arg(long, value_name = "RULE", value_parser = ["skip", "once", "all"])]
    pub(crate) catch_up: Option<String>,
    /// Occurrences that it may have
    #[arg(long, value_name = "N")]
    pub(crate) max_occurrences: Option<u32>,
    /// Nothing is due behind this
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Puts each occurrence off by less than this
    #[arg(long, value_name = "DURATION")]
    pub(crate) jitter: Option<String>,
}

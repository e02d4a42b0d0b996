//! Proofs, on the command line.

use clap::{Args, ValueEnum};

/// What can be proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProofName {
    /// A call that must not be repeated is not, although its process dies in the middle of it
    UnknownOutcome,
    /// The server is killed again and again under load, and each send is answered once
    KillEverything,
    /// A client reads one answer, whole and once, while its server is killed
    MigrateStream,
    /// A process that hangs past its lease writes nothing once it wakes up
    OneWriter,
    /// A fan-out with a budget of tokens costs no more
    CappedFanOut,
    /// A send costs the same after 2000 messages
    CheapHistory,
    /// Each request to the model begins with the bytes of the one before it
    WarmCache,
    /// A queue that is emptied under load loses nothing
    BurnQueue,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ProveArgs {
    /// The proof; without one, lists them
    #[arg(value_name = "PROOF")]
    pub(crate) name: Option<ProofName>,
    /// Lists the proofs
    #[arg(long)]
    pub(crate) list: bool,
    /// Plants the fault that the proof would find: it has to be found, and the command exits with 1
    #[arg(long = "break")]
    pub(crate) plant: bool,
    /// How long to do harm, or the size of what is harmed, in seconds; each proof has its own default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: Option<u64>,
    /// Seed of the moments at which harm is done; a random one is printed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Postgres for the proofs that take several processes, postgres://…; they use a schema of their own
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// Redis for burn-queue, redis://HOST:PORT, which has to be empty: the proof empties it again and again
    #[arg(long, value_name = "URL")]
    pub(crate) redis_url: Option<String>,
}

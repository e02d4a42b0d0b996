//! Settings of agents' memory.

use std::time::Duration;

use mainspring_runtime::{Key, settings};

use super::{HOUR, HTTP, MS};

settings! {
    /// What makes vectors for the memory in the database.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct EmbeddingsConfig {
        /// The model; without one, entries are found by their words alone.
        model: Option<String> => Key::text("memory.embeddings_model");
        /// The provider of it, as `[providers]` names it; the default provider when none.
        provider: Option<String> => Key::text("memory.embeddings_provider");
        /// Dimensions to ask for; those that the model has by itself when none.
        dimensions: Option<u32> => Key::integer("memory.embeddings_dimensions", 1, 8_192);
        /// How long a question waits for its vector.
        timeout: Duration = Duration::from_millis(500)
            => Key::span("memory.embeddings_timeout", MS, HOUR);
    }
}

settings! {
    /// A provider of memory behind a URL.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct MemoryServer {
        /// Its address.
        url: Option<String> => Key::url("memory.*.url", HTTP);
        /// How long one attempt may take.
        timeout: Option<Duration> => Key::span("memory.*.timeout", MS, HOUR);
    }
}

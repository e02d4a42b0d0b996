//! The sources, as one.

use std::path::Path;

use crate::error::Error;
use crate::langgraph::LangGraph;
use crate::left_out::LeftOut;
use crate::openai::OpenAi;
use crate::power_loop::PowerLoop;
use crate::session::{Session, System};

/// What was found next.
#[derive(Debug)]
pub enum Found {
    /// A conversation.
    Session(Box<Session>),
    /// A conversation that cannot be imported.
    Refused {
        /// Its id in the source.
        id: String,
        /// Why.
        why: String,
    },
}

/// A database or a file with conversations, in the order in which they were begun.
#[derive(Debug)]
pub struct Source(Kind);

#[derive(Debug)]
enum Kind {
    PowerLoop(PowerLoop),
    LangGraph(LangGraph),
    OpenAi(OpenAi),
}

impl Source {
    /// Opens a database of `power-loop` 1.0 or later: a SQLite file, by its path or URL, or a `postgres://` URL.
    /// `prefix` is that of its tables; by default, the two that the library itself uses are looked for.
    pub async fn power_loop(address: &str, prefix: Option<&str>) -> Result<Self, Error> {
        let opened = PowerLoop::open(address, prefix).await?;
        Ok(Self(Kind::PowerLoop(opened)))
    }

    /// Opens the database of a Postgres or SQLite saver of LangGraph. The messages are those of this channel.
    pub async fn langgraph(address: &str, channel: &str) -> Result<Self, Error> {
        let opened = LangGraph::open(address, channel).await?;
        Ok(Self(Kind::LangGraph(opened)))
    }

    /// Opens an export of OpenAI conversations.
    pub fn openai(file: &Path) -> Result<Self, Error> {
        Ok(Self(Kind::OpenAi(OpenAi::open(file)?)))
    }

    /// Which system it is of.
    pub const fn system(&self) -> System {
        match &self.0 {
            Kind::PowerLoop(_) => System::PowerLoop,
            Kind::LangGraph(_) => System::LangGraph,
            Kind::OpenAi(_) => System::OpenAi,
        }
    }

    /// Number of conversations in it.
    pub fn count(&self) -> usize {
        match &self.0 {
            Kind::PowerLoop(source) => source.count(),
            Kind::LangGraph(source) => source.count(),
            Kind::OpenAi(source) => source.count(),
        }
    }

    /// The next conversation. One that cannot be read is refused, and another follows; an error ends the reading.
    pub async fn next(&mut self) -> Result<Option<Found>, Error> {
        match &mut self.0 {
            Kind::PowerLoop(source) => source.next().await,
            Kind::LangGraph(source) => source.next().await,
            Kind::OpenAi(source) => Ok(source.next()),
        }
    }

    /// What the source has besides its conversations, and ends the reading.
    pub async fn finish(self) -> Result<LeftOut, Error> {
        match self.0 {
            Kind::PowerLoop(source) => source.finish().await,
            Kind::LangGraph(source) => source.finish().await,
            Kind::OpenAi(_) => Ok(LeftOut::default()),
        }
    }
}

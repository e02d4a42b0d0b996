//! The services behind requests and loops, independent of HTTP.

pub mod accept;
pub mod agents;
mod asking;
pub mod blobs;
pub mod cancel;
pub mod deliver;
pub mod dispatch;
pub mod forgetting;
pub mod keepers;
pub mod limits;
pub mod notify;
pub mod pauses;
pub mod pools;
pub mod pressure;
pub mod preview;
pub mod prices;
pub mod recovery;
pub mod registration;
pub mod results;
pub mod runs;
pub mod skills;
pub mod spending;
pub mod stream;
pub(crate) mod time;
pub mod vectors;
pub mod watch;
pub mod webhooks;

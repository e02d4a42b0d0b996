//! What requests and loops have done for them, without HTTP.

pub(crate) mod accept;
pub(crate) mod cancel;
pub(crate) mod deliver;
pub(crate) mod notify;
pub(crate) mod recovery;
pub(crate) mod registration;
pub(crate) mod results;
pub(crate) mod runs;
pub(crate) mod stream;
pub(crate) mod watch;

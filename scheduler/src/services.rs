//! What requests and loops have done for them, without HTTP.

pub(crate) mod accept;
pub(crate) mod notify;
pub(crate) mod registration;
pub(crate) mod stream;
pub(crate) mod watch;

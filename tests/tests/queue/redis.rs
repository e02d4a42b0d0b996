//! The queue and the bus on Redis, each test with a server of its own.

use std::sync::Arc;

use mainspring_shared::bus::Bus;
use mainspring_shared::queue::Queue;
use mainspring_tests::suites::queue::server::Server;

async fn queue() -> Option<(Server, Arc<dyn Queue>)> {
    let server = Server::start().await?;
    let queue = server.queue();
    Some((server, queue))
}

async fn bus() -> Option<(Server, Arc<dyn Bus>)> {
    let server = Server::start().await?;
    let bus = server.bus();
    Some((server, bus))
}

mainspring_tests::queue_suite!(super::queue);
mainspring_tests::bus_suite!(super::bus);

//! Readers of responses in OpenAI's form, while the scheduler that they read from and the worker that answers die.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use mainspring_tests::faults::{
    Cluster, Effect, Event, Events, Recipe, RetryingClient, between, blocking, fault_duration,
    monotonic, pause, say,
};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// How many responses are read at once.
const READERS: usize = 4;

/// How long a response may take once no more faults are injected.
const END: Duration = Duration::from_mins(1);

/// What a reader was told of a response.
#[derive(Debug, Default)]
struct Seen {
    /// The items in their order: the text, and how it ended.
    items: Vec<(String, Option<String>)>,
    /// The number of the last event.
    last: Option<u64>,
    /// How often its connection broke.
    cuts: usize,
}

impl Seen {
    /// Takes an event; returns the response if it is over.
    fn take(&mut self, event: &Event) -> Result<Option<Value>> {
        let data = &event.data;
        let number = data["sequence_number"].as_u64().context("a number")?;
        ensure!(self.last < Some(number), "{:?} and then {data}", self.last);
        self.last = Some(number);
        let index = data["output_index"].as_u64().unwrap_or_default() as usize;
        let count = self.items.len();
        let item = self.items.get_mut(index);
        match event.name.as_str() {
            "response.output_item.added" => {
                ensure!(index == count, "{data}");
                self.items.push((String::new(), None));
            }
            "response.output_text.delta" => {
                let delta = data["delta"].as_str().context("a text")?;
                item.context("an item")?.0.push_str(delta);
            }
            "response.output_item.done" => {
                let status = data["item"]["status"].as_str();
                item.context("an item")?.1 = status.map(str::to_owned);
            }
            "response.completed" => return Ok(Some(data["response"].clone())),
            "response.failed" | "response.incomplete" => bail!("{data}"),
            _ => {}
        }
        Ok(None)
    }
}

/// Reads a response to its end, on one scheduler after the other.
async fn read(urls: Vec<String>, id: String, first: usize) -> Result<(Seen, Value)> {
    let mut seen = Seen::default();
    let limit = monotonic() + fault_duration() + END;
    for turn in first.. {
        ensure!(monotonic() < limit, "{id} does not end: {seen:?}");
        let after = seen.last.map(|last| format!("&starting_after={last}"));
        let path = format!(
            "/v1/responses/{id}?stream=true{}",
            after.unwrap_or_default()
        );
        let url = &urls[turn % urls.len()];
        let Ok(mut events) = Events::open(url, &path, None).await else {
            pause(20 * MS).await;
            continue;
        };
        loop {
            match events.next().await {
                Ok(Some(event)) => {
                    if let Some(response) = seen.take(&event)? {
                        return Ok((seen, response));
                    }
                }
                Ok(None) => bail!("a stream of {id} that is not whole ended as if it were"),
                Err(_) => break,
            }
        }
        seen.cuts += 1;
    }
    bail!("there are no more turns");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_gets_the_whole_answer_whatever_dies() -> Result<()> {
    // Each response is hit by several deaths.
    let environment = [("MAINSPRING_WORKER_CRASHES_MAX", "1000")];
    let recipe = Recipe {
        script: "[[stream 40x40ms]]",
        environment: &environment,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let models = caller.get("/v1/models").await?;
    let model = models["data"][0]["id"].clone();
    let end = monotonic() + fault_duration();
    let (mut cuts, mut voids, mut count) = (0, 0, 0);
    while monotonic() < end || count == 0 {
        let mut readers = Vec::new();
        for n in 0..READERS {
            count += 1;
            let words = format!("reader {count} wants to hear all of these words, and each once");
            let body = json!({ "model": model, "input": words, "background": true });
            let key = format!("r{count}");
            let answer = caller.post("/v1/responses", &body, &key);
            let begun = answer.await?.json()?;
            let id = begun["id"].as_str().with_context(|| format!("{begun}"))?;
            readers.push(tokio::spawn(read(cluster.urls(), id.to_owned(), n)));
        }
        for victim in 0..cluster.schedulers.len() {
            pause(between(150 * MS, 400 * MS)).await;
            let fault_log = cluster.fault_log.clone();
            let worker = cluster.busy_worker().await?;
            fault_log.during(
                "a scheduler and a worker are killed",
                Effect::Repeats,
                || {
                    blocking(|| cluster.schedulers[victim].kill());
                    cluster.kill_worker(worker);
                },
            );
            cluster.replace_scheduler(victim)?;
            cluster.replace_worker(worker)?;
            cluster.all_ready()?;
        }
        for reader in readers {
            let (seen, response) = reader.await??;
            let id = response["id"].as_str().context("an id")?;
            let whole = seen.items.iter();
            let whole = whole.filter(|(_, end)| end.as_deref() == Some("completed"));
            let whole: String = whole.map(|(text, _)| text.as_str()).collect();
            let send = format!("/v1/sends/{}", id.replace("resp_", "snd_"));
            let native = caller.get(&send).await?;
            ensure!(native["output_text"] == whole.as_str(), "{native} {seen:?}");
            let said = &response["output"][0]["content"][0]["text"];
            ensure!(*said == whole.as_str(), "{response} {seen:?}");
            let stored = caller.get(&format!("/v1/responses/{id}")).await?;
            ensure!(stored["output"][0]["content"] == response["output"][0]["content"]);
            cuts += seen.cuts;
            voids += seen.items.len() - 1;
        }
    }
    ensure!(cuts > 0, "no kill hit a reader of {count} responses");
    say(&format!(
        "{count} responses, {cuts} streams cut, {voids} items void"
    ));
    cluster.audit()?;
    cluster.passed();
    Ok(())
}

//! What a program brings along and what it gets back, on a file of its own and within one process.

use std::sync::Arc;

use mainspring::extend::async_trait;
use mainspring::extend::blobs::{BlobPlace, Blobs, Error as BlobError};
use mainspring::extend::hook::{At, Decision, Hook, Verdict};
use mainspring::extend::model::{
    Chunk, ContentPart, Error as ModelError, Finish, Model, Reply, Request, Usage,
};
use mainspring::flow::{Workflow, agent, sequence};
use mainspring::{Agent, Error, Mainspring, Opening, Tool};
use mainspring_blob_stores::FileBlobs;
use serde::Deserialize;
use tempfile::TempDir;

/// A database of its own.
fn opening(folder: &TempDir) -> Opening {
    let file = folder.path().join("app.db");
    Mainspring::open(format!("sqlite:{}", file.display()))
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

#[derive(Debug, Deserialize)]
struct Article {
    article: String,
}

fn stock() -> Tool {
    Tool::new(
        "stock",
        "Pieces of an article in stock.",
        |asked: Article| async move {
            if asked.article == "tea" {
                Ok("12")
            } else {
                Err("there is no such article")
            }
        },
    )
}

/// A model that answers with how many messages it was shown.
#[derive(Debug)]
struct Counting;

#[async_trait]
impl Model for Counting {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, ModelError> {
        let text = format!("{} of them", request.messages.len());
        on_chunk(Chunk::Text(&text));
        Ok(Reply {
            content: vec![ContentPart::text(text)],
            tool_calls: Vec::new(),
            finish: Finish::Stop,
            usage: Usage::default(),
            model: request.model.clone(),
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_the_program_answers_in_place_of_the_built_in_one() {
    let folder = folder();
    let app = opening(&folder)
        .model("own", Arc::new(Counting), "counting")
        .await
        .expect("it opens");
    let session = app.session();
    let first = session.send("one").wait().await.expect("an answer");
    assert_eq!(
        (first.text.as_str(), first.send.status.as_str()),
        ("1 of them", "completed")
    );
    let mut events = session.send("two").await.expect("accepted").stream();
    let answer = events.answer().await.expect("an answer");
    assert_eq!(
        (answer.text.as_str(), events.text()),
        ("3 of them", "3 of them")
    );
    app.shutdown().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_is_called_by_agents_and_by_leaves_and_its_error_is_read_by_the_model() {
    let folder = folder();
    let shop = Agent::new("shop").prompt("You help.").tool(stock());
    let app = opening(&folder).agent(shop).await.expect("it opens");
    let session = app.session().agent("shop");
    let asks = |article: &str| format!(r#"!tool stock {{"article": "{article}"}}"#);
    let found = session.send(asks("tea")).wait().await.expect("an answer");
    assert_eq!(found.text, "stock answered: 12");
    let missing = session.send(asks("gold")).wait().await.expect("an answer");
    assert!(
        missing.text.contains("there is no such article"),
        "{}",
        missing.text
    );

    let ask = agent("ask").published("shop").input(asks("tea"));
    let tell = agent("tell")
        .prompt("You tell.")
        .input(format!("It said: {ask}"));
    let workflow = Workflow::new("stock", sequence([ask, tell]));
    let run = app.run(&workflow).await.expect("it starts");
    let ended = run.wait().await.expect("a result");
    assert_eq!(ended.text, "It said: stock answered: 12");
    app.shutdown().await.expect("nothing is left");
}

/// Refuses all calls of tools.
#[derive(Debug)]
struct Strict;

#[async_trait]
impl Hook for Strict {
    fn name(&self) -> &'static str {
        "strict"
    }

    async fn round_started(&self, _at: At) -> Decision<()> {
        Ok(Verdict::Refuse("not here".into()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_of_the_program_is_asked() {
    let folder = folder();
    let app = opening(&folder)
        .hook(Arc::new(Strict))
        .await
        .expect("it opens");
    let error = app
        .session()
        .send("hello")
        .wait()
        .await
        .expect_err("it is refused");
    let code = error.code().expect("a failed send has one");
    assert!(
        code.as_str().contains("polic") || code.as_str().contains("hook"),
        "{code}"
    );
    app.shutdown().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_are_where_the_program_wants_them() {
    let (folder, elsewhere) = (folder(), folder());
    let blobs: Arc<dyn Blobs> = Arc::new(FileBlobs::new(elsewhere.path()));
    let app = opening(&folder)
        .blobs(blobs.clone())
        .await
        .expect("it opens");
    let made = app
        .client()
        .api()
        .create_blob(vec![7; 100_000])
        .await
        .expect("stored");
    let count = std::fs::read_dir(elsewhere.path())
        .expect("the folder is there")
        .count();
    assert!(count > 0, "{made:?}");
    app.shutdown().await.expect("nothing is left");
    // The trait's own words are there to implement it.
    let _: fn(&BlobPlace) -> Option<BlobError> = |_| None;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_closures_may_not_share_a_name() {
    let folder = folder();
    let other = Tool::new("stock", "Another.", |_: Article| async {
        Ok::<_, Error>("0")
    });
    let opened = opening(&folder).tool(stock()).tool(other).await;
    assert!(matches!(opened, Err(Error::Setup(why)) if why.contains("stock")));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_shutdown_nothing_waits_for_an_answer() {
    let folder = folder();
    let app = opening(&folder).await.expect("it opens");
    let client = app.client().clone();
    app.shutdown().await.expect("nothing is left");
    let error = client
        .session()
        .send("hello")
        .await
        .expect_err("nobody is there");
    assert!(error.to_string().contains("shut down"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_of_another_database_is_refused_without_its_password() {
    let error = Mainspring::open("mysql://me:hunter2@db/app")
        .await
        .expect_err("it is not open");
    assert!(
        !format!("{error} {error:?}").contains("hunter2"),
        "{error:?}"
    );
}

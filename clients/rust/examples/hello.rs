//! The first program of the README, to the letter: a test compares them, and `cargo xtask clients` runs it.
#![expect(clippy::print_stdout, reason = "it is what a user writes")]

use mainspring_client::Client;
use mainspring_client::types::AgentSpec;

#[tokio::main]
async fn main() -> Result<(), mainspring_client::Error> {
    let client = Client::from_env();
    let agent = AgentSpec {
        system_prompt: Some("Be brief.".to_owned()),
        ..AgentSpec::default()
    };
    let send = client
        .session()
        .agent(agent)
        .send("Where is my order 8812?")
        .await?;
    let mut events = send.stream();
    while let Some(piece) = events.next_piece().await? {
        print!("{}{}", if piece.replace { "\r" } else { "" }, piece.text);
    }
    println!("\n{} tokens", events.answer().await?.usage().output_tokens);
    Ok(())
}

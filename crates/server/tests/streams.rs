//! Streams that go through the server: logs from agents, terminals, events as they happen.
#![allow(clippy::unwrap_used)]
mod common;
use common::{Agent, PATIENCE, Scratch, Server, job, submit, until};
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::Role;
use ganger_runtime::http::{ByteStream, Client};
use ganger_runtime::shutdown::pair;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

async fn read_all(mut stream: ByteStream) -> String {
    let mut text = Vec::new();
    while let Some(piece) = stream.next().await {
        text.extend_from_slice(&piece.unwrap());
    }
    String::from_utf8(text).unwrap()
}

async fn log(client: &Client, path: &str) -> Result<String, String> {
    match client.stream(path).await {
        Ok(stream) => Ok(read_all(stream).await),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_goes_from_the_agent_to_the_user_while_it_runs_and_after() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let (trigger, shutdown) = pair();
    let agent = Agent::register(owner.clone(), "n0").await.spawn(shutdown);
    // Who follows a job that has not been placed yet waits for it.
    let early = tokio::spawn({
        let owner = owner.clone();
        submit(&owner, &job("one")).await.unwrap();
        async move { log(&owner, "/v1/jobs/one/logs?follow=true").await }
    });
    assert_eq!(early.await.unwrap().unwrap(), "log of rank 0\n");
    until(&owner, "one", |j| j.view.state == JobState::Running).await;
    assert_eq!(log(&owner, "/v1/jobs/one/logs").await.unwrap(), "log of rank 0\n");

    let error = log(&owner, "/v1/jobs/one/logs?rank=3").await.unwrap_err();
    assert!(error.contains("no rank 3") && error.contains("ranks 0 to 0"), "{error}");
    let error = log(&owner, "/v1/jobs/one/logs?attempt=9").await.unwrap_err();
    assert!(error.contains("no attempt 9"), "{error}");
    let other = server.token("m", Role::Member, "nobody").await;
    assert!(log(&other, "/v1/jobs/one/logs").await.unwrap_err().contains("own jobs only"));

    let mut exec = owner.upgrade("/v1/jobs/one/exec", &json!({"command": ["hostname"]})).await.unwrap();
    let mut text = String::new();
    tokio::time::timeout(PATIENCE, exec.read_to_string(&mut text)).await.unwrap().unwrap();
    assert!(text.contains("hostname"), "{text}");

    let _: Value = owner.post("/v1/jobs/one/cancel", &json!(null)).await.unwrap();
    until(&owner, "one", |j| j.view.state == JobState::Cancelled).await;
    assert_eq!(log(&owner, "/v1/jobs/one/logs").await.unwrap(), "log of rank 0\n");
    let error = owner.upgrade("/v1/jobs/one/attach", &json!(null)).await.unwrap_err().to_string();
    assert!(error.contains("no process to join"), "{error}");
    trigger.pull();
    agent.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_followed_as_they_happen() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let mut stream = owner.stream("/v1/events?since=0&follow=true").await.unwrap();
    submit(&owner, &job("one")).await.unwrap();
    let mut text = String::new();
    while !text.contains("\"submitted\"") {
        let piece = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["number"], 1);
    // The stream ends with the server, not before.
    server.stop().await;
    read_all(stream).await;
}

//! Who gets in, and what is refused at the door: tokens, roles, bodies, a second server, the API's description.
#![allow(clippy::unwrap_used)]
mod common;
use common::{Agent, Scratch, Server, job, submit};
use ganger_core::model::wire::api::{JobView, Role, TokenView};
use ganger_runtime::http::{Client, Endpoint, HttpError, STREAM_PROTOCOL};
use ganger_runtime::secret::Secret;
use ganger_runtime::shutdown::pair;
use ganger_server::{Config, serve};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn status(error: &HttpError) -> u16 {
    error.status().map_or(0, |status| status.as_u16())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_roles_open_what_they_should() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let mode = std::fs::metadata(&server.running.owner_token).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let nobody = Client::new(server.endpoint(), None);
    let error = nobody.get::<Value>("/v1/jobs").await.unwrap_err();
    assert_eq!(status(&error), 401);
    assert!(error.to_string().contains("owner.token"), "{error}");
    let stranger = server.with_token(Secret::generate().unwrap());
    assert_eq!(status(&stranger.get::<Value>("/v1/jobs").await.unwrap_err()), 401);

    let member = server.token("m", Role::Member, "nobody").await;
    let other = server.token("o", Role::Member, "daemon").await;
    let agent = server.token("a", Role::Agent, "agents").await;
    submit(&member, &job("mine")).await.unwrap();
    // Others see it and cannot touch it.
    assert_eq!(other.get::<JobView>("/v1/jobs/mine").await.unwrap().user, "nobody");
    assert_eq!(status(&other.post::<_, JobView>("/v1/jobs/mine/cancel", &json!(null)).await.unwrap_err()), 403);
    assert_eq!(status(&member.get::<Value>("/v1/tokens").await.unwrap_err()), 403);
    assert_eq!(status(&member.post::<_, Value>("/v1/agent/register", &json!({})).await.unwrap_err()), 403);
    assert_eq!(status(&agent.get::<Value>("/v1/jobs").await.unwrap_err()), 403);
    Agent::register(agent, "n0").await.sync(0).await.unwrap();
    assert_eq!(status(&member.post::<_, Value>("/v1/nodes/n0/drain", &json!(null)).await.unwrap_err()), 403);
    let _: JobView = server.owner().post("/v1/jobs/mine/cancel", &json!(null)).await.unwrap();

    // A revoked token opens nothing.
    let _: Value = server.owner().delete("/v1/tokens/o").await.unwrap();
    assert_eq!(status(&other.get::<Value>("/v1/jobs").await.unwrap_err()), 401);
    let tokens: Vec<TokenView> = server.owner().get("/v1/tokens").await.unwrap();
    assert!(tokens.iter().all(|token| token.secret.is_none()));
    assert_eq!(tokens.iter().map(|token| token.name.as_str()).collect::<Vec<_>>(), ["a", "m", "owner"]);
    let request = json!({"name": "x", "role": "member", "user": "no-such-user"});
    assert_eq!(status(&server.owner().post::<_, Value>("/v1/tokens", &request).await.unwrap_err()), 422);
    // The server's own user needs no token on the Unix socket.
    let _: Value = server.by_socket().get("/v1/tokens").await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_that_is_not_open_asks_who_is_there() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let nobody = Client::new(server.endpoint(), None);
    let document: Value = nobody.get("/openapi.json").await.unwrap();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        if path == "/healthz" {
            continue;
        }
        let path = path.replace("{job}", "1").replace("{node}", "n0").replace("{name}", "x");
        for method in methods.as_object().unwrap().keys() {
            let outcome = match method.as_str() {
                "get" => nobody.get::<Value>(&path).await,
                "post" => nobody.post::<_, Value>(&path, &json!({})).await,
                _ => nobody.delete::<Value>(&path).await,
            };
            assert_eq!(status(&outcome.unwrap_err()), 401, "{method} {path}");
            asked += 1;
        }
    }
    assert!(asked > 25, "{asked}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_committed_description_of_the_api_is_fresh() {
    let mut made = serde_json::to_string_pretty(&ganger_server::api::document()).unwrap();
    made.push('\n');
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    if std::env::var_os("GANGER_BLESS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == made,
        "openapi.json is stale: run this test once with GANGER_BLESS=1 and review the difference"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_fifty_megabytes_and_one_that_is_not_text_are_refused_in_words() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let mut huge = job("huge");
    huge["env"] = json!({"A": "x".repeat(50 << 20)});
    let error = submit(&owner, &huge).await.unwrap_err();
    assert_eq!(status(&error), 413, "{error}");
    assert!(error.to_string().contains("limit is 1048576"), "{error}");

    let answer = raw(&server, "/v1/jobs", b"{\"name\": \"\xff\"}").await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("byte 10") && answer.contains("0xff"), "{answer}");
    let answer = raw(&server, "/v1/jobs", b"{\"name\": }").await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("line 1 column 10"), "{answer}");
    let answer = raw(&server, "/v1/jobs", b"{\"name\": \"a\", \"cmmand\": 1}").await;
    assert!(answer.contains("unknown field `cmmand`"), "{answer}");

    let error = submit(&owner, &json!({"name": "x", "gang": {"workers": 0}, "command": []})).await.unwrap_err();
    assert_eq!(status(&error), 422);
    assert!(error.to_string().contains("gang.workers") && error.to_string().contains("command"), "{error}");
    let error = owner.get::<Value>("/v1/jbos").await.unwrap_err();
    assert!(error.to_string().contains("/v1/jbos"), "{error}");
    server.stop().await;
}

/// Sends exactly these bytes as a POST and returns the whole answer.
async fn raw(server: &Server, path: &str, body: &[u8]) -> String {
    let token = Secret::read_file(&server.running.owner_token).unwrap();
    let mut stream = TcpStream::connect(server.running.addr.unwrap()).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        token.expose(),
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_server_and_an_open_address_are_refused() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let (_trigger, shutdown) = pair();
    let error = serve(Config::new(&scratch.0), shutdown.clone()).await.unwrap_err().to_string();
    assert!(error.contains("in use") && error.contains(&std::process::id().to_string()), "{error}");
    server.by_socket().get::<Value>("/v1/status").await.unwrap();

    let elsewhere = Scratch::new();
    let mut config = Config::new(&elsewhere.0);
    config.listen = Some("0.0.0.0:0".parse().unwrap());
    let error = serve(config, shutdown).await.unwrap_err().to_string();
    assert!(error.contains("--allow-remote") && error.contains("token"), "{error}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_the_superuser_need_the_option() {
    let scratch = Scratch::new();
    let server = Server::start_with(&scratch.0, |config| config.allow_root = false).await;
    let root = server.token("r", Role::Admin, "root").await;
    let error = submit(&root, &job("one")).await.unwrap_err();
    assert_eq!(status(&error), 403);
    assert!(error.to_string().contains("--allow-root"), "{error}");
    let member = server.token("m", Role::Member, "nobody").await;
    submit(&member, &job("one")).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_the_protocol_is_refused() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let error = server.owner().post::<_, Value>("/v1/jobs/1/attach", &json!(null)).await.unwrap_err();
    assert_eq!(status(&error), 426);
    assert!(error.to_string().contains(STREAM_PROTOCOL), "{error}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_that_does_not_exist_stops_the_start() {
    let scratch = Scratch::new();
    let (_trigger, shutdown) = pair();
    let mut config = Config::new(&scratch.0);
    config.settings.insert("leese".to_string(), "1s".to_string());
    let error = serve(config, shutdown).await.unwrap_err().to_string();
    assert!(error.contains("\"leese\""), "{error}");
}

#[test]
fn the_unix_endpoint_of_a_server_is_its_socket() {
    assert_eq!(Endpoint::parse("unix:/x/ganger.sock").unwrap(), Endpoint::Unix("/x/ganger.sock".into()));
}

//! Drives an ARCP server with the published client.
//!
//! The arguments are the URL of the server, a token and the failures to provoke, as a
//! JSON object: the code that demo.fail is given, and the code that is to arrive. Each
//! step prints one line: its name and, if it failed, why. The line `kill` asks for the
//! server to be killed and started again; a line on standard input says that it was.

use std::collections::BTreeMap;
use std::env;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arcp::client::{Authenticated, JobHandle};
use arcp::ids::{JobId, MessageId};
use arcp::messages::{
    AuthScheme, ClientIdentity, Credentials, SubscribePayload, SubscriptionFilter,
    SubscriptionSince, ToolInvokePayload,
};
use arcp::transport::websocket::WebSocketTransport;
use arcp::transport::Transport;
use arcp::{ARCPClient, ARCPError, Capabilities, Envelope, MessageType};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

/// How long a step may take. Only one that hangs takes so long.
const STEP: Duration = Duration::from_secs(120);

const CONCURRENT: usize = 200;

/// More than a server puts into one chunk of a result.
const LARGE: usize = 1 << 20;

type Outcome = Result<(), String>;
type Session = arcp::client::Session<Authenticated, WebSocketTransport>;

#[derive(Clone)]
struct Server {
    url: String,
    token: String,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let [url, token, codes] = args.as_slice() else {
        panic!("usage: drive URL TOKEN CODES");
    };
    let server = Server { url: url.clone(), token: token.clone() };
    let codes: BTreeMap<String, String> = serde_json::from_str(codes).expect("CODES is a JSON object");

    step("open", open(&server)).await;
    step("open at the root", open_at_root(&server)).await;
    step("wrong token", wrong_token(&server)).await;
    step("other schemes", other_schemes(&server)).await;
    step("invoke", invoke(&server)).await;
    step("unknown tool", unknown_tool(&server)).await;
    step("wrong arguments", wrong_arguments(&server)).await;
    step("failure", failure(&server, &codes)).await;
    step("cancel", cancel(&server)).await;
    step("subscribe", subscribe(&server)).await;
    step("subscribe to a trace", subscribe_to_trace(&server)).await;
    step("dropped subscription", dropped_subscription(&server)).await;
    step("backfill", backfill(&server)).await;
    step("large result", large_result(&server)).await;
    step("concurrent", concurrent(&server)).await;
    step("artifacts", artifacts(&server)).await;
    step("checkpoints", checkpoints(&server)).await;
    step("reconnect", reconnect(&server)).await;
}

/// Plays one step and prints its outcome.
async fn step(name: &str, outcome: impl Future<Output = Outcome>) {
    let outcome = tokio::time::timeout(STEP, outcome)
        .await
        .unwrap_or_else(|_| Err(format!("takes longer than {STEP:?}")));
    match outcome {
        Ok(()) => println!("{name}"),
        Err(why) => println!("{name}: {}", why.replace('\n', " ")),
    }
}

fn text(e: ARCPError) -> String {
    e.to_string()
}

fn want<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Outcome {
    if got == want {
        return Ok(());
    }
    let (got, want) = (format!("{got:?}"), format!("{want:?}"));
    Err(format!("{what} is {got:.300}, want {want:.300}"))
}

/// Wants an error with a text in it.
fn want_error<T>(what: &str, got: Result<T, ARCPError>, part: &str) -> Outcome {
    match got {
        Ok(_) => Err(format!("{what} succeeds, want an error with {part}")),
        Err(e) if e.to_string().contains(part) => Ok(()),
        Err(e) => Err(format!("{what} fails with {e}, want {part}")),
    }
}

fn identity() -> ClientIdentity {
    ClientIdentity {
        kind: arcp::IMPL_KIND.into(),
        version: arcp::IMPL_VERSION.into(),
        fingerprint: None,
        principal: None,
    }
}

fn credentials(server: &Server) -> Credentials {
    Credentials { scheme: AuthScheme::Bearer, token: Some(server.token.clone()) }
}

async fn connect(server: &Server, capabilities: Capabilities) -> Result<Session, ARCPError> {
    let transport = WebSocketTransport::dial(&server.url).await?;
    ARCPClient::new(transport)
        .open()?
        .authenticate(credentials(server), identity(), capabilities)
        .await
}

async fn session(server: &Server) -> Result<Session, String> {
    connect(server, Capabilities::default()).await.map_err(text)
}

async fn run(s: &Session, tool: &str, arguments: Value) -> Result<Value, ARCPError> {
    s.invoke(tool, arguments).await?.join().await
}

/// Wants the session to work. The client reads nothing more after a frame that it cannot
/// decode, and every call fails then.
async fn alive(s: &Session) -> Outcome {
    let arguments = json!({"still": "there"});
    let got = run(s, "demo.echo", arguments.clone()).await;
    want("the result of the next call", &got.map_err(text)?, &arguments)
}

async fn open(server: &Server) -> Outcome {
    let s = session(server).await?;
    let id = s.id().await.map_err(text)?;
    want("the prefix of the session id", &&id.as_str()[..5], &"sess_")?;
    alive(&s).await
}

async fn open_at_root(server: &Server) -> Outcome {
    let end = server.url.rfind('/').ok_or("the URL has no path")?;
    let root = Server { url: server.url[..=end].into(), ..server.clone() };
    alive(&session(&root).await?).await
}

async fn wrong_token(server: &Server) -> Outcome {
    let stranger = Server { token: "of nobody".into(), ..server.clone() };
    let got = connect(&stranger, Capabilities::default()).await;
    want_error("session.open with a wrong token", got, "UNAUTHENTICATED")
}

/// Opens sessions with the schemes that the server has no credentials for.
async fn other_schemes(server: &Server) -> Outcome {
    let token = || Some("a.b.c".to_string());
    for (scheme, token) in [
        (AuthScheme::None, None),
        (AuthScheme::SignedJwt, token()),
        (AuthScheme::Mtls, None),
        (AuthScheme::Oauth2, token()),
    ] {
        let what = format!("session.open with {scheme:?}");
        let transport = WebSocketTransport::dial(&server.url).await.map_err(text)?;
        let session = ARCPClient::new(transport).open().map_err(text)?;
        let got = session.authenticate(Credentials { scheme, token }, identity(), Capabilities::default()).await;
        want_error(&what, got, "session.")?;
    }
    alive(&session(server).await?).await
}

async fn invoke(server: &Server) -> Outcome {
    let s = session(server).await?;
    let arguments = json!({"text": "hällo", "list": [1, 2.5, null, true], "nested": {"a": {}}});
    let job = s.invoke("demo.echo", arguments.clone()).await.map_err(text)?;
    want("the prefix of the job id", &&job.job_id.as_str()[..4], &"job_")?;
    want("the result", &job.join().await.map_err(text)?, &arguments)?;
    want_error("another join", job.join().await, "join called twice")?;
    let none = run(&s, "demo.emit", json!({"count": 50, "bytes": 100})).await;
    none.map_err(text)?;
    alive(&s).await
}

async fn unknown_tool(server: &Server) -> Outcome {
    let s = session(server).await?;
    want_error("a tool that does not exist", s.invoke("demo.nothing", json!({})).await, "NOT_FOUND")?;
    want_error("a version that does not exist", s.invoke("demo.echo@9.9.9", json!({})).await, "NOT_FOUND")?;
    alive(&s).await
}

async fn wrong_arguments(server: &Server) -> Outcome {
    let s = session(server).await?;
    want_error("a call with wrong arguments", run(&s, "demo.sleep", json!({"ms": "long"})).await, "INVALID_ARGUMENT")?;
    alive(&s).await
}

/// Has jobs fail with each code.
async fn failure(server: &Server, codes: &BTreeMap<String, String>) -> Outcome {
    let s = session(server).await?;
    for (code, sent) in codes {
        let arguments = json!({"code": code, "message": "on purpose", "details": {"n": 1}});
        let got = run(&s, "demo.fail", arguments).await;
        want_error(code, got, &format!("({sent}): on purpose"))?;
        alive(&s).await?;
    }
    want_error("demo.panic", run(&s, "demo.panic", json!({})).await, "INTERNAL")?;
    alive(&s).await
}

async fn cancel(server: &Server) -> Outcome {
    let s = session(server).await?;
    let job = s.invoke("demo.sleep", json!({"ms": 3_600_000})).await.map_err(text)?;
    job.cancel("not needed").await.map_err(text)?;
    match job.join().await {
        Err(ARCPError::Cancelled { reason }) => want("the reason", &reason.as_str(), &"not needed")?,
        other => return Err(format!("a cancelled job ends with {other:?}")),
    }
    // The job has ended: cancel is refused, which the client does not show.
    job.cancel("again").await.map_err(text)?;
    alive(&s).await
}

async fn subscribe(server: &Server) -> Outcome {
    let s = session(server).await?;
    let other = session(server).await?;
    let watched = s.invoke("demo.sleep", json!({"ms": 3_600_000})).await.map_err(text)?;
    let of_job = other
        .subscribe(SubscriptionFilter { job_id: vec![watched.job_id.clone()], ..Default::default() })
        .await
        .map_err(text)?;
    watched.cancel("watched").await.map_err(text)?;
    loop {
        let event = of_job.next().await.ok_or("the subscription to a job ends")?;
        want("the job of an event", &event.job_id, &Some(watched.job_id.clone()))?;
        if let MessageType::JobCancelled(p) = event.payload {
            want("the reason", &p.reason.as_deref(), &Some("watched"))?;
            break;
        }
    }
    of_job.unsubscribe().await.map_err(text)?;

    let types = ["job.progress", "job.completed"].map(String::from).to_vec();
    let of_types = s
        .subscribe(SubscriptionFilter {
            session_id: vec![other.id().await.map_err(text)?],
            types,
            ..Default::default()
        })
        .await
        .map_err(text)?;
    run(&other, "demo.progress", json!({"steps": 5, "interval_ms": 1})).await.map_err(text)?;
    let mut steps = Vec::new();
    loop {
        match of_types.next().await.ok_or("the subscription to types ends")?.payload {
            MessageType::JobProgress(p) => steps.push(format!("{:?}", p.percent)),
            MessageType::JobCompleted(_) => break,
            other => return Err(format!("a filter of types brings {}", other.type_name())),
        }
    }
    want("the number of steps", &steps.len(), &5)?;
    of_types.unsubscribe().await.map_err(text)?;
    alive(&s).await?;
    alive(&other).await
}

async fn subscribe_to_trace(server: &Server) -> Outcome {
    let s = session(server).await?;
    let mine = SubscriptionFilter { session_id: vec![s.id().await.map_err(text)?], ..Default::default() };
    let of_session = s.subscribe(mine).await.map_err(text)?;
    let job = s.invoke("demo.sleep", json!({"ms": 3_600_000})).await.map_err(text)?;
    let accepted = of_session.next().await.ok_or("the subscription to a session ends")?;
    want("the job of the first event", &accepted.job_id, &Some(job.job_id.clone()))?;
    want("the request of the first event", &accepted.correlation_id, &Some(job.correlation_id.clone()))?;
    let trace = accepted.trace_id.ok_or("job.accepted has no trace_id")?;
    let of_trace = s
        .subscribe(SubscriptionFilter { trace_id: vec![trace.clone()], ..Default::default() })
        .await
        .map_err(text)?;
    run(&s, "demo.echo", json!({"another": "trace"})).await.map_err(text)?;
    job.cancel("traced").await.map_err(text)?;
    loop {
        let event = of_trace.next().await.ok_or("the subscription to a trace ends")?;
        want("the trace of an event", &event.trace_id, &Some(trace.clone()))?;
        if let MessageType::JobCancelled(_) = event.payload {
            break;
        }
    }
    alive(&s).await
}

/// Drops a subscription without a message: its events go on, and the client ignores them.
async fn dropped_subscription(server: &Server) -> Outcome {
    let s = session(server).await?;
    drop(s.subscribe(SubscriptionFilter::default()).await.map_err(text)?);
    run(&s, "demo.emit", json!({"count": 50, "bytes": 100})).await.map_err(text)?;
    alive(&s).await
}

/// A session without the client, for what the client does not offer.
struct Raw {
    transport: WebSocketTransport,
    session: arcp::ids::SessionId,
}

impl Raw {
    async fn open(server: &Server) -> Result<Self, ARCPError> {
        let transport = WebSocketTransport::dial(&server.url).await?;
        let open = MessageType::SessionOpen(arcp::messages::SessionOpenPayload {
            auth: credentials(server),
            client: identity(),
            capabilities: Capabilities::default(),
        });
        transport.send(Envelope::new(open)).await?;
        match transport.recv().await? {
            Some(Envelope { payload: MessageType::SessionAccepted(p), .. }) => {
                Ok(Self { transport, session: p.session_id })
            }
            other => Err(ARCPError::Internal { detail: format!("session.open is answered with {other:?}") }),
        }
    }

    async fn send(&self, payload: MessageType) -> Result<(), ARCPError> {
        let mut envelope = Envelope::new(payload);
        envelope.session_id = Some(self.session.clone());
        self.transport.send(envelope).await
    }

    async fn receive(&self) -> Result<Envelope, ARCPError> {
        self.transport.recv().await?.ok_or_else(|| ARCPError::Unavailable { detail: "the connection ended".into() })
    }

    /// Subscribes to what came after a message of a job.
    async fn subscribe(&self, job: &JobId, after: &MessageId) -> Result<(), ARCPError> {
        self.send(MessageType::Subscribe(SubscribePayload {
            filter: SubscriptionFilter { job_id: vec![job.clone()], ..Default::default() },
            since: Some(SubscriptionSince { after_message_id: Some(after.clone()) }),
        }))
        .await?;
        match self.receive().await?.payload {
            MessageType::SubscribeAccepted(_) => Ok(()),
            other => Err(ARCPError::Internal { detail: format!("subscribe is answered with {}", other.type_name()) }),
        }
    }

    /// The next event of the subscription.
    async fn event(&self) -> Result<Envelope, ARCPError> {
        match self.receive().await?.payload {
            MessageType::SubscribeEvent(p) => Ok(serde_json::from_value(p.event)?),
            other => Err(ARCPError::Internal { detail: format!("a subscription brings {}", other.type_name()) }),
        }
    }
}

fn ends(payload: &MessageType) -> bool {
    matches!(payload, MessageType::JobCompleted(_) | MessageType::JobFailed(_) | MessageType::JobCancelled(_))
}

/// Has the events of a job that has ended come again, to another session.
async fn backfill(server: &Server) -> Outcome {
    let raw = Raw::open(server).await.map_err(text)?;
    raw.send(MessageType::ToolInvoke(ToolInvokePayload::new(
        "demo.progress",
        json!({"steps": 20, "interval_ms": 1}),
    )))
    .await
    .map_err(text)?;
    let mut events = Vec::new();
    loop {
        let event = raw.receive().await.map_err(text)?;
        let last = ends(&event.payload);
        if event.event_seq.is_some() {
            events.push(event);
        }
        if last {
            break;
        }
    }
    let (accepted, rest) = events.split_first().ok_or("the job has no events")?;
    let job = accepted.job_id.clone().ok_or("job.accepted has no job_id")?;

    let later = Raw::open(server).await.map_err(text)?;
    later.subscribe(&job, &accepted.id).await.map_err(text)?;
    for event in rest {
        let again = later.event().await.map_err(text)?;
        want("an event that comes again", &again, event)?;
    }
    match later.event().await.map_err(text)?.payload {
        MessageType::EventEmit(p) => want("the event at the end", &p.name.as_str(), &arcp::messages::SUBSCRIPTION_BACKFILL_COMPLETE),
        other => Err(format!("the past ends with {}", other.type_name())),
    }
}

async fn large_result(server: &Server) -> Outcome {
    let s = session(server).await?;
    let arguments = json!({"text": "ü".repeat(LARGE)});
    let got = run(&s, "demo.echo", arguments.clone()).await.map_err(text)?;
    want("the large result", &got, &arguments)?;
    alive(&s).await
}

/// Runs many jobs of one session at the same time.
async fn concurrent(server: &Server) -> Outcome {
    let s = Arc::new(session(server).await?);
    let mut calls = JoinSet::new();
    for n in 0..CONCURRENT {
        let s = Arc::clone(&s);
        calls.spawn(async move {
            if n % 4 == 0 {
                run(&s, "demo.progress", json!({"steps": 5, "interval_ms": 1})).await.map_err(text)?;
            }
            let arguments = json!({"n": n});
            let got = run(&s, "demo.echo", arguments.clone()).await.map_err(text)?;
            want("a result", &got, &arguments)
        });
    }
    while let Some(done) = calls.join_next().await {
        done.map_err(|e| e.to_string())??;
    }
    alive(&s).await
}

/// Puts, fetches and releases an artifact, or is refused each where there are none.
async fn artifacts(server: &Server) -> Outcome {
    let s = session(server).await?;
    let body = "aGVsbG8=";
    let put = s.put_artifact("text/plain", body, Some(60)).await;
    if s.capabilities().await.artifacts != Some(true) {
        want_error("artifact.put", put, "UNIMPLEMENTED")?;
        want_error("artifact.fetch", s.fetch_artifact(arcp::ids::ArtifactId::new()).await, "UNIMPLEMENTED")?;
        s.release_artifact(arcp::ids::ArtifactId::new()).await.map_err(text)?;
        return alive(&s).await;
    }
    let artifact = put.map_err(text)?;
    let (data, media_type) = s.fetch_artifact(artifact.artifact_id.clone()).await.map_err(text)?;
    want("the artifact", &(data.as_str(), media_type.as_str()), &(body, "text/plain"))?;
    s.release_artifact(artifact.artifact_id.clone()).await.map_err(text)?;
    want_error("an artifact that was released", s.fetch_artifact(artifact.artifact_id).await, "not found")?;
    alive(&s).await
}

/// Asks for every capability that the crate has a name for. The crate knows no
/// job.checkpoint, and still lists checkpoints.
async fn checkpoints(server: &Server) -> Outcome {
    let capabilities = Capabilities {
        streaming: Some(true),
        durable_jobs: Some(true),
        checkpoints: Some(true),
        model_use: Some(true),
        artifacts: Some(true),
        subscriptions: Some(true),
        interrupt: Some(true),
        ..Default::default()
    };
    let s = connect(server, capabilities).await.map_err(text)?;
    let got = run(&s, "demo.count", json!({"to": 5, "interval_ms": 1})).await.map_err(text)?;
    want("the count", &got["count"], &json!(5))?;
    alive(&s).await
}

/// Has the server killed while a job runs. The call fails, the job goes on in the
/// server that is started again, and a new session can see it end.
async fn reconnect(server: &Server) -> Outcome {
    let s = session(server).await?;
    let accepted = s
        .subscribe(SubscriptionFilter {
            session_id: vec![s.id().await.map_err(text)?],
            types: vec!["job.accepted".into()],
            ..Default::default()
        })
        .await
        .map_err(text)?;
    let job: JobHandle = s.invoke("demo.count", json!({"to": 100, "interval_ms": 20})).await.map_err(text)?;
    let accepted = accepted.next().await.ok_or("the subscription ends")?;

    println!("kill");
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await.map_err(|e| e.to_string())?;

    match job.join().await {
        Err(ARCPError::Unavailable { .. }) => {}
        other => return Err(format!("a call ends with {other:?} when the server is killed, want UNAVAILABLE")),
    }
    want_error("a call without a connection", s.invoke("demo.echo", json!({})).await, "ws send")?;
    want_error("a subscription without a connection", s.subscribe(SubscriptionFilter::default()).await, "ws send")?;
    want_error("an artifact without a connection", s.put_artifact("text/plain", "", None).await, "ws send")?;
    let s = session(server).await?;
    alive(&s).await?;
    let raw = Raw::open(server).await.map_err(text)?;
    raw.subscribe(&job.job_id, &accepted.id).await.map_err(text)?;
    loop {
        let event = raw.event().await.map_err(text)?;
        match event.payload {
            MessageType::JobCompleted(p) => {
                let value = p.value.ok_or("the job ends without a value")?;
                return want("the count of the job", &value["count"], &json!(100));
            }
            p if ends(&p) => return Err(format!("the job ends with {}", p.type_name())),
            _ => {}
        }
    }
}

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
use arcp::ids::{IdempotencyKey, JobId, MessageId, SessionId};
use arcp::messages::{
    AuthScheme, ClientIdentity, CostBudget, CostBudgetAmount, Credentials, LeaseRequest,
    ResultChunkAssembler, ResumePayload, SessionListJobsFilter, SessionListJobsPayload,
    SessionOpenPayload, SubscribePayload, SubscriptionFilter, SubscriptionSince,
    ToolInvokePayload,
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

/// More than a server puts into one frame.
const HUGE: usize = 20 << 20;

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
    step("logs", logs(&server)).await;
    step("idempotency", idempotency(&server)).await;
    step("listing", listing(&server)).await;
    step("budget", budget(&server)).await;
    step("subscribe", subscribe(&server)).await;
    step("subscribe to a trace", subscribe_to_trace(&server)).await;
    step("dropped subscription", dropped_subscription(&server)).await;
    step("backfill", backfill(&server)).await;
    step("large result", large_result(&server)).await;
    step("result in chunks", result_in_chunks(&server)).await;
    step("concurrent", concurrent(&server)).await;
    step("artifacts", artifacts(&server)).await;
    step("checkpoints", checkpoints(&server)).await;
    step("broken socket", broken_socket(&server)).await;
    step("killed server", killed_server(&server)).await;
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

/// Has the logs of a job come to another session, in their order.
async fn logs(server: &Server) -> Outcome {
    let s = session(server).await?;
    let other = session(server).await?;
    let filter = SubscriptionFilter {
        session_id: vec![other.id().await.map_err(text)?],
        types: vec!["log".into(), "job.completed".into()],
        ..Default::default()
    };
    let of_types = s.subscribe(filter).await.map_err(text)?;
    run(&other, "demo.emit", json!({"count": 5, "bytes": 10})).await.map_err(text)?;
    let mut seen = Vec::new();
    loop {
        match of_types.next().await.ok_or("the subscription to logs ends")?.payload {
            MessageType::Log(p) => {
                want("the length of a log", &p.message.len(), &10)?;
                seen.push(p.attributes.ok_or("a log has no attributes")?["n"].clone());
            }
            MessageType::JobCompleted(_) => break,
            other => return Err(format!("a filter of types brings {}", other.type_name())),
        }
    }
    want("the order of the logs", &Value::from(seen), &json!([0, 1, 2, 3, 4]))?;
    alive(&s).await
}

/// Submits the same call with the same key in two sessions.
async fn idempotency(server: &Server) -> Outcome {
    let key = IdempotencyKey::new(MessageId::new().to_string()).map_err(|e| e.to_string())?;
    let call = |n: u32| ToolInvokePayload::new("demo.echo", json!({"n": n}));
    let first = Raw::open(server).await.map_err(text)?;
    let one = first.run(call(1), Some(&key)).await.map_err(text)?;
    let second = Raw::open(server).await.map_err(text)?;
    let two = second.run(call(1), Some(&key)).await.map_err(text)?;
    want("the job of the repeated call", &two[0].job_id, &one[0].job_id)?;
    let last = |events: &[Envelope]| events.last().map(|e| (e.id.clone(), e.payload.clone()));
    want("the end of the repeated call", &last(&two), &last(&one))?;
    match last(&second.run(call(2), Some(&key)).await.map_err(text)?) {
        Some((_, MessageType::JobFailed(p))) => want("the code of another call with the key", &p.code.to_string().as_str(), &"ALREADY_EXISTS"),
        other => Err(format!("another call with the key ends with {other:?}")),
    }
}

/// Lists jobs page by page.
async fn listing(server: &Server) -> Outcome {
    let raw = Raw::open(server).await.map_err(text)?;
    let mut mine = Vec::new();
    for n in 0..5 {
        let events = raw.run(ToolInvokePayload::new("demo.echo@0.9.0", json!({"n": n})), None).await.map_err(text)?;
        mine.push(events[0].job_id.clone().ok_or("job.accepted has no job_id")?);
    }
    let mut listed = Vec::new();
    let mut cursor = None;
    loop {
        let filter = SessionListJobsFilter { agent: Some("demo.echo@0.9.0".into()), ..Default::default() };
        let request = SessionListJobsPayload { filter: Some(filter), limit: Some(2), cursor };
        raw.send(MessageType::SessionListJobs(request)).await.map_err(text)?;
        let MessageType::SessionJobs(page) = raw.receive().await.map_err(text)?.payload else {
            return Err("session.list_jobs is not answered with session.jobs".into());
        };
        want("a page has at most two jobs", &(page.jobs.len() <= 2), &true)?;
        listed.extend(page.jobs.into_iter().map(|job| job.job_id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    want("the listed jobs", &listed, &mine)
}

/// Has a job spend more than its budget.
async fn budget(server: &Server) -> Outcome {
    let raw = Raw::open(server).await.map_err(text)?;
    let amount = CostBudgetAmount::parse("USD:1.00").map_err(|e| e.to_string())?;
    let mut call = ToolInvokePayload::new("demo.spend", json!({"currency": "USD", "amount": "0.40", "times": 5}));
    call.lease_request = Some(LeaseRequest {
        cost_budget: Some(CostBudget { amounts: vec![amount] }),
        extra: BTreeMap::from([("tool_call".into(), json!(["demo.*"]))]),
        ..Default::default()
    });
    let events = raw.run(call, None).await.map_err(text)?;
    let costs = events.iter().filter(|e| matches!(&e.payload, MessageType::Metric(p) if p.name == "cost.demo" && p.unit == "USD"));
    want("the number of costs", &costs.count(), &3)?;
    match events.last().map(|e| &e.payload) {
        Some(MessageType::JobFailed(p)) => {
            want("the code", &p.code.to_string().as_str(), &"RESOURCE_EXHAUSTED")?;
            let details = p.details.as_ref().ok_or("the failure has no details")?;
            want("the specific code", &details["code"], &json!("BUDGET_EXHAUSTED"))
        }
        other => Err(format!("the job ends with {other:?}")),
    }
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
    session: SessionId,
}

impl Raw {
    async fn open(server: &Server) -> Result<Self, ARCPError> {
        Self::attach(server, None, Capabilities::default()).await
    }

    /// Opens a session, or connects to one that exists.
    async fn attach(server: &Server, session: Option<&SessionId>, capabilities: Capabilities) -> Result<Self, ARCPError> {
        let transport = WebSocketTransport::dial(&server.url).await?;
        let mut open = Envelope::new(MessageType::SessionOpen(SessionOpenPayload {
            auth: credentials(server),
            client: identity(),
            capabilities,
        }));
        open.session_id = session.cloned();
        transport.send(open).await?;
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

    /// Calls a tool.
    async fn call(&self, call: ToolInvokePayload, key: Option<&IdempotencyKey>) -> Result<(), ARCPError> {
        let mut envelope = Envelope::new(MessageType::ToolInvoke(call));
        envelope.session_id = Some(self.session.clone());
        envelope.idempotency_key = key.cloned();
        self.transport.send(envelope).await
    }

    /// Calls a tool and returns the frames until the job ends.
    async fn run(&self, call: ToolInvokePayload, key: Option<&IdempotencyKey>) -> Result<Vec<Envelope>, ARCPError> {
        self.call(call, key).await?;
        self.until_end(Vec::new()).await
    }

    /// Adds the frames until a job ends.
    async fn until_end(&self, mut frames: Vec<Envelope>) -> Result<Vec<Envelope>, ARCPError> {
        loop {
            let frame = self.receive().await?;
            let last = ends(&frame.payload);
            frames.push(frame);
            if last {
                return Ok(frames);
            }
        }
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
    let call = ToolInvokePayload::new("demo.progress", json!({"steps": 20, "interval_ms": 1}));
    let mut events = raw.run(call, None).await.map_err(text)?;
    events.retain(|event| event.event_seq.is_some());
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

/// Has a result come in chunks, which the client does not ask for by itself.
async fn result_in_chunks(server: &Server) -> Outcome {
    let capabilities = Capabilities { extra: BTreeMap::from([("result_chunk".into(), json!(true))]), ..Default::default() };
    let raw = Raw::attach(server, None, capabilities).await.map_err(text)?;
    let arguments = json!({"text": format!("é{}", "a".repeat(HUGE))});
    let events = raw.run(ToolInvokePayload::new("demo.echo", arguments.clone()), None).await.map_err(text)?;
    let mut assembler = ResultChunkAssembler::new();
    for event in &events {
        if let MessageType::JobResultChunk(p) = &event.payload {
            assembler.push(p).map_err(|e| e.to_string())?;
        }
    }
    let data = assembler.finish().map_err(|e| e.to_string())?;
    match events.last().map(|e| &e.payload) {
        Some(MessageType::JobCompleted(p)) => want("result_size", &p.result_size, &Some(data.len() as u64))?,
        other => return Err(format!("the job ends with {:.300}", format!("{other:?}"))),
    }
    let got: Value = serde_json::from_slice(&data).map_err(|e| e.to_string())?;
    want("the result", &(got == arguments), &true)
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

/// Puts, fetches and releases an artifact.
async fn artifacts(server: &Server) -> Outcome {
    let capabilities = Capabilities { artifacts: Some(true), ..Default::default() };
    let s = connect(server, capabilities).await.map_err(text)?;
    want("artifacts", &s.capabilities().await.artifacts, &Some(true))?;
    let body = "aGVsbG8=";
    let artifact = s.put_artifact("text/plain", body, Some(60)).await.map_err(text)?;
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

async fn broken_socket(server: &Server) -> Outcome {
    resume_after(server, async { Ok(()) }).await
}

async fn killed_server(server: &Server) -> Outcome {
    resume_after(server, kill()).await
}

/// Has the server killed and started again.
async fn kill() -> Outcome {
    println!("kill");
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await.map_err(|e| e.to_string())?;
    Ok(())
}

/// Breaks the connection of a session whose job runs, and connects to the session again. The client
/// never does so.
async fn resume_after(server: &Server, outage: impl Future<Output = Outcome>) -> Outcome {
    let raw = Raw::open(server).await.map_err(text)?;
    let session = raw.session.clone();
    raw.call(ToolInvokePayload::new("demo.count", json!({"to": 40, "interval_ms": 50})), None).await.map_err(text)?;
    let mut events = Vec::new();
    while events.len() < 10 {
        events.push(raw.receive().await.map_err(text)?);
    }
    drop(raw);
    outage.await?;

    let again = Raw::attach(server, Some(&session), Capabilities::default()).await.map_err(text)?;
    want("the session", &again.session, &session)?;
    let after = events.iter().rev().find(|e| e.event_seq.is_some()).ok_or("the job has no events")?.id.clone();
    again
        .send(MessageType::Resume(ResumePayload { after_message_id: Some(after), checkpoint_id: None, include_open_streams: false }))
        .await
        .map_err(text)?;
    let answer = again.receive().await.map_err(text)?.payload;
    want("the answer to resume", &answer.type_name(), &"ack")?;
    let events = again.until_end(events).await.map_err(text)?;
    let numbers: Vec<u64> = events.iter().filter_map(|e| e.event_seq).collect();
    want("the numbers of the events", &numbers, &(1..=numbers.len() as u64).collect())?;
    match events.last().map(|e| &e.payload) {
        Some(MessageType::JobCompleted(p)) => want("the result", &p.value.as_ref().map(|v| &v["count"]), &Some(&json!(40))),
        other => Err(format!("the job ends with {other:?}")),
    }
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

    kill().await?;
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

//! Serves the runtime of the published crate on a loopback port, or on standard input and output:
//!
//!     arcp-interop-server ws ADDRESS CREDENTIAL...
//!     arcp-interop-server stdio CREDENTIAL...
//!
//! A credential is TOKEN=PRINCIPAL, or jwt:SECRET for signed tokens to the audience arcp. The
//! WebSocket server prints `listening ws://ADDRESS/`. The tools are echo, sleep, stubborn, fail,
//! panic and spend.

use std::sync::Arc;
use std::time::Duration;

use arcp::auth::{BearerAuthenticator, SignedJwtAuthenticator};
use arcp::messages::Capabilities;
use arcp::runtime::context::ToolContext;
use arcp::runtime::tools::{ToolHandler, ToolRegistryBuilder};
use arcp::runtime::ARCPRuntime;
use arcp::transport::stdio::StdioTransport;
use arcp::transport::websocket::WebSocketTransport;
use arcp::ARCPError;
use async_trait::async_trait;
use serde_json::{json, Value};

struct Echo;

#[async_trait]
impl ToolHandler for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    async fn invoke(&self, arguments: Value, _: ToolContext) -> Result<Value, ARCPError> {
        Ok(arguments)
    }
}

/// Sleeps for arguments.ms milliseconds, until it is cancelled.
struct Sleep;

#[async_trait]
impl ToolHandler for Sleep {
    fn name(&self) -> &str {
        "sleep"
    }

    async fn invoke(&self, arguments: Value, ctx: ToolContext) -> Result<Value, ARCPError> {
        let ms = milliseconds(&arguments)?;
        tokio::select! {
            () = ctx.cancel.cancelled() => Err(ARCPError::Cancelled { reason: "cancelled".into() }),
            () = tokio::time::sleep(Duration::from_millis(ms)) => Ok(json!({ "slept_ms": ms })),
        }
    }
}

/// Sleeps for arguments.ms milliseconds, and ignores a cancel.
struct Stubborn;

#[async_trait]
impl ToolHandler for Stubborn {
    fn name(&self) -> &str {
        "stubborn"
    }

    async fn invoke(&self, arguments: Value, _: ToolContext) -> Result<Value, ARCPError> {
        let ms = milliseconds(&arguments)?;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(json!({ "stubborn_ms": ms }))
    }
}

/// Fails with arguments.code and arguments.message.
struct Fail;

#[async_trait]
impl ToolHandler for Fail {
    fn name(&self) -> &str {
        "fail"
    }

    async fn invoke(&self, arguments: Value, _: ToolContext) -> Result<Value, ARCPError> {
        let detail = arguments["message"].as_str().unwrap_or_default().to_owned();
        Err(match arguments["code"].as_str().unwrap_or_default() {
            "UNKNOWN" => ARCPError::Unknown { detail },
            "INVALID_ARGUMENT" => ARCPError::InvalidArgument { detail },
            "DEADLINE_EXCEEDED" => ARCPError::DeadlineExceeded { detail },
            "NOT_FOUND" => ARCPError::NotFound { kind: "thing", id: detail },
            "ALREADY_EXISTS" => ARCPError::AlreadyExists { kind: "thing", id: detail },
            "PERMISSION_DENIED" => ARCPError::PermissionDenied { detail },
            "RESOURCE_EXHAUSTED" => ARCPError::ResourceExhausted { detail, retry_after_seconds: None },
            "FAILED_PRECONDITION" => ARCPError::FailedPrecondition { detail },
            "ABORTED" => ARCPError::Aborted { detail },
            "OUT_OF_RANGE" => ARCPError::OutOfRange { detail },
            "UNIMPLEMENTED" => ARCPError::Unimplemented { section: "18.2", detail },
            "INTERNAL" => ARCPError::Internal { detail },
            "UNAVAILABLE" => ARCPError::Unavailable { detail },
            "DATA_LOSS" => ARCPError::DataLoss { detail },
            "UNAUTHENTICATED" => ARCPError::Unauthenticated { detail },
            _ => invalid("code is not known to the tool"),
        })
    }
}

struct Panic;

#[async_trait]
impl ToolHandler for Panic {
    fn name(&self) -> &str {
        "panic"
    }

    async fn invoke(&self, _: Value, _: ToolContext) -> Result<Value, ARCPError> {
        panic!("the tool panics")
    }
}

/// Reports a cost of arguments.amount in arguments.currency, arguments.times times.
struct Spend;

#[async_trait]
impl ToolHandler for Spend {
    fn name(&self) -> &str {
        "spend"
    }

    async fn invoke(&self, arguments: Value, ctx: ToolContext) -> Result<Value, ARCPError> {
        let amount = arguments["amount"].as_str().and_then(|text| text.parse::<f64>().ok());
        let amount = amount.ok_or_else(|| invalid("amount is not a number"))?;
        let currency = arguments["currency"].as_str().unwrap_or_default();
        let times = arguments["times"].as_u64().unwrap_or(1);
        for _ in 0..times {
            ctx.charge("cost.demo", amount, currency).await?;
        }
        Ok(json!({ "spent": amount * times as f64 }))
    }
}

fn milliseconds(arguments: &Value) -> Result<u64, ARCPError> {
    arguments["ms"].as_u64().ok_or_else(|| invalid("ms is not a number"))
}

fn invalid(detail: &str) -> ARCPError {
    ARCPError::InvalidArgument { detail: detail.into() }
}

async fn runtime(credentials: &[String]) -> Result<ARCPRuntime, Box<dyn std::error::Error>> {
    let mut bearer = BearerAuthenticator::new();
    let mut signed = None;
    for pair in credentials {
        if let Some(secret) = pair.strip_prefix("jwt:") {
            signed = Some(SignedJwtAuthenticator::hs256(secret.as_bytes(), "arcp"));
            continue;
        }
        let (token, principal) = pair.split_once('=').ok_or("want TOKEN=PRINCIPAL")?;
        bearer = bearer.with_token(token, principal);
    }
    let tools = ToolRegistryBuilder::new()
        .with(Arc::new(Echo))
        .with(Arc::new(Sleep))
        .with(Arc::new(Stubborn))
        .with(Arc::new(Fail))
        .with(Arc::new(Panic))
        .with(Arc::new(Spend))
        .build();
    // Those of `arcp serve` of the crate, and subscriptions, which the runtime serves.
    let capabilities = Capabilities {
        streaming: Some(true),
        artifacts: Some(true),
        subscriptions: Some(true),
        ..Default::default()
    };
    let mut builder = ARCPRuntime::builder();
    if let Some(signed) = signed {
        builder = builder.with_authenticator(Box::new(signed));
    }
    Ok(builder
        .with_authenticator(Box::new(bearer))
        .with_tools(tools)
        .with_capabilities(capabilities)
        .build()
        .await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("stdio") => {
            runtime(&arguments[1..]).await?.run_connection(StdioTransport::process()).await?;
            Ok(())
        }
        Some("ws") if arguments.len() > 2 => serve(&arguments[1], runtime(&arguments[2..]).await?).await,
        _ => Err("usage: arcp-interop-server ws ADDRESS CREDENTIAL... | stdio CREDENTIAL...".into()),
    }
}

async fn serve(address: &str, runtime: ARCPRuntime) -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening ws://{}/", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        let runtime = runtime.clone();
        tokio::spawn(async move {
            if let Ok(ws) = tokio_tungstenite::accept_async(socket).await {
                let _ = runtime.run_connection(WebSocketTransport::accept_stream(ws)).await;
            }
        });
    }
}

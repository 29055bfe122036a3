//! Serves the runtime of the published crate on a loopback port, or on standard input and output:
//!
//!     arcp-interop-server ws ADDRESS TOKEN=PRINCIPAL...
//!     arcp-interop-server stdio TOKEN=PRINCIPAL...
//!
//! The WebSocket server prints `listening ws://ADDRESS/`. The tools are echo, sleep and
//! stubborn.

use std::sync::Arc;
use std::time::Duration;

use arcp::auth::BearerAuthenticator;
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

fn milliseconds(arguments: &Value) -> Result<u64, ARCPError> {
    arguments["ms"].as_u64().ok_or_else(|| invalid("ms is not a number"))
}

fn invalid(detail: &str) -> ARCPError {
    ARCPError::InvalidArgument { detail: detail.into() }
}

async fn runtime(credentials: &[String]) -> Result<ARCPRuntime, Box<dyn std::error::Error>> {
    let mut bearer = BearerAuthenticator::new();
    for pair in credentials {
        let (token, principal) = pair.split_once('=').ok_or("want TOKEN=PRINCIPAL")?;
        bearer = bearer.with_token(token, principal);
    }
    let tools = ToolRegistryBuilder::new()
        .with(Arc::new(Echo))
        .with(Arc::new(Sleep))
        .with(Arc::new(Stubborn))
        .build();
    // As `arcp serve` of the crate offers them.
    let capabilities = Capabilities { streaming: Some(true), artifacts: Some(true), ..Default::default() };
    Ok(ARCPRuntime::builder()
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
        _ => Err("usage: arcp-interop-server ws ADDRESS TOKEN=PRINCIPAL... | stdio TOKEN=PRINCIPAL...".into()),
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

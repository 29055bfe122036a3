//! Decodes envelopes with the crate's own types, as its client does with each frame.
//!
//! Standard input has one envelope a line. Standard output has one line for each: `ok`
//! and the type that it was decoded to, or `error` and why it was not.

use std::io::{self, BufRead, Write};

use arcp::Envelope;

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        match serde_json::from_str::<Envelope>(&line?) {
            Ok(envelope) => writeln!(out, "ok {}", envelope.payload.type_name())?,
            Err(e) => writeln!(out, "error {}", brief(&e.to_string()))?,
        }
    }
    out.flush()
}

/// An error without the list of all types and without line ends.
fn brief(e: &str) -> String {
    let known = e.find(", expected one of ").unwrap_or(e.len());
    e[..known].replace('\n', " ")
}

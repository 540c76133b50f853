//! Requests to the server, past the proxy.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Sends a request and returns the status and the JSON of the response.
pub(crate) fn request(
    server: SocketAddr,
    method: &str,
    path: &str,
    content: Option<&Value>,
) -> io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(server)?;
    let content = content.map(Value::to_string).unwrap_or_default();
    // HTTP/1.0 has no chunks, and the connection ends with the response.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{content}",
        content.len()
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, response.clone());
    let (head, body) = response.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body)? };
    Ok((status.ok_or_else(malformed)?, body))
}

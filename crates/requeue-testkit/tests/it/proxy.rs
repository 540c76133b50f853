//! The proxy between a client and an echo server.

use requeue_testkit::{Direction, Proxy};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// Starts an echo server, which reports all bytes of a connection when it has ended.
fn echo() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (sender, received) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, sender) = (client.expect("it connects"), sender.clone());
            thread::spawn(move || {
                let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = client.read(&mut buffer) {
                    all.extend(&buffer[..count]);
                    if client.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                drop(sender.send(all));
            });
        }
    });
    (address, received)
}

fn proxy() -> (Proxy, Receiver<Vec<u8>>) {
    let (server, received) = echo();
    (Proxy::to(server).expect("a free port"), received)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect(proxy.address()).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(10))).expect("that is not zero");
    client
}

fn echoes(client: &mut TcpStream, what: &[u8]) -> bool {
    let mut response = vec![0; what.len()];
    client.write_all(what).and_then(|()| client.read_exact(&mut response)).is_ok()
        && response == what
}

/// Reads the remaining bytes. A cut may be an end or an error.
fn rest(client: &mut TcpStream) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match client.read(&mut buffer) {
            Ok(count @ 1..) => all.extend(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it is open still"),
            _ => return all,
        }
    }
}

#[test]
fn bytes_and_their_end_pass_in_both_directions() {
    let (proxy, received) = proxy();
    let mut client = connect(&proxy);
    let much: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
    let mut reader = client.try_clone().unwrap();
    let sent = much.clone();
    let writer = thread::spawn(move || {
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
    });
    assert!(rest(&mut reader) == much);
    writer.join().unwrap();
    assert!(received.recv().unwrap() == much);
}

#[test]
fn a_cut_ends_all_open_connections_and_no_later_one() {
    let (proxy, received) = proxy();
    let mut clients = [connect(&proxy), connect(&proxy)];
    assert!(clients.iter_mut().all(|client| echoes(client, b"hello")));
    proxy.cut();
    assert!(clients.iter_mut().all(|client| rest(client).is_empty()));
    assert_eq!([received.recv().unwrap(), received.recv().unwrap()], [b"hello", b"hello"]);
    assert!(echoes(&mut connect(&proxy), b"hello"));
    assert_eq!(proxy.connections(), 3);
}

#[test]
fn a_request_can_be_cut_in_the_middle() {
    let (proxy, received) = proxy();
    let mut client = connect(&proxy);
    assert!(echoes(&mut client, b"before"));
    proxy.cut_after(Direction::ToServer, 3);
    client.write_all(b"hello").unwrap();
    rest(&mut client);
    assert_eq!(received.recv().unwrap(), b"beforehel");
    assert!(echoes(&mut connect(&proxy), b"once only"));
}

#[test]
fn a_response_can_be_cut_in_the_middle_or_lost() {
    for (bytes, arrives) in [(3, &b"hel"[..]), (0, b"")] {
        let (proxy, received) = proxy();
        let mut client = connect(&proxy);
        assert!(echoes(&mut client, b"before"));
        proxy.cut_after(Direction::ToClient, bytes);
        client.write_all(b"hello").unwrap();
        assert_eq!(rest(&mut client), arrives);
        assert_eq!(received.recv().unwrap(), b"beforehello");
    }
}

#[test]
fn bytes_are_counted_over_several_writes() {
    let (proxy, received) = proxy();
    proxy.cut_after(Direction::ToServer, 7);
    let mut client = connect(&proxy);
    assert!(echoes(&mut client, b"hello"));
    client.write_all(b"again").unwrap();
    rest(&mut client);
    assert_eq!(received.recv().unwrap(), b"helloag");
}

#[test]
fn new_connections_are_refused_and_open_ones_continue() {
    let (proxy, _told) = proxy();
    let mut client = connect(&proxy);
    assert!(echoes(&mut client, b"hello"));
    proxy.refuse();
    assert!(rest(&mut connect(&proxy)).is_empty());
    assert!(echoes(&mut client, b"still there"));
    assert_eq!(proxy.connections(), 1);
    proxy.accept();
    assert!(echoes(&mut connect(&proxy), b"hello"));
}

#[test]
fn bytes_that_are_held_arrive_when_they_are_released() {
    let (proxy, _told) = proxy();
    let mut client = connect(&proxy);
    assert!(echoes(&mut client, b"hello"));
    proxy.hold();
    client.write_all(b"wait").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let nothing = client.read(&mut [0; 4]).unwrap_err().kind();
    assert!(matches!(nothing, ErrorKind::WouldBlock | ErrorKind::TimedOut));
    proxy.release();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut response = [0; 4];
    client.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"wait");
}

#[test]
fn a_cut_ends_connections_whose_bytes_are_held() {
    let (proxy, received) = proxy();
    let mut client = connect(&proxy);
    assert!(echoes(&mut client, b"hello"));
    proxy.hold();
    client.write_all(b"lost").unwrap();
    proxy.cut();
    assert!(rest(&mut client).is_empty());
    assert_eq!(received.recv().unwrap(), b"hello");
}

#[test]
fn the_proxy_ends_when_it_is_dropped() {
    let (proxy, received) = proxy();
    let address = proxy.address();
    let mut client = connect(&proxy);
    assert!(echoes(&mut client, b"hello"));
    proxy.hold();
    drop(proxy);
    assert!(rest(&mut client).is_empty());
    assert_eq!(received.recv().unwrap(), b"hello");
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_connection_to_a_server_that_is_down_ends() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::to(closed).unwrap();
    assert!(rest(&mut connect(&proxy)).is_empty());
}

#[test]
fn a_cut_at_a_message_drops_that_message_and_its_connection() {
    for direction in [Direction::ToServer, Direction::ToClient] {
        let (proxy, received) = proxy();
        let mut client = connect(&proxy);
        proxy.cut_at(direction, 2);
        assert!(echoes(&mut client, b"first"));
        assert!(!echoes(&mut client, b"second"));
        let expected: &[u8] = match direction {
            Direction::ToServer => b"first",
            Direction::ToClient => b"firstsecond",
        };
        assert_eq!(received.recv().expect("the connection has ended"), expected);
        assert!(!proxy.cancel_cut(), "it has taken effect");
        proxy.cut_at(direction, 2);
        assert!(proxy.cancel_cut());
        let mut client = connect(&proxy);
        assert!(echoes(&mut client, b"first") && echoes(&mut client, b"second"));
    }
}

#[test]
fn one_direction_is_held_from_a_message_and_the_other_is_not() {
    let (proxy, received) = proxy();
    let mut client = connect(&proxy);
    proxy.hold_at(Direction::ToServer, b"ack");
    assert!(echoes(&mut client, b"claim"));
    assert!(!proxy.is_holding(Direction::ToServer));
    client.write_all(b"an ack of a job").unwrap();
    while !proxy.is_holding(Direction::ToServer) {
        thread::yield_now();
    }
    assert!(!proxy.is_holding(Direction::ToClient));
    // The message is lost with its connection.
    proxy.cut();
    assert_eq!(received.recv().unwrap(), b"claim");
    proxy.release();
    let mut client = connect(&proxy);
    proxy.hold_at(Direction::ToClient, b"");
    client.write_all(b"hello").unwrap();
    while !proxy.is_holding(Direction::ToClient) {
        thread::yield_now();
    }
    client.shutdown(Shutdown::Write).unwrap();
    // The server has got the message.
    assert_eq!(received.recv().unwrap(), b"hello");
    proxy.release();
    assert_eq!(rest(&mut client), b"hello");
}

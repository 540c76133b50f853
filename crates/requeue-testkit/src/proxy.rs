//! A TCP proxy that injects faults between a client and a server on this machine.
//!
//! ```text
//!   client ──▶ 127.0.0.1:free ─┬─ ToServer ─▶ server
//!          ◀── cut, hold, refuse ─ ToClient ──┘
//! ```
//!
//! Each connection has two threads, one for each direction. They end with their connection, and all
//! of them with the [`Proxy`].

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Requests. If the connection is cut here, the server gets a part of the request.
    ToServer,
    /// Responses. If the connection is cut here, the request is executed, but the client does not
    /// know.
    ToClient,
}

/// Forwards connections to a server, and injects faults.
///
/// ```
/// use requeue_testkit::Proxy;
/// use std::io::Read;
/// use std::net::{TcpListener, TcpStream};
///
/// let server = TcpListener::bind("127.0.0.1:0")?;
/// let proxy = Proxy::to(server.local_addr()?)?;
/// let mut client = TcpStream::connect(proxy.address())?;
/// let _served = server.accept()?;
/// proxy.cut();
/// assert_eq!(client.read(&mut [0])?, 0);
/// assert_eq!(proxy.connections(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    /// Notified of every change of `state`.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    refuses: bool,
    /// Whether bytes are held on their way to the server, and to the client.
    holds: [bool; 2],
    /// The direction that is held from the message that contains these bytes.
    hold_at: Option<(Direction, Vec<u8>)>,
    /// The number of bytes in this direction after which their connection is cut.
    cut_after: Option<(Direction, usize)>,
    /// The number of messages in this direction before the one instead of which the connection is cut.
    cut_at: Option<(Direction, usize)>,
    /// The open connections, without those that were cut.
    links: Vec<Link>,
    /// How many times all connections were cut, including those that were being opened.
    cuts: u64,
    /// The number of connections so far.
    connections: u64,
    /// The number of threads that forward bytes.
    pumps: usize,
}

struct Link {
    number: u64,
    client: TcpStream,
    server: TcpStream,
    /// The number of directions that have not ended.
    open: u8,
}

impl Link {
    fn cut(&self) {
        // Fails if it is already closed.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl State {
    fn cut_all(&mut self) {
        self.cuts += 1;
        self.links.drain(..).for_each(|link| link.cut());
    }

    fn cut(&mut self, number: u64) {
        self.links.extract_if(.., |link| link.number == number).for_each(|link| link.cut());
    }

    fn end_direction(&mut self, number: u64) {
        let link = self.links.iter_mut().find(|link| link.number == number);
        if link.is_some_and(|link| {
            link.open -= 1;
            link.open == 0
        }) {
            self.cut(number);
        }
    }
}

/// How a direction ended.
enum Ended {
    Itself,
    Cut,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1, and forwards connections to `server`.
    pub fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { server, state, changed });
        let accepting = shared.clone();
        let acceptor = thread::spawn(move || accepting.accept(&listener));
        Ok(Proxy { address, shared, acceptor: Some(acceptor) })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections so far, without refused ones.
    pub fn connections(&self) -> u64 {
        self.shared.state().connections
    }

    /// Cuts all connections. New ones are forwarded.
    pub fn cut(&self) {
        self.shared.change(State::cut_all);
    }

    /// Cuts a connection once, after `bytes` more bytes in this direction, counted over all
    /// connections: the one that forwarded the last of them. Replaces an earlier call that has not
    /// taken effect yet.
    pub fn cut_after(&self, direction: Direction, bytes: usize) {
        self.shared.change(|state| state.cut_after = Some((direction, bytes)));
    }

    /// Cuts a connection once, instead of forwarding a message in this direction: the next one if
    /// `message` is 1, the one after it if it is 2. A message is what the proxy reads at once. If a client
    /// waits for each response, these are its requests and the responses. Replaces an earlier call that
    /// has not taken effect yet.
    ///
    /// # Panics
    ///
    /// If `message` is 0.
    pub fn cut_at(&self, direction: Direction, message: usize) {
        assert!(message > 0, "the first message has the number 1");
        self.shared.change(|state| state.cut_at = Some((direction, message - 1)));
    }

    /// Cancels a [cut](Self::cut_at) that has not taken effect yet. Returns whether there was one.
    pub fn cancel_cut(&self) -> bool {
        let mut was_planned = false;
        self.shared.change(|state| was_planned = state.cut_at.take().is_some());
        was_planned
    }

    /// Closes new connections immediately, as if the server were down. Open connections stay open.
    pub fn refuse(&self) {
        self.shared.change(|state| state.refuses = true);
    }

    /// Forwards new connections again.
    pub fn accept(&self) {
        self.shared.change(|state| state.refuses = false);
    }

    /// Holds all bytes in both directions, including those of new connections.
    pub fn hold(&self) {
        self.shared.change(|state| state.holds = [true; 2]);
    }

    /// Holds all bytes in this direction, including those of new connections, from the next message that
    /// contains `bytes`: that message is held, too. The other direction is forwarded. A message is what the
    /// proxy reads at once. Without bytes, it is the next message. Replaces an earlier call that has not taken
    /// effect yet.
    pub fn hold_at(&self, direction: Direction, bytes: &[u8]) {
        self.shared.change(|state| state.hold_at = Some((direction, bytes.to_vec())));
    }

    /// Returns whether bytes are held in this direction, or would be.
    pub fn is_holding(&self, direction: Direction) -> bool {
        self.shared.state().holds[direction as usize]
    }

    /// Forwards the bytes that were held, in their order. Cancels a [`hold_at`](Self::hold_at) that has not
    /// taken effect yet.
    pub fn release(&self) {
        self.shared.change(|state| (state.holds, state.hold_at) = ([false; 2], None));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.is_over = true;
            state.cut_all();
        });
        // The acceptor waits for a connection: this one.
        let woken = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken.is_ok()) {
            let _ = acceptor.join();
        }
        let mut state = self.shared.state();
        while state.pumps > 0 {
            state = self.shared.wait(state);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            let state = self.state();
            if state.is_over {
                return;
            }
            let (refuses, cuts) = (state.refuses, state.cuts);
            drop(state);
            if let Ok((client, _)) = accepted
                && !refuses
            {
                // If the server is down, the connection is closed.
                let _ = self.link(client, cuts);
            }
        }
    }

    fn link(self: &Arc<Self>, client: TcpStream, cuts: u64) -> io::Result<()> {
        let server = TcpStream::connect(self.server)?;
        // Small writes of a client are forwarded separately.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ways = [
            (Direction::ToServer, client.try_clone()?, server.try_clone()?),
            (Direction::ToClient, server.try_clone()?, client.try_clone()?),
        ];
        let mut state = self.state();
        state.connections += 1;
        let link = Link { number: state.connections, client, server, open: 2 };
        if state.cuts != cuts {
            link.cut();
            return Ok(());
        }
        let number = link.number;
        state.links.push(link);
        for (direction, from, to) in ways {
            state.pumps += 1;
            let shared = self.clone();
            thread::spawn(move || {
                match shared.pump(number, direction, from, &to) {
                    // The other direction may have more bytes.
                    Ok(Ended::Itself) => {
                        let _ = to.shutdown(Shutdown::Write);
                        shared.change(|state| state.end_direction(number));
                    }
                    Ok(Ended::Cut) | Err(_) => shared.change(|state| state.cut(number)),
                }
                shared.change(|state| state.pumps -= 1);
            });
        }
        Ok(())
    }

    /// Forwards bytes in one direction until the connection ends or is cut.
    fn pump(
        &self,
        number: u64,
        direction: Direction,
        mut from: TcpStream,
        mut to: &TcpStream,
    ) -> io::Result<Ended> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut buffer)?;
            if read == 0 {
                return Ok(Ended::Itself);
            }
            let (pass, cut) = self.may_pass(number, direction, &buffer[..read]);
            to.write_all(&buffer[..pass])?;
            if cut {
                return Ok(Ended::Cut);
            }
        }
    }

    /// Waits until a message may be forwarded. Returns how many of its bytes, and whether the connection is
    /// cut after them.
    fn may_pass(&self, number: u64, direction: Direction, message: &[u8]) -> (usize, bool) {
        let mut state = self.state();
        let is_open = |state: &State| state.links.iter().any(|link| link.number == number);
        if let Some((of, bytes)) = &state.hold_at
            && *of == direction
            && contains(message, bytes)
        {
            state.hold_at = None;
            state.holds[direction as usize] = true;
        }
        while state.holds[direction as usize] && is_open(&state) {
            state = self.wait(state);
        }
        if !is_open(&state) {
            return (0, true);
        }
        if let Some((of, before)) = &mut state.cut_at
            && *of == direction
        {
            match before.checked_sub(1) {
                Some(less) => *before = less,
                None => {
                    state.cut_at = None;
                    return (0, true);
                }
            }
        }
        match &mut state.cut_after {
            Some((of, left)) if *of == direction => {
                let pass = message.len().min(*left);
                *left -= pass;
                // Even if no bytes are left: the next byte might never come.
                let cut = *left == 0;
                if cut {
                    state.cut_after = None;
                }
                (pass, cut)
            }
            _ => (message.len(), false),
        }
    }
}

fn contains(message: &[u8], bytes: &[u8]) -> bool {
    bytes.is_empty() || message.windows(bytes.len()).any(|part| part == bytes)
}

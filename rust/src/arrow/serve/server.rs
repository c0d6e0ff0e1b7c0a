//! The sockets and threads of the Arrow endpoint: one thread that accepts, one for each connection,
//! and a stop that ends them all.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::batch_memory::BatchMemory;
use super::connection::{Connection, fail};
use super::{Descriptors, Home};
use crate::crash::or_end_process;
use crate::error::{Error, Result};
use crate::limits::{
    ARROW_ACCEPT_RETRY_MS, ARROW_CONNECTIONS_MAX, ARROW_REFUSALS_MAX, ARROW_STOP_GRACE_MS,
    STOP_WAIT_MS,
};

/// Settings of an endpoint, read at its start.
#[derive(Clone)]
pub struct ServerSettings {
    pub connections_max: usize,
    /// A connection on which nothing moves for so long is closed, unless it has shown the secret.
    pub idle: Option<Duration>,
    /// Each request must have it, if there is one: whoever is on this machine can connect.
    pub secret: Option<String>,
    /// Bytes of memory that the process may have, of which a part is for
    /// the batches of its clients.
    pub memory_bytes: Option<u64>,
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            connections_max: ARROW_CONNECTIONS_MAX,
            idle: None,
            secret: None,
            memory_bytes: None,
        }
    }
}

/// An endpoint that serves until `stop`, or until it is dropped.
pub struct ArrowServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    home: Box<dyn Home>,
    settings: ServerSettings,
    batch_memory: BatchMemory,
    request_memory: BatchMemory,
    /// `None`: nobody else needs them.
    descriptors: Option<Arc<dyn Descriptors>>,
    is_stopping: AtomicBool,
    /// The sockets of the threads that serve.
    open: Mutex<Open>,
    /// A thread has ended.
    left: Condvar,
}

#[derive(Default)]
struct Open {
    streams: HashMap<u64, Arc<TcpStream>>,
    given: u64,
    /// Threads that only tell a client that there are too many.
    refusals: usize,
}

impl ArrowServer {
    /// Serves the clients of a listener that is bound and listens. Errors: `Io`; `InvalidArgument`
    /// for an address that other machines can reach: there is no authentication.
    pub fn start(
        listener: TcpListener,
        home: Box<dyn Home>,
        settings: ServerSettings,
        descriptors: Option<Arc<dyn Descriptors>>,
    ) -> Result<ArrowServer> {
        let here = Path::new("the Arrow endpoint");
        let address = listener.local_addr().map_err(Error::io("bind", here))?;
        if !address.ip().is_loopback() {
            return Err(Error::InvalidArgument(format!(
                "the Arrow endpoint has no authentication and listens on loopback only, not on \
                 {address}"
            )));
        }
        let shared = Arc::new(Shared {
            home,
            batch_memory: BatchMemory::new(settings.memory_bytes),
            request_memory: BatchMemory::of_requests(settings.memory_bytes),
            settings,
            descriptors,
            is_stopping: AtomicBool::new(false),
            open: Mutex::default(),
            left: Condvar::new(),
        });
        let accepting = shared.clone();
        let acceptor = Builder::new()
            .name("arrow-accept".to_owned())
            .spawn(move || or_end_process(|| accept(&listener, &accepting)))
            .map_err(Error::io("start a thread", here))?;
        Ok(ArrowServer {
            shared,
            address,
            acceptor: Mutex::new(Some(acceptor)),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.shared.open.lock().streams.len()
    }

    /// Takes no more clients and requests, cuts the answers under way off with a sentence, and ends
    /// the threads. Returns whether all have ended in time.
    pub fn stop(&self) -> bool {
        let Some(acceptor) = self.acceptor.lock().take() else {
            return true;
        };
        let shared = &self.shared;
        shared.is_stopping.store(true, Ordering::SeqCst);
        shared.batch_memory.wake();
        shared.request_memory.wake();
        // The acceptor is woken by a client, and by every one that comes meanwhile.
        let wait = Duration::from_millis(STOP_WAIT_MS);
        TcpStream::connect_timeout(&self.address, wait).ok();
        acceptor.join().ok();
        shared.shut_down(Shutdown::Read);
        let grace = Duration::from_millis(ARROW_STOP_GRACE_MS);
        shared.wait_until_left(grace) || {
            shared.shut_down(Shutdown::Both);
            shared.wait_until_left(wait)
        }
    }
}

impl Drop for ArrowServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    fn shut_down(&self, how: Shutdown) {
        for stream in self.open.lock().streams.values() {
            // One that is closed already has a thread on its way out.
            stream.shutdown(how).ok();
        }
    }

    fn wait_until_left(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut open = self.open.lock();
        while !open.streams.is_empty() {
            if self.left.wait_until(&mut open, deadline).timed_out() {
                return open.streams.is_empty();
            }
        }
        true
    }

    /// Has the descriptors counted of a connection that is to be served. Returns why it cannot be.
    fn refusal(&self, served: usize) -> Option<String> {
        let limit = self.settings.connections_max;
        if served >= limit {
            let sentence = format!("the Arrow endpoint has {limit} connections, and takes no more");
            return Some(sentence);
        }
        let is_short = self.descriptors.as_ref().is_some_and(|all| !all.take());
        is_short.then(|| {
            "the broker has no descriptors for more connections (ulimit -n): connect later"
                .to_owned()
        })
    }

    /// Waits a little, less if the server stops.
    fn rest(&self) {
        let mut open = self.open.lock();
        let rest = Duration::from_millis(ARROW_ACCEPT_RETRY_MS);
        self.left.wait_for(&mut open, rest);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.is_stopping() {
            return;
        }
        let served = match accepted {
            Ok((stream, _)) => admit(stream, shared),
            Err(error) => Err(error),
        };
        // No descriptor or no thread: they come back when a connection ends.
        if served.is_err() {
            shared.rest();
        }
    }
}

/// Gives a client a thread, or one that tells it that there are too many.
fn admit(stream: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let seat = {
        let mut open = shared.open.lock();
        match shared.refusal(open.streams.len()) {
            None => {
                let stream = Arc::new(stream);
                open.given += 1;
                let number = open.given;
                open.streams.insert(number, stream.clone());
                Seat::Served(number, stream)
            }
            Some(sentence) if open.refusals < ARROW_REFUSALS_MAX => {
                open.refusals += 1;
                Seat::Refused(stream, sentence)
            }
            Some(_) => return Ok(()),
        }
    };
    let guest = Guest {
        seat,
        shared: shared.clone(),
    };
    let builder = Builder::new().name("arrow".to_owned());
    builder.spawn(move || guest.serve()).map(drop)
}

enum Seat {
    Served(u64, Arc<TcpStream>),
    /// With the sentence that the client is told.
    Refused(TcpStream, String),
}

/// A thread's hold on its seat; given back when the thread ends, however it does.
struct Guest {
    seat: Seat,
    shared: Arc<Shared>,
}

impl Guest {
    fn serve(&self) {
        let shared = &self.shared;
        match &self.seat {
            Seat::Served(_, stream) => Connection {
                stream,
                home: &*shared.home,
                batch_memory: &shared.batch_memory,
                request_memory: &shared.request_memory,
                idle: shared.settings.idle,
                secret: shared.settings.secret.as_deref(),
                is_stopping: &|| shared.is_stopping(),
            }
            .run(),
            Seat::Refused(stream, sentence) => fail(stream, sentence),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock();
        match &self.seat {
            Seat::Served(number, _) => {
                drop(open.streams.remove(number));
                if let Some(descriptors) = &self.shared.descriptors {
                    descriptors.give_back();
                }
            }
            Seat::Refused(..) => open.refusals -= 1,
        }
        self.shared.left.notify_all();
    }
}

//! Connections that a broker opens itself, to servers that answer, lie, are silent or go away.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kafkalite::net::outbound::{Call, Outbound, Outcome};

const KEY: i16 = 63;
const VERSION: i16 = 2;

/// What a server does with a request, whose header begins with key, version and correlation id.
type Answer = fn(&[u8], &mut TcpStream);

fn frame(correlation: &[u8], rest: &[u8]) -> Vec<u8> {
    let size = i32::try_from(correlation.len() + rest.len()).unwrap();
    [&size.to_be_bytes()[..], correlation, rest].concat()
}

fn read_frame(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut size = [0; 4];
    socket.read_exact(&mut size).ok()?;
    let mut content = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
    socket.read_exact(&mut content).ok()?;
    Some(content)
}

/// The answer to ApiVersions, which names one key.
fn versions(request: &[u8], socket: &mut TcpStream) {
    let ranges = [&[0, 0, 2][..], &KEY.to_be_bytes(), &[0, 0, 0, 2, 0]].concat();
    let rest = [&ranges[..], &[0, 0, 0, 0, 0]].concat();
    socket.write_all(&frame(&request[4..8], &rest)).unwrap();
}

/// A server that answers ApiVersions, and any other request by `answers`, one a connection.
fn serve(answers: Vec<Answer>) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            while let Some(request) = read_frame(&mut socket) {
                if request[..2] == 18_i16.to_be_bytes() {
                    versions(&request, &mut socket)
                } else {
                    answer(&request, &mut socket)
                }
            }
        }
    });
    (port, server)
}

/// The body comes back: what is behind the client's id `test` and the tags.
fn echo(request: &[u8], socket: &mut TcpStream) {
    let rest = [&[0][..], &request[15..]].concat();
    socket.write_all(&frame(&request[4..8], &rest)).unwrap();
}

fn call(outbound: &Outbound, purpose: &str, port: u16, number: u64, body: &[u8]) {
    let call = Call {
        number,
        address: ("127.0.0.1".to_owned(), port),
        api_key: KEY,
        api_version: VERSION,
        body: body.to_vec(),
        due: Instant::now() + Duration::from_millis(500),
    };
    outbound.call(purpose, call).unwrap();
}

fn take(outbound: &Outbound, count: usize) -> Vec<Outcome> {
    let due = Instant::now() + Duration::from_secs(20);
    let mut found = Vec::new();
    while found.len() < count {
        assert!(Instant::now() < due, "{} of {count} answers", found.len());
        found.extend(outbound.wait(Duration::from_millis(100)));
    }
    found
}

/// Why the only request to a server that answers so has no answer.
fn failure(answer: Answer) -> String {
    let (port, server) = serve(vec![answer]);
    let outbound = Outbound::new("test".to_owned());
    call(&outbound, "p", port, 1, b"x");
    let found = take(&outbound, 1);
    drop(outbound);
    server.join().unwrap();
    found[0].1.clone().unwrap_err()
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let (port, server) = serve(vec![echo]);
    let outbound = Outbound::new("test".to_owned());
    for number in 0..50 {
        call(&outbound, "p", port, number, &number.to_be_bytes());
    }
    for (index, (number, answer)) in (0_u64..).zip(take(&outbound, 50)) {
        assert_eq!(
            (number, answer.unwrap()),
            (index, index.to_be_bytes().to_vec())
        );
    }
    drop(outbound);
    server.join().unwrap();
}

#[test]
fn one_purpose_does_not_wait_for_another() {
    let (silent_port, silent) = serve(vec![|_, _| ()]);
    let (port, server) = serve(vec![echo]);
    let outbound = Outbound::new("test".to_owned());
    call(&outbound, "slow", silent_port, 1, b"");
    call(&outbound, "fast", port, 2, b"");
    let numbers: Vec<u64> = take(&outbound, 2)
        .iter()
        .map(|(number, _)| *number)
        .collect();
    assert_eq!(numbers, [2, 1]);
    drop(outbound);
    silent.join().unwrap();
    server.join().unwrap();
}

#[test]
fn a_connection_is_made_again_after_a_failure() {
    let (port, server) = serve(vec![
        |_, socket| socket.shutdown(std::net::Shutdown::Both).unwrap(),
        echo,
    ]);
    let outbound = Outbound::new("test".to_owned());
    call(&outbound, "p", port, 1, b"one");
    assert!(take(&outbound, 1)[0].1.is_err());
    call(&outbound, "p", port, 2, b"two");
    assert_eq!(take(&outbound, 1), [(2, Ok(b"two".to_vec()))]);
    drop(outbound);
    server.join().unwrap();
}

#[test]
fn a_server_that_is_silent_is_given_up() {
    assert!(failure(|_, _| ()).ends_with("no answer in time"));
}

#[test]
fn requests_that_queue_behind_a_silent_server_are_given_up_together() {
    let (silent_port, silent) = serve(vec![|_, _| ()]);
    let (port, server) = serve(vec![echo]);
    let outbound = Outbound::new("test".to_owned());
    for number in 0..20 {
        call(&outbound, "p", silent_port, number, b"");
    }
    let asked = Instant::now();
    assert!(
        take(&outbound, 20)
            .iter()
            .all(|(_, answer)| answer.is_err())
    );
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "one after the other"
    );
    call(&outbound, "p", port, 20, b"x");
    assert_eq!(take(&outbound, 1), [(20, Ok(b"x".to_vec()))]);
    drop(outbound);
    silent.join().unwrap();
    server.join().unwrap();
}

#[test]
fn a_size_that_cannot_be_is_refused_before_memory_is_taken() {
    for size in [i32::MIN, -1, 0, 3, i32::MAX] {
        let (port, server) = serve(vec![match size {
            i32::MIN => |_, socket| socket.write_all(&i32::MIN.to_be_bytes()).unwrap(),
            -1 => |_, socket| socket.write_all(&(-1_i32).to_be_bytes()).unwrap(),
            0 => |_, socket| socket.write_all(&0_i32.to_be_bytes()).unwrap(),
            3 => |_, socket| socket.write_all(&3_i32.to_be_bytes()).unwrap(),
            _ => |_, socket| socket.write_all(&i32::MAX.to_be_bytes()).unwrap(),
        }]);
        let outbound = Outbound::new("test".to_owned());
        call(&outbound, "p", port, 1, b"");
        let reason = take(&outbound, 1)[0].1.clone().unwrap_err();
        assert!(reason.contains("an answer of"), "{reason}");
        drop(outbound);
        server.join().unwrap();
    }
}

#[test]
fn the_answer_to_another_request_is_refused() {
    let reason = failure(|_, socket| socket.write_all(&frame(&[9, 9, 9, 9], &[0])).unwrap());
    assert!(
        reason.ends_with("the answer to another request"),
        "{reason}"
    );
}

#[test]
fn a_version_that_the_server_does_not_know_is_not_sent() {
    let (port, server) = serve(vec![|_, _| panic!("it was sent")]);
    let outbound = Outbound::new("test".to_owned());
    let unknown = Call {
        number: 1,
        address: ("127.0.0.1".to_owned(), port),
        api_key: KEY,
        api_version: VERSION + 1,
        body: Vec::new(),
        due: Instant::now() + Duration::from_millis(500),
    };
    outbound.call("p", unknown).unwrap();
    let reason = take(&outbound, 1)[0].1.clone().unwrap_err();
    assert!(
        reason.ends_with("it does not support BrokerHeartbeat (key 63) v3"),
        "{reason}"
    );
    drop(outbound);
    server.join().unwrap();
}

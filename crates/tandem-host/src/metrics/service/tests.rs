use super::*;
use crate::scheduler::SchedulerError;
use std::path::Path;
use std::sync::mpsc::channel;

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A safety net against a service that does not answer: its work takes milliseconds, on a busy machine
/// seconds.
const PATIENCE: Duration = Duration::from_secs(600);

/// A service without a scheduler, at an address. A client may be slow, as on a busy machine.
fn serve() -> SocketAddr {
    serve_requests_of(PATIENCE)
}

fn serve_requests_of(request_time_max: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let exporter = Exporter::of_scheduler(Path::new("/"), || Err(SchedulerError::NotLoaded));
    thread::spawn(move || Service { request_time_max, ..Service::new(exporter) }.serve(&listener));
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The whole answer to some bytes.
fn answer(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn pages_have_their_length_and_the_connection_ends() {
    let address = serve();
    let whole = answer(address, GET);
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    assert!(head.ends_with("\r\nConnection: close"), "{head}");
    assert!(body.contains("\ntandem_scheduler_up 0\n"), "{body}");
    let openmetrics = GET.replace("\r\n\r\n", "\r\nAccept: application/openmetrics-text\r\n\r\n");
    assert!(answer(address, &openmetrics).ends_with("\n# EOF\n"));
    assert_eq!(answer(address, &GET.replace("GET", "HEAD")), format!("{head}\r\n\r\n"));
    assert!(answer(address, &GET.replace("/metrics", "/x")).starts_with("HTTP/1.1 404 Not Found\r\n"));
    assert!(answer(address, "\0\r\n\r\n").starts_with("HTTP/1.1 400 Bad Request\r\n"));
}

#[test]
fn a_request_may_come_in_pieces() {
    let address = serve();
    let mut stream = connect(address);
    for piece in GET.as_bytes().chunks(7) {
        stream.write_all(piece).unwrap();
        stream.flush().unwrap();
    }
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
}

#[test]
fn slow_and_overlong_requests_get_an_error() {
    let slow = answer(serve_requests_of(REQUEST_TIME_MAX), "GET /metrics HTTP/1.1\r\n");
    assert!(slow.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{slow}");
    let long = answer(serve(), &format!("GET /metrics HTTP/1.1\r\nA: {}\r\n", "x".repeat(2 * REQUEST_MAX)));
    assert!(long.starts_with("HTTP/1.1 431 "), "{long}");
}

#[test]
fn silent_clients_keep_no_other_out_and_are_few() {
    let address = serve();
    let silent: Vec<_> = (0..5 * CONNECTIONS_MAX).map(|_| connect(address)).collect();
    assert!(answer(address, GET).starts_with("HTTP/1.1 200 OK"));
    // When others came, the first ones were closed without an answer. Among connections that are accepted
    // together, the choice is arbitrary.
    for mut stream in silent.into_iter().take(4 * CONNECTIONS_MAX - ACCEPTED_MAX) {
        let read = stream.read(&mut [0; 1]);
        assert!(!matches!(read, Ok(1)), "one got {read:?}");
        assert!(read.is_ok_and(|length| length == 0), "one is open, or broke");
    }
    assert!(answer(address, GET).starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn a_client_that_does_not_read_keeps_no_other_out() {
    let address = serve();
    let deaf: Vec<_> = (0..2 * CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = connect(address);
            stream.write_all(GET.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert!(answer(address, GET).starts_with("HTTP/1.1 200 OK"));
    drop(deaf);
}

#[test]
fn an_address_that_is_taken_is_logged_once_and_tried_again() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (sender, lines) = channel();
    let log = move |entry: &LogEntry| sender.send(entry.text.clone()).unwrap();
    let waiting =
        thread::spawn(move || listen(address, Duration::from_millis(1), &log).local_addr().unwrap());
    let line = lines.recv_timeout(PATIENCE).unwrap();
    let begin = format!("metrics cannot be served at {address}: ");
    assert!(line.starts_with(&begin) && line.ends_with("; trying again every 10 s"), "{line}");
    drop(taken);
    assert_eq!(waiting.join().unwrap(), address);
    assert!(lines.recv().is_err(), "it was logged once");
}

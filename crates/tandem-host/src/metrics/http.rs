//! Parses requests of HTTP/1.x, and writes the heads of answers. Nothing here waits.

use super::Format;
use httparse::{Error, Status};
use std::net::IpAddr;

/// Longest request, bytes. Those of Prometheus and browsers have less than 1 KiB.
pub const REQUEST_MAX: usize = 8 << 10;
/// Most lines of a request's head.
const HEADERS_MAX: usize = 64;

/// The content of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The page to send.
    pub page: Page,
    /// HEAD: send only the head, with the page's length.
    pub head_only: bool,
}

/// The body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The metrics.
    Metrics(Format),
    /// A status and a sentence.
    Text(&'static str, &'static str),
}

impl Page {
    const ROOT: Self = Self::Text("200 OK", "The metrics of tandem are at /metrics.\n");
    const BAD: Self = Self::Text("400 Bad Request", "This is not an HTTP/1.1 request.\n");
    const NOT_FOUND: Self = Self::Text("404 Not Found", "No such page; the metrics are at /metrics.\n");
    const METHOD: Self = Self::Text("405 Method Not Allowed", "Read the metrics with GET or HEAD.\n");
    /// The client is too slow.
    pub const TIMEOUT: Self = Self::Text("408 Request Timeout", "The request took too long.\n");
    const HOST: Self = Self::Text(
        "421 Misdirected Request",
        "Use the numeric address or localhost as the host: other names are refused, because a web page could make \
         them point here.\n",
    );
    const TOO_LARGE: Self = Self::Text("431 Request Header Fields Too Large", "The request is too long.\n");

    /// The lines before a page of this length.
    pub fn head(self, length: usize) -> String {
        let (status, kind) = match self {
            Self::Metrics(format) => ("200 OK", format.content_type()),
            Self::Text(status, _) => (status, "text/plain; charset=utf-8"),
        };
        let allow = if self == Self::METHOD { "Allow: GET, HEAD\r\n" } else { "" };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
        )
    }
}

/// The request in the bytes that have arrived so far; `None` if it is incomplete.
pub fn parse(bytes: &[u8]) -> Option<Wanted> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let whole = |page| Some(Wanted { page, head_only: false });
    match request.parse(bytes) {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) if bytes.len() < REQUEST_MAX => return None,
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => return whole(Page::TOO_LARGE),
        Err(_) => return whole(Page::BAD),
    }
    let values = |name: &'static str| {
        let of_name = request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        of_name.map(|header| header.value)
    };
    let mut hosts = values("host");
    let page = match (hosts.next(), request.version, request.method, request.path) {
        (None, Some(1), ..) => Page::BAD,
        (Some(host), ..) if hosts.next().is_some() || !is_own(host) => Page::HOST,
        (_, _, Some("GET" | "HEAD"), Some(target)) => match target.split('?').next() {
            Some("/metrics") if values("accept").any(wants_openmetrics) => Page::Metrics(Format::OpenMetrics),
            Some("/metrics") => Page::Metrics(Format::Classic),
            Some("/") => Page::ROOT,
            _ => Page::NOT_FOUND,
        },
        _ => Page::METHOD,
    };
    Some(Wanted { page, head_only: request.method == Some("HEAD") })
}

/// Whether a host is a numeric address, or localhost, with a port or without.
fn is_own(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        // The end of an IPv6 address is not a port.
        Some((name, port)) if !port.contains(']') && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match v6 {
        Some(v6) => v6.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()),
        None => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4())
        }
    }
}

fn wants_openmetrics(accept: &[u8]) -> bool {
    String::from_utf8_lossy(accept).to_ascii_lowercase().contains("application/openmetrics-text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(request: &str) -> Page {
        parse(request.as_bytes()).expect("a whole request").page
    }

    fn get(target: &str, headers: &str) -> Page {
        page(&format!("GET {target} HTTP/1.1\r\n{headers}\r\n"))
    }

    const HOST: &str = "Host: 127.0.0.1:9764\r\n";

    #[test]
    fn the_metrics_are_at_one_place() {
        assert_eq!(get("/metrics", HOST), Page::Metrics(Format::Classic));
        assert_eq!(get("/metrics?a=b", HOST), Page::Metrics(Format::Classic));
        let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3\r\n";
        assert_eq!(get("/metrics", &format!("{HOST}{accept}")), Page::Metrics(Format::OpenMetrics));
        assert_eq!(get("/", HOST), Page::ROOT);
        for target in ["/metrics/", "/../metrics", "http://127.0.0.1/metrics", "*"] {
            assert_eq!(get(target, HOST), Page::NOT_FOUND, "{target}");
        }
        assert_eq!(page("GET /metrics HTTP/1.0\r\n\r\n"), Page::Metrics(Format::Classic), "without a host");
        let head = parse(format!("HEAD /metrics HTTP/1.1\r\n{HOST}\r\n").as_bytes()).unwrap();
        assert!(head.head_only && head.page == Page::Metrics(Format::Classic));
    }

    #[test]
    fn other_requests_are_refused() {
        assert_eq!(page(&format!("POST /metrics HTTP/1.1\r\n{HOST}\r\n")), Page::METHOD);
        for request in ["\0\0\0\0\r\n\r\n", "GET /metrics HTTP/2.0\r\n\r\n", "GET /metrics\r\n\r\n"] {
            assert_eq!(page(request), Page::BAD, "{request:?}");
        }
        assert_eq!(get("/metrics", ""), Page::BAD, "HTTP/1.1 has a host");
        assert_eq!(get("/metrics", &"A: b\r\n".repeat(HEADERS_MAX + 1)), Page::TOO_LARGE);
        assert_eq!(page(&format!("GET /{}", "x".repeat(REQUEST_MAX))), Page::TOO_LARGE);
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHost: "), None, "more is to come");
        assert!(Page::METHOD.head(3).contains("\r\nAllow: GET, HEAD\r\n"));
    }

    #[test]
    fn only_local_host_names_are_accepted() {
        for host in ["127.0.0.1", "10.0.0.1:80", "[::1]", "[::1]:9764", "localhost", "LocalHost:9764"] {
            let page = get("/metrics", &format!("Host: {host}\r\n"));
            assert_eq!(page, Page::Metrics(Format::Classic), "{host}");
        }
        let others = [
            "evil.example",
            "evil.example:9764",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9764",
            "::1",
            "",
        ];
        for host in others {
            assert_eq!(get("/metrics", &format!("Host: {host}\r\n")), Page::HOST, "{host}");
        }
        assert_eq!(get("/metrics", &format!("{HOST}Host: evil.example\r\n")), Page::HOST);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, head in "(GET|X) /[a-z]* HTTP/1\\.[01]\r\n") {
            let _ = parse(&bytes);
            let _ = parse(&[head.as_bytes(), &bytes, b"\r\n\r\n"].concat());
        }
    }
}

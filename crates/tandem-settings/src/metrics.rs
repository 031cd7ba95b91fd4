//! The settings of the metrics endpoint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Metrics for Prometheus, over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Where tandem serves metrics: a loopback address with a port, such as "127.0.0.1:9764"; empty for
    /// nowhere. Every user of this machine can connect to it, and read there what only root and the group
    /// tandem may read otherwise
    #[schemars(with = "String")]
    pub listen: Listen,
}

/// A loopback address with a port, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Listen(pub Option<SocketAddr>);

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let address: Option<SocketAddr> = text.parse().ok();
        match address {
            Some(address) if address.ip().is_loopback() && address.port() != 0 => Ok(Self(Some(address))),
            _ => Err(format!(
                "listen of [metrics] is \"{:.60}\"; allowed is a loopback address with a port, such as \
                 \"127.0.0.1:9764\" or \"[::1]:9764\", or \"\" for none",
                text.escape_debug()
            )),
        }
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.0.map_or_else(Self::new, |address| address.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_this_machines_alone() {
        for text in ["", "127.0.0.1:9764", "127.1.2.3:80", "[::1]:9764"] {
            assert_eq!(String::from(Listen::try_from(text.to_owned()).unwrap()), text);
        }
        let others = [
            "0.0.0.0:9764",
            "[::]:9764",
            "192.168.1.1:9764",
            "[::ffff:127.0.0.1]:9764",
            "127.0.0.1",
            "127.0.0.1:0",
            "localhost:9764",
            ":9764",
            "9764",
        ];
        for text in others {
            let error = Listen::try_from(text.to_owned()).unwrap_err();
            assert!(error.starts_with(&format!("listen of [metrics] is \"{text}\"; allowed is ")), "{error}");
        }
    }
}

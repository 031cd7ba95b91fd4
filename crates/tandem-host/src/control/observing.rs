//! Answers where no scheduler is loaded: only what the agent observes.

use super::protocol::{Answer, ErrorKind, ErrorTold, Request};
use super::server::Backend;
use crate::agent::Reports;
use tandem_settings::Asker;

/// An agent that only observes, for the service.
pub struct Observing(Reports);

impl Observing {
    /// Serves what this agent publishes.
    pub fn new(reports: Reports) -> Self {
        Self(reports)
    }
}

impl Backend for Observing {
    fn answer(&self, _: Asker, request: Request) -> Answer {
        match request {
            Request::Vms => Answer::Vms(Some(self.0.vms())),
            Request::Prefer { .. } | Request::PreferenceOf { .. } | Request::Status => {
                let message = "no scheduler is loaded: `tandem run --observe` only observes".into();
                Answer::Error(ErrorTold { kind: ErrorKind::Failed, message })
            }
        }
    }
}

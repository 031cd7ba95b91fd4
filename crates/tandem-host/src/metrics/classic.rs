//! From OpenMetrics to the text format that Prometheus had before.
//!
//! The two differ here in what a counter is called where it is described: without the `_total` of its values in
//! OpenMetrics, with it in the other. [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/) also ends with
//! a line of its own. [The other](https://prometheus.io/docs/instrumenting/exposition_formats/) is what tools expect that
//! do not ask for anything.

/// The same metrics in the text format 0.0.4.
pub fn from_openmetrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let mut help: Option<(&str, &str)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Which name it has, the next line tells.
            help = Some(rest.split_once(' ').unwrap_or((rest, "")));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                out += &format!("# HELP {name}{suffix} {help}\n");
            }
            out += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if line != "# EOF" {
            out += line;
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_their_whole_name() {
        let openmetrics = "# HELP a_seconds what it is\n# TYPE a_seconds counter\na_seconds_total{x=\"# EOF\"} 1.5\n\
            # HELP b what b is\n# TYPE b gauge\nb 2\n# EOF\n";
        let classic = "# HELP a_seconds_total what it is\n# TYPE a_seconds_total counter\n\
            a_seconds_total{x=\"# EOF\"} 1.5\n# HELP b what b is\n# TYPE b gauge\nb 2\n";
        assert_eq!(from_openmetrics(openmetrics), classic);
    }
}

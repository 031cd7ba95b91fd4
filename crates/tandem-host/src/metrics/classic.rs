//! Converts OpenMetrics to Prometheus' earlier text format.
//!
//! Here the two differ in the name of a counter in its description: in OpenMetrics it lacks the `_total` of
//! the values, in the earlier format it has it.
//! [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/) also ends with a line of its own.
//! [The earlier format](https://prometheus.io/docs/instrumenting/exposition_formats/) is for clients that do
//! not request one.

/// The same metrics in the text format 0.0.4.
pub fn from_openmetrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let mut help: Option<(&str, &str)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // The next line has its name.
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

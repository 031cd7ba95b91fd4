//! How much CPU time each task gets.

use crate::support::{file, run, tasks};
use scheduler_tests::{EXAMPLES, PUBLISHED, WITH_RECIPES, object, recipe};
use tandem_sim::metrics::{RunMetrics, TaskMetrics};

/// Those that share time evenly between all tasks of the machine.
const FAIR: [&str; 3] = ["fifo", "weighted", "tree"];
/// The others do not promise that: this bound only shows that none starves.
const UNEVEN: f64 = 0.6;

/// Equal hogs, three for two CPUs each; and as many of twice the weight, if there is a group of them.
fn hogs(scheduler: &str, heavy: bool) -> RunMetrics {
    let heavy = match heavy {
        true => {
            "[[processes]]\ngroup = \"heavy\"\nweight = 512\nmemory = \"1GiB\"\nprocess = [{ program = \"hog\", copies = 24 }]"
        }
        false => "",
    };
    run(&format!(
        r#"length = "2s"
warmup = "100ms"
machine = "xeon-e5620-2s"
policy = {{ host = {} }}
[programs.hog]
ops = [{{ sleep = {{ uniform = ["1ms", "90ms"] }} }}, {{ forever = [{{ compute = "1ms" }}] }}]
[[processes]]
group = "usual"
memory = "1GiB"
process = [{{ program = "hog", copies = 24 }}]
{heavy}
"#,
        file(scheduler)
    ))
}

/// Run time of each task of a group, ms.
fn run_ms(metrics: &RunMetrics, group: &str) -> Vec<f64> {
    tasks(metrics, group).iter().map(|task| task.run_ns as f64 / 1e6).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn equal_hogs_get_equal_time() {
    for name in EXAMPLES.into_iter().chain(PUBLISHED) {
        let metrics = hogs(name, false);
        let times_ms = run_ms(&metrics, "usual");
        // All of it: 16 CPUs for 2 s.
        let all_ms: f64 = times_ms.iter().sum();
        assert!(all_ms > 0.98 * 32_000.0, "{name}: CPUs idled: {all_ms} ms");
        let mean_ms = mean(&times_ms);
        let worst = times_ms.iter().map(|ms| (ms / mean_ms - 1.0).abs()).fold(0.0, f64::max);
        let bound = if FAIR.contains(&name) { 0.05 } else { UNEVEN };
        assert!(worst < bound, "{name}: {times_ms:?}");
    }
}

#[test]
fn twice_the_weight_is_twice_the_time_where_weights_count() {
    for name in EXAMPLES.into_iter().chain(PUBLISHED) {
        let metrics = hogs(name, true);
        let ratio = mean(&run_ms(&metrics, "heavy")) / mean(&run_ms(&metrics, "usual"));
        let expected = match name {
            "fifo" => 0.95..1.05,
            // A queue for each cache, none of which takes tasks from another as long as it has some.
            "topological" => 0.5..2.0,
            // Its central CPU ends others' turns as it decides.
            "central" => 0.9..1.1,
            "weighted" | "tree" => 1.95..2.05,
            _ => 0.8..2.5,
        };
        assert!(expected.contains(&ratio), "{name}: {ratio}");
    }
}

/// The kernel gives a task that goes on alone another slice, its own, which may be longer than the scheduler's: who charges
/// tasks for what is missing of a slice must not charge less than nothing.
#[test]
fn who_ran_alone_does_not_starve_beside_others() {
    let examples = EXAMPLES.map(|name| (name, String::new()));
    let published =
        WITH_RECIPES.map(|name| (name, recipe(name).unwrap_or_else(|error| panic!("{name}: {error}"))));
    for (name, recipe) in examples.into_iter().chain(published) {
        let metrics = run(&format!(
            r#"length = "2s"
warmup = "0ms"
machine = "1x4x1"
[policy.host]
object = "{}"
{recipe}
[programs.early]
ops = [{{ forever = [{{ compute = {{ exponential = "30ms" }} }}, {{ sleep = {{ exponential = "5ms" }} }}] }}]
[programs.late]
ops = [{{ sleep = "1s" }}, {{ forever = [{{ compute = "10ms" }}] }}]
[[processes]]
group = "early"
memory = "1GiB"
process = [{{ program = "early", copies = 3 }}]
[[processes]]
group = "late"
memory = "1GiB"
process = [{{ program = "late", copies = 6 }}]
"#,
            object(name).display()
        ));
        for group in ["early", "late"] {
            let longest_ms = TaskMetrics::sum(tasks(&metrics, group)).longest_wait_ns as f64 / 1e6;
            // One that starves waits for the whole second half.
            assert!(longest_ms < 500.0, "{name}, {group}: {longest_ms} ms");
        }
    }
}

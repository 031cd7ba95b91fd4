//! The points of a space: all combinations of a grid, or some by chance or by a Sobol sequence.
//!
//! A Sobol sequence (I. M. Sobol, 1967) fills a space more evenly than chance: its first 2^m points have one point in each of
//! many boxes of equal size. It is scrambled (A. B. Owen, 1995), so that estimates from it have no bias, and differ by the seed. The
//! library has 65,536 points of a sequence; beyond these, another scramble begins.

use super::dimension::Dimension;
use super::file::{Method, POINTS_MAX, PointsTable};
use crate::results::Key;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;

/// How many points "random" and "sobol" have if nothing is said.
const COUNT: usize = 64;
/// Points of a scramble.
const SCRAMBLE: usize = 1 << 16;
/// Dimensions that a Sobol sequence of the library has.
const SOBOL_DIMENSIONS_MAX: usize = sobol_burley::NUM_DIMENSIONS as usize;

/// The value of each dimension.
pub type Point = Vec<Key>;

/// The points, each once.
///
/// # Errors
/// A sentence, if there are too many, or what is said of their choice does not go together.
pub(super) fn points(table: PointsTable, dimensions: &[(String, Dimension)]) -> Result<Vec<Point>, String> {
    let PointsTable { method, count, seed } = table;
    let wrong = |count: usize| Err(format!("there are {count} points; allowed are 1 to {POINTS_MAX}"));
    if method == Method::Grid {
        if count.is_some() || seed != PointsTable::default().seed {
            return Err("a grid has all combinations; `count` and `seed` have no effect; remove them".into());
        }
        let values = dimensions
            .iter()
            .map(|(name, dimension)| dimension.grid().map_err(|message| format!("`{name}`: {message}")));
        let values: Vec<Vec<Key>> = values.collect::<Result<_, _>>()?;
        let count = values.iter().try_fold(1_usize, |count, values| count.checked_mul(values.len()));
        return match count.unwrap_or(usize::MAX) {
            count if count <= POINTS_MAX => Ok(grid(&values)),
            count => wrong(count),
        };
    }
    let count = count.unwrap_or(COUNT);
    if !(1..=POINTS_MAX).contains(&count) {
        return wrong(count);
    }
    if method == Method::Sobol && dimensions.len() > SOBOL_DIMENSIONS_MAX {
        return Err(format!(
            "there are {} dimensions; a Sobol sequence has {SOBOL_DIMENSIONS_MAX} at most; choose \"random\"",
            dimensions.len()
        ));
    }
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut scramble = 0;
    let mut seen = BTreeSet::new();
    let all = (0..count).map(|number| {
        if number % SCRAMBLE == 0 {
            scramble = random.next_u32();
        }
        let part = |dimension: usize| match method {
            Method::Sobol => {
                f64::from(sobol_burley::sample((number % SCRAMBLE) as u32, dimension as u32, scramble))
            }
            // 53 bits: as many as a number between 0 and 1 has.
            Method::Random | Method::Grid => (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64,
        };
        let parts: Vec<f64> = (0..dimensions.len()).map(part).collect();
        dimensions.iter().zip(parts).map(|((_, dimension), part)| dimension.at(part)).collect()
    });
    // A space of few values has fewer points than were asked for.
    Ok(all.filter(|point: &Point| seen.insert(point.clone())).collect())
}

/// All combinations; the last dimension changes first.
fn grid(values: &[Vec<Key>]) -> Vec<Point> {
    let mut points = vec![Point::new()];
    for values in values {
        let longer =
            |point: Point| values.iter().map(move |value| [&point[..], std::slice::from_ref(value)].concat());
        points = points.into_iter().flat_map(longer).collect();
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(texts: &[&str]) -> Vec<(String, Dimension)> {
        #[derive(serde::Deserialize)]
        struct File {
            it: Dimension,
        }
        let dimension = |text: &&str| toml::from_str::<File>(&format!("it = {text}")).unwrap().it;
        texts.iter().enumerate().map(|(at, text)| (format!("d{at}"), dimension(text))).collect()
    }

    fn of(method: Method, count: Option<usize>, seed: u64, texts: &[&str]) -> Result<Vec<Point>, String> {
        points(PointsTable { method, count, seed }, &space(texts))
    }

    #[test]
    fn a_grid_has_all_combinations() {
        let grid = of(Method::Grid, None, 1, &["[\"a\", \"b\"]", "{ from = 1, to = 3 }"]).unwrap();
        let shown: Vec<String> = grid.iter().map(|point| format!("{}{}", point[0], point[1])).collect();
        assert_eq!(shown, ["a1", "a2", "a3", "b1", "b2", "b3"]);
        assert_eq!(of(Method::Grid, None, 1, &[]).unwrap(), [Point::new()], "nothing differs: one point");
        let many = "{ from = 1, to = 1000 }";
        assert!(of(Method::Grid, None, 1, &[many, many, many]).unwrap_err().contains("1000000000 points"));
        assert!(of(Method::Grid, Some(3), 1, &[many]).unwrap_err().contains("no effect"));
    }

    /// Of 2^m points of a Sobol sequence, each of 2^m equal parts of each dimension has one; beyond the end of a scramble, too.
    #[test]
    fn a_sobol_sequence_fills_each_dimension_evenly() {
        let whole = "{ from = 0, to = 255 }";
        for (seed, dimensions) in [(1, 1), (1, 2), (7, 5)] {
            let texts = vec![whole; dimensions];
            let points = of(Method::Sobol, Some(256), seed, &texts).unwrap();
            for dimension in 0..dimensions {
                let mut values: Vec<&Key> = points.iter().map(|point| &point[dimension]).collect();
                values.sort_unstable();
                values.dedup();
                assert_eq!(values.len(), 256.min(points.len()), "seed {seed}, dimension {dimension}");
            }
        }
        let far = of(Method::Sobol, Some(SCRAMBLE + 256), 1, &["{ from = 0.0, to = 1.0 }", whole]).unwrap();
        let mut last: Vec<&Key> = far[far.len() - 256..].iter().map(|point| &point[1]).collect();
        last.sort_unstable();
        last.dedup();
        assert!(last.len() >= 250, "{}: a point that was there before is left out", last.len());
    }

    #[test]
    fn seeds_give_other_points_and_the_same_ones_again() {
        for method in [Method::Random, Method::Sobol] {
            let points = |seed| of(method, Some(50), seed, &["{ from = 0.0, to = 1.0 }"]).unwrap();
            assert_eq!(points(3), points(3));
            assert_ne!(points(3), points(4));
        }
    }

    #[test]
    fn a_small_space_has_each_point_once() {
        let points = of(Method::Random, Some(1000), 1, &["[1, 2, 3]", "[1, 2]"]).unwrap();
        assert_eq!(points.len(), 6);
    }
}

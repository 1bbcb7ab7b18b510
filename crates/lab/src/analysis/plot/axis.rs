//! Axes: the position of each value, and labelled ticks.
//!
//! Ticks are at round numbers: 1, 2, 2.5 or 5 times a power of ten of the unit shown; powers of ten on
//! logarithmic axes, powers of two for bytes; one more nine each on a percentile axis.

use crate::unit::Unit;

/// Logarithmic axes end here: no measurement lies beyond.
const SMALLEST: f64 = 1e-12;
const LARGEST: f64 = 1e24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spacing {
    /// Equal differences have equal lengths.
    Linear,
    /// Equal ratios have equal lengths.
    Log,
    /// 0, 90, 99, 99.9 percent are equally spaced.
    Nines,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    spacing: Spacing,
    low: f64,
    high: f64,
    /// Ticks: value and label.
    pub ticks: Vec<(f64, String)>,
    /// Unit, if the labels do not include it.
    pub unit: String,
}

impl Axis {
    /// From `low` to `high` with about `about` ticks; both ends are ticks.
    pub fn linear(unit: Unit, low: f64, high: f64, about: usize) -> Axis {
        let (low, high) = (low.clamp(-LARGEST, LARGEST), high.clamp(-LARGEST, LARGEST));
        let (divisor, name) = unit.scale(low.abs().max(high.abs()));
        Axis::even(low / divisor, high / divisor, about, divisor, name)
    }

    /// From 0 (or from the lowest value, if negative or far from 0) to the highest of these values.
    pub fn around(unit: Unit, values: impl Iterator<Item = f64> + Clone, about: usize) -> Axis {
        let finite = values.filter(|v| v.is_finite());
        let high = finite.clone().fold(f64::NEG_INFINITY, f64::max);
        let low = finite.fold(f64::INFINITY, f64::min);
        if low > high {
            return Axis::linear(unit, 0.0, 1.0, about);
        }
        let low = if unit == Unit::Celsius { low } else { low.min(0.0) };
        match unit {
            // Read busy and hit rates against 100 %.
            Unit::Percent if low >= 0.0 && high > 50.0 && high <= 100.0 => {
                Axis::linear(unit, 0.0, 100.0, about)
            }
            _ => Axis::linear(unit, low, if high > low { high } else { low + low.abs().max(1.0) }, about),
        }
    }

    /// From 0 to exactly the highest of these values, without ticks: values are written beside their marks.
    pub fn bare(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let mut axis = Axis::around(Unit::Number, values.clone(), 4);
        let high = values.filter(|v| v.is_finite()).fold(axis.low.max(0.0), f64::max);
        axis.high = if high > axis.low { high.min(LARGEST) } else { axis.high };
        axis.ticks.clear();
        axis
    }

    /// Elapsed time in nanoseconds, up to exactly `end`.
    pub fn elapsed(end: f64) -> Axis {
        let (divisor, name) = match end {
            e if e < 1e9 => Unit::Nanoseconds.scale(e),
            e if e <= 300e9 => (1e9, "s".into()),
            e if e <= 3.0 * 3600e9 => (60e9, "min".into()),
            _ => (3600e9, "h".into()),
        };
        let mut axis = Axis::even(0.0, end / divisor, 6, divisor, name);
        axis.high = end;
        axis.ticks.retain(|tick| tick.0 <= end * 1.000_001);
        axis
    }

    /// A logarithmic axis that holds both ends, within reason.
    pub fn log(unit: Unit, low: f64, high: f64) -> Axis {
        let low = low.clamp(SMALLEST, LARGEST);
        let high = high.clamp(low, LARGEST);
        if unit == Unit::Bytes {
            return Axis::powers_of_two(low, high);
        }
        let mut ticks = Vec::new();
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let decades = last - first;
        let steps: &[f64] = if decades <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = (decades / 7 + 1).max(1);
        for power in (first..=last).filter(|power| (power - first) % every == 0) {
            ticks.extend(steps.iter().map(|step| step * 10f64.powi(power)));
        }
        let low = ticks.iter().copied().filter(|&t| t <= low).fold(10f64.powi(first), f64::max);
        let high = ticks.iter().copied().filter(|&t| t >= high).fold(10f64.powi(last), f64::min);
        ticks.retain(|&t| low <= t && t <= high);
        let ticks = ticks.into_iter().map(|t| (t, tick_word(unit, t))).collect();
        Axis { spacing: Spacing::Log, low, high, ticks, unit: String::new() }
    }

    #[must_use]
    pub fn sparse(mut self, most: usize) -> Axis {
        let every = self.ticks.len().div_ceil(most.max(1)).max(1);
        self.ticks = self.ticks.into_iter().step_by(every).collect();
        self
    }

    /// Percentiles from 0 to this many nines.
    pub fn nines(nines: u32) -> Axis {
        let ticks =
            [(0.0, "0%"), (50.0, "50%"), (90.0, "90%"), (99.0, "99%"), (99.9, "99.9%"), (99.99, "99.99%")];
        let high = 100.0 - 100.0 / 10f64.powi(nines.clamp(2, 4) as i32);
        let ticks =
            ticks.into_iter().filter(|t| t.0 <= high + 1e-9).map(|(v, word)| (v, word.into())).collect();
        Axis { spacing: Spacing::Nines, low: 0.0, high, ticks, unit: String::new() }
    }

    /// Position of a value on the axis, from 0 to 1.
    pub fn part(&self, value: f64) -> f64 {
        let on = |v: f64| match self.spacing {
            Spacing::Linear => v,
            Spacing::Log => v.max(self.low).log10(),
            Spacing::Nines => -(1.0 - v.min(self.high) / 100.0).log10(),
        };
        let span = on(self.high) - on(self.low);
        let part = if span > 0.0 { (on(value) - on(self.low)) / span } else { 0.0 };
        if value.is_nan() || part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }

    fn even(low: f64, high: f64, about: usize, divisor: f64, name: String) -> Axis {
        let step = nice_step((high - low) / about.max(1) as f64);
        let (first, last) = ((low / step + 1e-9).floor() as i64, (high / step - 1e-9).ceil() as i64);
        let decimals = decimals(step);
        // A bare prefix is no unit to head an axis with, so it stays with each number.
        let alone = matches!(name.as_str(), "k" | "M" | "G" | "T");
        let word = |v: f64| match alone && v != 0.0 {
            true => format!("{v:.decimals$} {name}"),
            false => format!("{v:.decimals$}"),
        };
        let ticks: Vec<(f64, String)> =
            (first..=last).map(|i| i as f64 * step).map(|v| (v * divisor, word(v))).collect();
        let (low, high) = (first as f64 * step * divisor, last as f64 * step * divisor);
        Axis { spacing: Spacing::Linear, low, high, ticks, unit: if alone { String::new() } else { name } }
    }

    fn powers_of_two(low: f64, high: f64) -> Axis {
        let (first, last) = (low.max(1.0).log2().floor() as i32, high.max(2.0).log2().ceil() as i32);
        let every = ((last - first) / 7 + 1).max(1);
        let ticks = (first..=last)
            .filter(|power| (power - first) % every == 0)
            .map(|power| (2f64.powi(power), tick_word(Unit::Bytes, 2f64.powi(power))))
            .collect();
        Axis {
            spacing: Spacing::Log,
            low: 2f64.powi(first),
            high: 2f64.powi(last),
            ticks,
            unit: String::new(),
        }
    }
}

/// Smallest of 1, 2, 2.5 and 5 times a power of ten at least `least`.
fn nice_step(least: f64) -> f64 {
    if !(least.is_finite() && least > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|f| f * power >= least * 0.999_999);
    factor.unwrap_or(10.0) * power
}

fn decimals(step: f64) -> usize {
    (0..9).find(|&d| ((step * 10f64.powi(d)).fract() + 1e-6).fract() < 2e-6).unwrap_or(9) as usize
}

/// A tick's value with its unit and no needless digits: `100 us`, `128 KiB`.
fn tick_word(unit: Unit, value: f64) -> String {
    // Keep powers of ten of a second in seconds.
    let about = if unit == Unit::Nanoseconds { value.min(59e9) } else { value };
    let (divisor, name) = unit.scale(about);
    let scaled = value / divisor;
    let number = format!("{:.*}", decimals(scaled), scaled);
    if name.is_empty() || name == "%" { format!("{number}{name}") } else { format!("{number} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(axis: &Axis) -> String {
        format!("{} [{}]", axis.ticks.iter().map(|t| t.1.as_str()).collect::<Vec<_>>().join(" "), axis.unit)
    }

    #[test]
    fn ticks_are_at_round_numbers() {
        assert_eq!(
            words(&Axis::linear(Unit::BytesPerSecond, 0.0, 317.0 * 1048576.0, 4)),
            "0 100 200 300 400 [MiB/s]"
        );
        assert_eq!(words(&Axis::linear(Unit::PerSecond, 0.0, 48_300.0, 5)), "0 10 20 30 40 50 [k/s]");
        assert_eq!(words(&Axis::linear(Unit::Number, 0.0, 0.83, 4)), "0.00 0.25 0.50 0.75 1.00 []");
        assert_eq!(words(&Axis::linear(Unit::Count, 0.0, 9_000_000.0, 4)), "0.0 2.5 M 5.0 M 7.5 M 10.0 M []");
        assert_eq!(words(&Axis::elapsed(30e9)), "0 5 10 15 20 25 30 [s]");
        assert_eq!(words(&Axis::elapsed(900e9)), "0.0 2.5 5.0 7.5 10.0 12.5 15.0 [min]");
        assert_eq!(
            words(&Axis::log(Unit::Nanoseconds, 125e3, 1.28e9)),
            "100 us 1 ms 10 ms 100 ms 1 s 10 s []"
        );
        assert_eq!(words(&Axis::log(Unit::Nanoseconds, 3e6, 40e6)), "2 ms 5 ms 10 ms 20 ms 50 ms []");
        assert_eq!(
            words(&Axis::log(Unit::Bytes, 512.0, 1048576.0)),
            "512 B 2 KiB 8 KiB 32 KiB 128 KiB 512 KiB []"
        );
        assert_eq!(words(&Axis::nines(3)), "0% 50% 90% 99% 99.9% []");
    }

    #[test]
    fn any_values_lie_in_order_and_within_the_axis() {
        for axis in [
            Axis::linear(Unit::Percent, 0.0, 100.0, 4),
            Axis::log(Unit::Nanoseconds, 1.0, 1e10),
            Axis::nines(4),
            Axis::around(Unit::Celsius, [f64::NAN, f64::INFINITY].into_iter(), 4),
            Axis::around(Unit::Number, [0.0, 0.0].into_iter(), 4),
        ] {
            let parts =
                [f64::NEG_INFINITY, -1.0, 0.0, 1.0, 50.0, 99.0, 1e9, f64::INFINITY].map(|v| axis.part(v));
            assert!(parts.iter().all(|p| (0.0..=1.0).contains(p)), "{parts:?} {axis:?}");
            assert!(axis.part(f64::NAN) == 0.0);
            assert!(parts[1..7].is_sorted(), "{parts:?} {axis:?}");
        }
    }
}

//! Zipf's law: rank k of n has a probability proportional to k^-theta.
//!
//! The masses of the first ranks, where most draws fall, are summed in a table. Beyond it, the staircase of
//! masses is as good as the curve x^-theta, whose integral has an inverse in closed form: over the unit
//! interval around k, the mass of rank k differs from the curve's by theta (theta + 1) / 24 k^2 of itself, at
//! most 3 in 100,000. So neither memory nor time grows with n; fio adds up to ten million powers before it
//! starts.

use super::random::{Random, power};

/// Ranks in the table.
const HEAD: usize = 64;
/// For theta = 1 the integral has another form; a theta this close to 1 cannot be distinguished from it.
const LEAST_FROM_ONE: f64 = 1e-6;

#[derive(Debug, Clone)]
pub(super) struct Zipf {
    n: f64,
    /// 1 - theta: the exponent of the integral.
    exponent: f64,
    /// 1 / exponent.
    inverse: f64,
    /// Sum of masses up to and including each rank.
    head: Vec<f64>,
    head_mass: f64,
    /// Sum of the masses of all ranks.
    mass: f64,
    /// Integral up to the end of the table.
    integral_of_head: f64,
}

impl Zipf {
    pub fn new(n: u64, theta: f64) -> Zipf {
        let exponent = 1.0 - theta;
        let exponent = if exponent.abs() < LEAST_FROM_ONE { LEAST_FROM_ONE } else { exponent };
        let mut head_mass = 0.0;
        let head = (1..=n.min(HEAD as u64)).map(|rank| {
            head_mass += power(rank as f64, -theta);
            head_mass
        });
        let head: Vec<f64> = head.collect();
        let n = n as f64;
        let integral_of_head = integral(exponent, head.len() as f64 + 0.5);
        let mass = head_mass + integral(exponent, n + 0.5) - integral_of_head;
        Zipf { n, exponent, inverse: 1.0 / exponent, head, head_mass, mass, integral_of_head }
    }

    /// A random rank, from 0.
    #[inline]
    pub fn next(&self, random: &mut Random) -> u64 {
        let mass = random.unit() * self.mass;
        if mass < self.head_mass {
            return self.head.partition_point(|up_to| *up_to <= mass) as u64;
        }
        let integral = mass - self.head_mass + self.integral_of_head;
        let x = power(integral * self.exponent + 1.0, self.inverse);
        (x + 0.5).min(self.n) as u64 - 1
    }
}

/// Integral of x^-theta from 1.
fn integral(exponent: f64, to: f64) -> f64 {
    (power(to, exponent) - 1.0) / exponent
}

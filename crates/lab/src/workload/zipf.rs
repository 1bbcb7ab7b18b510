//! Zipf's law: rank k of n comes with probability proportional to k^-theta.
//!
//! Rejection-inversion: the sum over ranks is replaced by the integral of x^-theta, whose inverse is in closed form; a draw that falls
//! between curve and staircase is thrown away, which is rare. It needs no table of n and is exact for each theta above 0.
//! Source: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", 1996.

use super::random::Random;

/// Draws ranks.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    n: f64,
    theta: f64,
    /// The integral up to 1.5, less the mass of rank 1: where draws begin.
    begin: f64,
    /// The integral up to n + 1/2: where they end.
    end: f64,
    /// A draw so near to its rank is right without looking at the curve.
    sure: f64,
}

impl Zipf {
    /// For ranks 1 to `n`.
    pub fn new(n: u64, theta: f64) -> Zipf {
        let n = n as f64;
        let mut zipf = Zipf { n, theta, begin: 0.0, end: 0.0, sure: 0.0 };
        zipf.begin = zipf.integral(1.5) - 1.0;
        zipf.end = zipf.integral(n + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank, from 0.
    #[inline]
    pub fn next(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.end + random.unit() * (self.begin - self.end);
            let x = self.inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.n);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// (x^(1-theta) - 1) / (1-theta), which is log x where theta is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let power = (1.0 - self.theta) * log;
        if power.abs() > 1e-8 { libm::expm1(power) / power * log } else { log * (1.0 + power / 2.0) }
    }

    /// The x whose integral is `area`.
    #[inline]
    fn inverse(&self, area: f64) -> f64 {
        let power = (area * (1.0 - self.theta)).max(-1.0);
        let log =
            if power.abs() > 1e-8 { libm::log1p(power) / power * area } else { area * (1.0 - power / 2.0) };
        libm::exp(log)
    }
}

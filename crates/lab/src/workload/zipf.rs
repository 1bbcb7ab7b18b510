//! Zipf's law: rank k of n comes with probability proportional to k^-theta.
//!
//! Rejection-inversion: the sum over ranks is replaced by the integral of x^-theta, whose inverse is in closed form; a draw that falls
//! between curve and staircase is thrown away, which is rare. It is exact for each theta above 0 and needs no table of n; a table of the
//! first ranks, where most draws fall, saves looking at the curve.
//! Source: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", 1996.

use super::random::Random;

/// Ranks whose limits are in the table.
const HEAD: usize = 64;
/// Where theta is 1 the integral has another form; nobody can tell a theta this far from it.
const LEAST_FROM_ONE: f64 = 1e-6;

/// Draws ranks.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    n: f64,
    /// 1 - theta: the exponent of the integral.
    exponent: f64,
    /// The integral up to 1.5, less the mass of rank 1: where draws begin.
    begin: f64,
    /// The integral up to n + 1/2: where they end.
    end: f64,
    /// From which area on a draw of rank k + 1 is taken.
    head: Box<[f64; HEAD]>,
    /// A draw this little below its rank is taken, beyond the head.
    sure: f64,
}

impl Zipf {
    /// For ranks 1 to `n`.
    pub fn new(n: u64, theta: f64) -> Zipf {
        let exponent = 1.0 - theta;
        let far = exponent.abs() >= LEAST_FROM_ONE;
        let exponent = if far { exponent } else { LEAST_FROM_ONE };
        let mut zipf =
            Zipf { n: n as f64, exponent, begin: 0.0, end: 0.0, head: Box::new([0.0; HEAD]), sure: 0.0 };
        zipf.begin = zipf.integral(1.5) - 1.0;
        zipf.end = zipf.integral(zipf.n + 0.5);
        zipf.head = Box::new(std::array::from_fn(|index| zipf.limit(index as f64 + 1.0)));
        // The staircase comes nearer to the curve with each rank, so what holds for the head's last one holds for all beyond.
        zipf.sure = HEAD as f64 - zipf.inverse(zipf.limit(HEAD as f64));
        zipf
    }

    /// A rank, from 0.
    #[inline]
    pub fn next(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.end + random.unit() * (self.begin - self.end);
            let x = self.inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.n);
            let index = rank as u64 - 1;
            let taken = match self.head.get(index as usize) {
                Some(limit) => area >= *limit,
                None => rank - x <= self.sure || area >= self.limit(rank),
            };
            if taken {
                return index;
            }
        }
    }

    /// From which area on a draw of this rank is taken, so that it has the mass of its stair.
    fn limit(&self, rank: f64) -> f64 {
        let density = libm::exp((self.exponent - 1.0) * libm::log(rank));
        self.integral(rank + 0.5) - density
    }

    /// The integral of x^-theta from 1.
    fn integral(&self, x: f64) -> f64 {
        (libm::exp(self.exponent * libm::log(x)) - 1.0) / self.exponent
    }

    /// The x whose integral is `area`.
    #[inline]
    fn inverse(&self, area: f64) -> f64 {
        let power = (area * self.exponent + 1.0).max(f64::MIN_POSITIVE);
        libm::exp(libm::log(power) / self.exponent)
    }
}

//! The few date functions needed here: days and seconds since 1970, UTC.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds in a day.
pub const DAY_S: u64 = 86_400;

/// Days since 1970 for a Gregorian date, from 1970 on.
pub fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that start in March have the leap day at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    (year * 365 + leap_days + (153 * month + 2) / 5 + day - 1).checked_sub(719_468)
}

/// `2026-11-22`, from days since 1970.
pub fn show(days_since_1970: u64) -> String {
    let days = days_since_1970 + 719_468;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", days / 146_097 * 400 + year_of_era + later)
}

/// Seconds since 1970 for `Sun Nov 22 02:57:33 2026`. The text has no time zone: read as UTC, it may be off
/// by half a day.
pub fn of_ctime(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, month, day, time, year] = words[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let mut seconds = 0;
    for part in time.split(':') {
        seconds = seconds * 60 + part.parse::<u64>().ok().filter(|part| *part < 60)?;
    }
    Some(days(year.parse().ok()?, month, day.parse().ok()?)? * DAY_S + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        assert_eq!(days(1970, 1, 1), Some(0));
        assert_eq!(days(2000, 2, 29), Some(11_016));
        assert_eq!((days(1969, 12, 31), days(2026, 13, 1)), (None, None));
        assert_eq!(of_ctime("Sun Nov 22 02:57:33 2026"), Some(1_795_316_253));
        assert_eq!(of_ctime("Sun Nov 22"), None);
        for (year, month, day) in [(1970, 1, 1), (1999, 12, 31), (2000, 2, 29), (2024, 3, 1), (2026, 11, 22)]
        {
            let shown = days(year, month, day).map(show);
            assert_eq!(shown, Some(format!("{year:04}-{month:02}-{day:02}")));
        }
    }
}

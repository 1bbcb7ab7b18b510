//! Times and durations as text. Always UTC, so output does not depend on the machine's time zone.

use std::time::Duration;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Year, month (1 to 12) and day for a day number counted from 1970-01-01, in the proleptic Gregorian
/// calendar.
fn civil(day: i64) -> (i64, u32, u32) {
    // Years start in March here, so that the leap day is the last day of the year.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = (if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 }) as u32;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day_of_month)
}

/// The inverse of [`civil`]; `None`: there is no such day.
fn day_number(year: i64, month: u32, day: u32) -> Option<i64> {
    let year_from_march = year - i64::from(month <= 2);
    let (era, year_of_era) = (year_from_march.div_euclid(400), year_from_march.rem_euclid(400));
    let day_of_year = (153 * i64::from((month + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let number = era * 146_097 + day_of_era - 719_468;
    (civil(number) == (year, month, day)).then_some(number)
}

/// A date or a minute in UTC, `2026-11-21` or `2026-11-21 07:20`, in seconds since 1970, and its length in
/// seconds.
pub fn parse_date(text: &str) -> Option<(u64, u64)> {
    let number = |text: &str, digits: usize| {
        let is_number = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| text.parse::<u32>().ok())?
    };
    let (date, time) = text.trim().split_once(' ').map_or((text.trim(), None), |(d, t)| (d, Some(t.trim())));
    let [year, month, day] = *date.split('-').collect::<Vec<_>>() else { return None };
    let day = day_number(number(year, 4)?.into(), number(month, 2)?, number(day, 2)?)?;
    let midnight_s = u64::try_from(day).ok()? * 86_400;
    let Some(time) = time else { return Some((midnight_s, 86_400)) };
    let (hour, minute) = time.split_once(':')?;
    let (hour, minute) = (number(hour, 2)?, number(minute, 2)?);
    (hour < 24 && minute < 60).then(|| (midnight_s + u64::from(hour * 3600 + minute * 60), 60))
}

fn clock(seconds: i64) -> (i64, i64, i64) {
    let s = seconds.rem_euclid(86_400);
    (s / 3600, s / 60 % 60, s % 60)
}

/// `2026-11-21 07:20:22Z`.
pub fn iso_utc(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let (h, m, s) = clock(seconds);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}Z")
}

/// `Sat Nov 21 07:20:22 2026`, as `zpool status` prints times.
pub fn ctime(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400);
    let (year, month, day) = civil(days);
    let (h, m, s) = clock(seconds);
    let weekday = DAYS[days.rem_euclid(7) as usize];
    format!("{weekday} {} {day:>2} {h:02}:{m:02}:{s:02} {year}", MONTHS[month as usize - 1])
}

/// `Sat Nov 21 07:20:22 UTC 2026`, as date(1) prints times.
pub fn date(seconds: i64) -> String {
    let time = ctime(seconds);
    let (head, year) = time.rsplit_once(' ').unwrap_or_default();
    format!("{head} UTC {year}")
}

/// `Sat Nov 21  7:20 2026`, as `zfs list` prints times.
pub fn short_time(seconds: i64) -> String {
    let (_, m, _) = clock(seconds);
    short(seconds, &format!("{m:02}"))
}

/// `Sat Nov 21  7:20:22 2026`.
pub fn short_time_seconds(seconds: i64) -> String {
    let (_, m, s) = clock(seconds);
    short(seconds, &format!("{m:02}:{s:02}"))
}

fn short(seconds: i64, after_hour: &str) -> String {
    let days = seconds.div_euclid(86_400);
    let (year, month, day) = civil(days);
    let hour = clock(seconds).0;
    let weekday = DAYS[days.rem_euclid(7) as usize];
    format!("{weekday} {} {day:>2} {hour:>2}:{after_hour} {year}", MONTHS[month as usize - 1])
}

/// `2026-11-21.07:20:22`, as `zpool history` prints times.
pub fn dotted_time(seconds: i64) -> String {
    iso_utc(seconds).trim_end_matches('Z').replace(' ', ".")
}

/// `00:03:05`, `2 days 10:00:01`, as `zpool status` prints durations.
pub fn days_and_clock(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

/// `0.8 s`, `42 s`, `3 min 05 s`, `2 h 10 min`.
pub fn duration(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0..=9 => format!("{:.1} s", d.as_secs_f64()),
        10..=99 => format!("{s} s"),
        100..=5999 => format!("{} min {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} min", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_they_are_printed() {
        for number in [0, 58, 59, 60, 364, 365, 789, 11_016, 20_778, 2_932_896] {
            let (year, month, day) = civil(number);
            assert_eq!(day_number(year, month, day), Some(number));
            let typed = format!("{year:04}-{month:02}-{day:02}");
            assert_eq!(parse_date(&typed), Some((number as u64 * 86_400, 86_400)), "{typed}");
        }
        assert_eq!(parse_date("2026-11-21 07:20"), Some((1_795_245_600, 60)));
        for wrong in [
            "",
            "2026",
            "2026-11",
            "2026-11-31",
            "2025-02-29",
            "1969-12-31",
            "2026-13-01",
            "2026-00-01",
            "2026-11-21T07:20",
            "2026-11-21 7",
            "2026-11-21 24:00",
            "2026-11-21 07:60",
            "2026-11-21 07:20:01",
            "+026-11-21",
            "yesterday",
            "99999-01-01",
        ] {
            assert_eq!(parse_date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn known_days() {
        assert_eq!(iso_utc(0), "1970-01-01 00:00:00Z");
        assert_eq!(iso_utc(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(iso_utc(-1), "1969-12-31 23:59:59Z");
        assert_eq!(ctime(1_795_245_622), "Sat Nov 21 07:20:22 2026");
        assert_eq!(date(1_795_245_622), "Sat Nov 21 07:20:22 UTC 2026");
        assert_eq!(short_time(1_795_245_622), "Sat Nov 21  7:20 2026");
        assert_eq!(short_time_seconds(1_795_245_622), "Sat Nov 21  7:20:22 2026");
        assert_eq!(dotted_time(1_795_245_622), "2026-11-21.07:20:22");
        assert_eq!(days_and_clock(185), "00:03:05");
        assert_eq!(days_and_clock(2 * 86_400 + 36_001), "2 days 10:00:01");
        assert_eq!(duration(Duration::from_millis(840)), "0.8 s");
        assert_eq!(duration(Duration::from_secs(185)), "3 min 05 s");
    }
}

//! Lines of a result: which workers report together, and the names of their streams.
//!
//! The workers of a job with `group_reporting` form one line; otherwise each is a line. The streams of a
//! single line are `read`, `write` and `sync`; of several, the line's name comes first: `JOB/read` for a job,
//! `JOB/WORKER/read` for a worker (from 0). A second job of the same name is `JOB#2`.

use crate::load::job::Jobs;
use crate::load::measurement::Stream;

#[derive(Debug)]
pub(crate) struct Lines<'a> {
    jobs: &'a Jobs,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    /// Index of the job.
    index: usize,
    /// Number of the worker, if it is its own line.
    number: Option<u32>,
    streams: Vec<Stream>,
}

impl<'a> Lines<'a> {
    pub fn new(jobs: &'a Jobs) -> Lines<'a> {
        Lines { jobs, lines: Vec::new() }
    }

    /// Adds the streams of worker `number` of job `index`.
    pub fn add(&mut self, index: usize, number: u32, streams: Vec<Stream>) {
        let number = (!self.jobs.0[index].group).then_some(number);
        let line = match self.lines.iter_mut().find(|line| (line.index, line.number) == (index, number)) {
            Some(line) => line,
            None => {
                self.lines.push(Line { index, number, streams: Vec::new() });
                let last = self.lines.len() - 1;
                &mut self.lines[last]
            }
        };
        for stream in streams {
            match line.streams.iter_mut().find(|known| known.operation == stream.operation) {
                Some(known) => known.add(&stream),
                None => line.streams.push(stream),
            }
        }
    }

    pub fn into_streams(self) -> Vec<Stream> {
        let alone = self.lines.len() == 1;
        let jobs = self.jobs;
        let named = move |line: Line| {
            let name = name(jobs, line.index, line.number);
            line.streams.into_iter().map(move |stream| match alone {
                true => stream,
                false => Stream { operation: format!("{name}/{}", stream.operation), ..stream },
            })
        };
        self.lines.into_iter().flat_map(named).collect()
    }
}

fn name(jobs: &Jobs, index: usize, number: Option<u32>) -> String {
    let job = &jobs.0[index].name;
    let before = jobs.0[..index].iter().filter(|other| other.name == *job).count();
    let job = if before == 0 { job.clone() } else { format!("{job}#{}", before + 1) };
    match number {
        Some(number) if jobs.0[index].workers > 1 => format!("{job}/{number}"),
        _ => job,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::job::Job;
    use crate::load::measurement::Recorder;

    #[test]
    fn workers_are_lines_unless_grouped() {
        let job = |name: &str, workers, group| Job { name: name.into(), workers, group, ..Job::default() };
        let read = |bytes| {
            let mut recorder = Recorder::new(0);
            recorder.record(bytes, 0, 5);
            vec![recorder.into_stream("read", 10)]
        };
        let names = |jobs: &Jobs| {
            let mut lines = Lines::new(jobs);
            for (index, job) in jobs.0.iter().enumerate() {
                (0..job.workers).for_each(|number| lines.add(index, number, read(7)));
            }
            let streams = lines.into_streams().into_iter();
            streams.map(|stream| format!("{} {}", stream.operation, stream.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(names(&Jobs(vec![job("a", 2, true)])), ["read 14"]);
        assert_eq!(names(&Jobs(vec![job("a", 2, false)])), ["a/0/read 7", "a/1/read 7"]);
        let several = Jobs(vec![job("a", 2, true), job("a", 1, false), job("b", 1, true)]);
        assert_eq!(names(&several), ["a/read 14", "a#2/read 7", "b/read 7"]);
    }
}

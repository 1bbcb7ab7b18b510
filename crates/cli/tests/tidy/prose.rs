//! Plain English, counted: clauses that begin with `who`, `whoever` or `what`, and the length of comments.
//!
//! Idea: such a clause hides its actor (`who finds no room waits`); a sentence that names it is shorter and
//! clearer. Questions may use these words. Code in comments and documents does not count.

/// Words that begin such clauses.
const HIDE_ACTORS: [&str; 5] = ["who", "whoever", "whom", "what", "whatever"];

/// Figures of some prose.
#[derive(Debug, Default, Clone, Copy)]
pub struct Prose {
    pub words: usize,
    pub clauses: usize,
    /// Lines of code that comments belong to.
    pub code_lines: usize,
}

impl Prose {
    /// Of a document in Markdown.
    pub fn of_document(text: &str) -> Prose {
        let (mut prose, mut in_code) = (String::new(), false);
        for line in text.lines() {
            let is_fence = line.trim_start().starts_with("```");
            in_code ^= is_fence;
            if !in_code && !is_fence {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        count(&prose)
    }

    /// Of the comments of a Rust file.
    pub fn of_comments(text: &str) -> Prose {
        let (comments, code): (Vec<&str>, Vec<&str>) = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .partition(|line| line.starts_with("//"));
        let comments: Vec<&str> =
            comments.iter().map(|line| line.trim_start_matches(['/', '!']).trim_start()).collect();
        Prose { code_lines: code.len(), ..Prose::of_document(&comments.join("\n")) }
    }

    /// Clauses in 1,000 words.
    pub fn clauses_per_1000(&self) -> f64 {
        1000.0 * self.clauses as f64 / self.words.max(1) as f64
    }

    /// Words of comments for 1,000 lines of code.
    pub fn words_per_1000_lines(&self) -> f64 {
        1000.0 * self.words as f64 / self.code_lines.max(1) as f64
    }
}

impl std::ops::AddAssign for Prose {
    fn add_assign(&mut self, other: Prose) {
        self.words += other.words;
        self.clauses += other.clauses;
        self.code_lines += other.code_lines;
    }
}

fn count(text: &str) -> Prose {
    // Outside of `code`.
    let text: String = text.split('`').step_by(2).collect::<Vec<_>>().join("x");
    let mut found = Prose::default();
    for sentence in text.split_inclusive(['.', '?', '!', ';']) {
        let words = sentence.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '-');
        let words: Vec<String> = words
            .filter(|word| word.starts_with(|c: char| c.is_alphabetic()))
            .map(str::to_lowercase)
            .collect();
        found.words += words.len();
        if !sentence.ends_with('?') {
            found.clauses += words.iter().filter(|word| HIDE_ACTORS.contains(&word.as_str())).count();
        }
    }
    found
}

#[test]
fn clauses_that_hide_their_actor_are_counted() {
    let text = "//! Whoever waits is told. Who is it?\n/// A task waits: see `what`.\nfn it() {}\n";
    let prose = Prose::of_comments(text);
    assert_eq!((prose.clauses, prose.words, prose.code_lines), (1, 12, 1));
    assert_eq!(Prose::of_document("What is it? It is a pool.\n```\nwho\n```\n").clauses, 0);
}

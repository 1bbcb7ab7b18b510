//! The commands that the API offers: their words, their fields, and which of them only look.

/// All commands, sorted by their words.
#[derive(Debug, Clone)]
pub struct Catalogue {
    verbs: Vec<Verb>,
    only_looks: fn(&[String]) -> bool,
}

/// Whether a command changes nothing and shows no content of files: then it answers GET, and a token that may
/// only look may run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// Whatever its fields are.
    Always,
    /// Its fields decide: `zfs mount` lists or mounts.
    Sometimes,
    /// It changes something, or shows content.
    Never,
}

/// A command.
#[derive(Debug, Clone)]
pub struct Verb {
    /// `["zfs", "list"]`.
    pub words: Vec<String>,
    /// What it does, in a line.
    pub about: String,
    /// Whether it only looks.
    pub looks: Looks,
    /// Its options, then its operands in order.
    pub inputs: Vec<Input>,
}

/// An option or operand of a command: a field of a request.
#[derive(Debug, Clone)]
pub struct Input {
    /// The field's name: the long option without dashes, or what help calls the operand, in lower case.
    pub name: String,
    /// Help.
    pub about: String,
    /// How it is typed.
    pub kind: Kind,
    /// Takes a list.
    pub is_list: bool,
    /// Must be given.
    pub is_required: bool,
    /// The only values that it takes; none: any.
    pub values: Vec<String>,
}

/// How a field becomes words of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An option without a value, as it is typed: `--recursive`, `-r`.
    Flag(String),
    /// An option with a value: `--depth`, `-o`.
    Option(String),
    /// A word after all options.
    Operand,
}

impl Catalogue {
    /// A catalogue of these. `only_looks` judges the words of a command that [`Looks::Sometimes`].
    pub fn new(mut verbs: Vec<Verb>, only_looks: fn(&[String]) -> bool) -> Catalogue {
        verbs.sort_by(|one, other| one.words.cmp(&other.words));
        Catalogue { verbs, only_looks }
    }

    /// Whether a command, all of whose words are known, only looks.
    pub fn only_looks(&self, verb: &Verb, words: &[String]) -> bool {
        match verb.looks {
            Looks::Always => true,
            Looks::Sometimes => (self.only_looks)(words),
            Looks::Never => false,
        }
    }

    /// The command whose words are these path segments.
    pub fn get<'a>(&self, words: impl Iterator<Item = &'a str> + Clone) -> Option<&Verb> {
        self.verbs.iter().find(|verb| words.clone().eq(verb.words.iter().map(String::as_str)))
    }

    /// All of them.
    pub fn verbs(&self) -> &[Verb] {
        &self.verbs
    }
}

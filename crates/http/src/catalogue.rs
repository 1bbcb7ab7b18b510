//! Commands of the API: words, fields, and whether they are read-only.

/// All commands, sorted by their words.
#[derive(Debug, Clone)]
pub struct Catalogue {
    verbs: Vec<Verb>,
    only_looks: fn(&[String]) -> bool,
}

/// Whether a command changes nothing and shows no file content. Such a command answers GET, and the `look`
/// role may run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// With any fields.
    Always,
    /// Depends on its fields: `zfs mount` lists or mounts.
    Sometimes,
    /// It changes something, or shows file content.
    Never,
}

/// A command.
#[derive(Debug, Clone)]
pub struct Verb {
    /// `["zfs", "list"]`.
    pub words: Vec<String>,
    /// One-line description.
    pub about: String,
    /// Whether it is read-only.
    pub looks: Looks,
    /// Options, then operands in order.
    pub inputs: Vec<Input>,
}

/// An option or operand of a command, as a request field.
#[derive(Debug, Clone)]
pub struct Input {
    /// Field name: the long option without dashes, or the operand's name in lower case.
    pub name: String,
    /// Help text.
    pub about: String,
    /// Form on the command line.
    pub kind: Kind,
    /// Accepts a list.
    pub is_list: bool,
    /// Required.
    pub is_required: bool,
    /// Permitted values; if empty, any.
    pub values: Vec<String>,
}

/// Form of a field on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Option without a value: `--recursive`, `-r`.
    Flag(String),
    /// Option with a value: `--depth`, `-o`.
    Option(String),
    /// Operand, after all options.
    Operand,
}

impl Catalogue {
    /// Builds a catalogue. `only_looks` judges the words of commands that are [`Looks::Sometimes`].
    pub fn new(mut verbs: Vec<Verb>, only_looks: fn(&[String]) -> bool) -> Catalogue {
        verbs.sort_by(|one, other| one.words.cmp(&other.words));
        Catalogue { verbs, only_looks }
    }

    /// Whether a command with these words is read-only.
    pub fn only_looks(&self, verb: &Verb, words: &[String]) -> bool {
        match verb.looks {
            Looks::Always => true,
            Looks::Sometimes => (self.only_looks)(words),
            Looks::Never => false,
        }
    }

    /// Finds the command of a path.
    pub fn get<'a>(&self, words: impl Iterator<Item = &'a str> + Clone) -> Option<&Verb> {
        self.verbs.iter().find(|verb| words.clone().eq(verb.words.iter().map(String::as_str)))
    }

    /// All commands.
    pub fn verbs(&self) -> &[Verb] {
        &self.verbs
    }
}

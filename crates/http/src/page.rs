//! The page's files, as they are in `page/`: no build step, nothing from elsewhere.

/// A file of the page.
pub struct File {
    path: &'static str,
    /// For the header.
    pub content_type: &'static str,
    /// Its bytes.
    pub content: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! files {
    ($(($path:literal, $type:expr, $file:literal)),* $(,)?) => {
        [$(File { path: $path, content_type: $type, content: include_bytes!(concat!("page/", $file)) }),*]
    };
}

static FILES: [File; 3] = files![
    ("/", HTML, "index.html"),
    ("/page/style.css", STYLE, "style.css"),
    ("/page/app.js", SCRIPT, "app.js"),
];

/// The file at a path.
pub fn file(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

//! The columns of a scan.

use std::fmt;
use std::str::FromStr;

use super::ScanNeeds;

macro_rules! columns {
    ($($name:ident $text:literal $what:literal,)*) => {
        /// A column.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Column {
            $(#[doc = $what] $name,)*
        }

        impl Column {
            /// All columns in their usual order.
            pub const ALL: &[Column] = &[$(Column::$name,)*];

            /// The name on the command line and in headers.
            pub fn name(self) -> &'static str {
                match self { $(Column::$name => $text,)* }
            }

            /// Its meaning.
            pub fn describe(self) -> &'static str {
                match self { $(Column::$name => $what,)* }
            }
        }
    };
}

columns! {
    Dataset "dataset" "Name of the dataset.",
    Snapshot "snapshot" "Name of the snapshot, empty for a live dataset.",
    Path "path" "Path from the dataset's root, which is `.`.",
    Type "type" "f file, d folder, l symbolic link, p fifo, s socket, b and c devices.",
    Mode "mode" "Permissions, octal.",
    Uid "uid" "Owner's number.",
    Gid "gid" "Group's number.",
    Size "size" "Bytes of content; of a folder, its entries and two.",
    Allocated "allocated" "Bytes allocated on disk, including parity and copies.",
    Nlink "nlink" "Number of names of the file.",
    Atime "atime" "Last read, seconds since 1970 and nanoseconds.",
    Mtime "mtime" "Content last changed.",
    Ctime "ctime" "Attributes last changed.",
    Btime "btime" "Created.",
    Rdev "rdev" "A device's major and minor number.",
    Target "target" "Target of a symbolic link.",
    Xattrs "xattrs" "Extended attributes: name=length:sha256.",
    Flags "flags" "Immutable 0x10, append-only 0x20, nodump 0x40.",
    Projid "projid" "Project number.",
    Ino "ino" "Object number.",
    BirthTxg "birth_txg" "Transaction group in which the block with the file's dnode was last written.",
    CreatedTxg "created_txg" "Transaction group in which the file was created.",
    Class "class" "Class of the vdev that holds that block: normal, special, dedup.",
    Sha256 "sha256" "Hash of the content.",
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Column, String> {
        Column::ALL.iter().copied().find(|column| column.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Column::ALL.iter().map(|column| column.name()).collect();
            format!("no column '{text}'; use {}", names.join(", "))
        })
    }
}

/// Columns in the order requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(pub Vec<Column>);

impl Default for Columns {
    fn default() -> Columns {
        use Column::*;
        Columns(vec![Dataset, Snapshot, Path, Type, Size, Mtime])
    }
}

impl Columns {
    /// The data that must be read for them.
    pub fn needs(&self) -> ScanNeeds {
        ScanNeeds {
            targets: self.0.contains(&Column::Target),
            xattrs: self.0.contains(&Column::Xattrs),
            hashes: self.0.contains(&Column::Sha256),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_a_wrong_one_gets_the_list() {
        for column in Column::ALL {
            assert_eq!(column.name().parse::<Column>(), Ok(*column));
        }
        assert!("colour".parse::<Column>().unwrap_err().contains("birth_txg"));
    }

    #[test]
    fn only_columns_that_need_reading_are_read() {
        assert!(!Columns::default().needs().any());
        assert!(Columns(vec![Column::Sha256]).needs().hashes);
    }
}

//! RAID-Z parity and reconstruction.

# Stands in for the module of this name on CPAN, which Debian does not have: reopens a log file.
package Mojo::Log::Role::Clearable;
use Role::Tiny;
sub clear_handle { delete $_[0]{handle} }
1;

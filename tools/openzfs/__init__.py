"""Facts of OpenZFS's sources and of Cenote's, as tables that can be compared."""

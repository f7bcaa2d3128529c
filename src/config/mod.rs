//! The configuration file: schema, units, validation.

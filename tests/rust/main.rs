//! Tests of the engine through its public interface; one binary, so that it links once.
mod producers;

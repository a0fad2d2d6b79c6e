"""The Processor API: records, processors, contexts, punctuation."""

from kstreams_repl.engine.processor.processors import (
    Cancellable,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyProcessorSupplier,
    ProcessingContext,
    Processor,
    ProcessorContext,
    ProcessorSupplier,
)
from kstreams_repl.engine.processor.punctuation import PunctuationType
from kstreams_repl.engine.processor.record import FixedKeyRecord, Record

__all__ = [
    "Cancellable",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyProcessorSupplier",
    "FixedKeyRecord",
    "ProcessingContext",
    "Processor",
    "ProcessorContext",
    "ProcessorSupplier",
    "PunctuationType",
    "Record",
]

"""Values to bytes and back: extension -> (encode, decode), in one table."""

from .table import CODECS, Codec, decoders, encode, encoders, more_decoders, trusting

__all__ = ["CODECS", "Codec", "decoders", "encode", "encoders", "more_decoders", "trusting"]

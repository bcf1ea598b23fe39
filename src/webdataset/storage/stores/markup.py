"""XML responses of stores, parsed without entities."""

from __future__ import annotations

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat


def parsed(body: bytes) -> Element:
    """The root element, names without their namespaces; ValueError for anything that is not plain XML.

    A document type is refused, because only there can entities be declared that grow without end or name files.

    >>> parsed(b'<a xmlns="urn:x"><b>1</b></a>').findtext("b")
    '1'
    """
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = lambda name, attributes: builder.start(name.rpartition("}")[2], attributes)
    parser.EndElementHandler = lambda name: builder.end(name.rpartition("}")[2])
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(body, True)
    except expat.ExpatError as exn:
        raise ValueError(f"not XML: {exn}") from None
    return builder.close()


def text_of(element: Element, path: str) -> str:
    """The text at this path, or nothing.

    >>> text_of(parsed(b"<a><b>x</b></a>"), "b"), text_of(parsed(b"<a/>"), "b")
    ('x', '')
    """
    return element.findtext(path) or ""


def _refuse(*_: object) -> None:
    raise ValueError("a document type is not accepted")

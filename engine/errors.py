"""The engine's errors.

EngineError
├── ProviderError     a model server failed or answered nonsense
├── ParseError        text that should have been data is not
├── ToolError         tools that cannot be offered as they are: a bad definition, a name taken twice
└── OutboundError     the outbound guard refused or lost a request; `code` is one of `engine.net.Code`

A tool that fails while it runs raises none of these out of the loop: its failure becomes text that the model reads.
"""


class EngineError(Exception):
    """Base of all errors that the engine raises on purpose."""


class ProviderError(EngineError):
    """A model server failed, or its answer could not be used."""


class ParseError(EngineError):
    """Text that should have been data is not."""


class ToolError(EngineError):
    """A tool cannot be offered as it is."""


class OutboundError(EngineError):
    """A request was not sent, or was cut. `code` says why; the text never names an address or what answered."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

"""Refusals of a request, or of a part of it: a code of Kafka's and a sentence, which many
answers have side by side."""

from typing import Any

from kafkalite.errors import KafkaliteError


class RefusedError(KafkaliteError):
    """A refusal; `code` is Kafka's. The sentence may be empty."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code

    def fill(self, result: Any) -> None:
        """Has a part of an answer tell it: null stands for no sentence."""
        result.error_code = self.code
        result.error_message = str(self) or None

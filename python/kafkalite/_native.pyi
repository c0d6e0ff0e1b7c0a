"""What the compiled half offers, and what it means. `rust/src/lib.rs` is the same list.

Every function may raise a class of `kafkalite.errors`. Work and waiting happen without the GIL.
"""

from typing import Final

__version__: Final[str]

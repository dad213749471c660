"""An environment that notes when it is at work."""

from collections.abc import Callable
from typing import Any

import gymnasium


def noted(
    build: Callable[[], gymnasium.Env[Any, Any]], note: Callable[[bool], None]
) -> gymnasium.Env[Any, Any]:
    """Builds an environment; `note` takes whether it is at work, from now on."""
    note(True)
    try:
        return Noted(build(), note)
    finally:
        note(False)


class Noted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Notes that the environment is at work while it resets, steps or closes."""

    def __init__(self, environment: gymnasium.Env[Any, Any], note: Callable[[bool], None]) -> None:
        """See `noted`."""
        super().__init__(environment)
        self._note = note

    def reset(self, **keywords: Any) -> Any:
        """As the environment does."""
        return self._noted(self.env.reset, **keywords)

    def step(self, action: Any) -> Any:
        """As the environment does."""
        return self._noted(self.env.step, action)

    def close(self) -> None:
        """As the environment does."""
        self._noted(self.env.close)

    def _noted(self, work: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        self._note(True)
        try:
            return work(*arguments, **keywords)
        finally:
            self._note(False)

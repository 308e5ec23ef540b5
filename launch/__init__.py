"""Programs that come with the package and run on every rank of a job."""

from __future__ import annotations

__all__: list[str] = []

"""The metrics of a training: rows that become a DataFrame, a CSV file or a Parquet file."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from myriad.errors import NotInstalledError
from myriad.files import replacing

Row = Mapping[str, Any]


class History(Sequence[Row]):
    """The rows of a training in order, each a mapping from column to number.

    A row may lack a column. Its cell is then empty in every file.
    """

    def __init__(self, rows: Sequence[Row]):
        self._rows = [dict(row) for row in rows]

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"History({len(self)} rows of {', '.join(self.columns)})"

    @property
    def columns(self) -> list[str]:
        """Every column, in the order of first appearance."""
        return list(dict.fromkeys(name for row in self._rows for name in row))

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self._rows, columns=pd.Index(self.columns))

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file.

        Raises:
            InvalidArgumentError: the file can't be written. An older one stays as it was.
        """
        with (
            replacing(Path(path)) as new,
            new.open("w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(self._rows)

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file.

        Raises:
            InvalidArgumentError: the file can't be written. An older one stays as it was.
            NotInstalledError: pyarrow is not installed.
        """
        try:
            with replacing(Path(path)) as new, new.open("wb") as file:
                self.to_pandas().to_parquet(file, engine="pyarrow")
        except ImportError as error:
            raise NotInstalledError("Parquet needs pyarrow: pip install pyarrow") from error

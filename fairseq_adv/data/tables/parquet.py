"""Reads the rows of a parquet file in small batches, so that a small file can't take much memory.

Repeated values are stored once in a parquet file: half a megabyte can stand for gigabytes of text. So columns
of texts stay in that form until their size is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import check_unpacked, max_line, some_rows, too_long

_ROWS = 64  # read together
_BATCH = 256 << 20  # bytes that they may take
_LARGEST_GROUP = 1 << 30
_TEXTS = {f"{size}{kind}" for size in ("", "large_") for kind in ("string", "binary")}
_VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}
_CODED = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}


def parquet_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file: row n", the row's cells by column name), without columns of lists and other nested values.

    Decimals are texts. ``columns``: that will be read, and so must not be of a type that is left out.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(f"{path}: parquet needs pyarrow: pip install pyarrow") from error
    try:
        yield from some_rows(_placed(path, columns), path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a parquet file ({error}). Download it again.") from error


def _placed(path: Path, wanted: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    from pyarrow import parquet

    chunks = _chunks(path, parquet.read_metadata(path))
    column_types = _kinds(path, parquet.read_schema(path), wanted)
    texts = [name for name, dtype in column_types.items() if dtype in _TEXTS or dtype in _VIEWS]
    # In this encoding a value may be the one before it with a different end, and pyarrow unpacks every one.
    shared = {chunk.path_in_schema for chunk in chunks if "DELTA_BYTE_ARRAY" in chunk.encodings}
    sizes = [chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in shared]
    coded = {chunk.path_in_schema for chunk in chunks if not _CODED.isdisjoint(chunk.encodings)} - shared
    file = parquet.ParquetFile(
        path, read_dictionary=sorted(coded.intersection(texts)), buffer_size=1 << 20, pre_buffer=False
    )
    rows = min(_ROWS, max(1, _BATCH // max([1, *sizes])))
    number, size, packed = 0, 0, path.stat().st_size
    for batch in file.iter_batches(batch_size=rows, columns=list(column_types)):
        values = {}
        for name, column in zip(batch.schema.names, batch.columns):
            if column_types[name] == "decimal" or str(column.type) in _VIEWS:
                column = column.cast(_VIEWS.get(str(column.type), "string"))
            if name in texts:
                size += _size_of(column, f"{path}: row", number, name)
                check_unpacked(path, size, packed)
            try:
                values[name] = column.to_pylist()
            except (ValueError, OverflowError) as error:  # times, mostly
                told = f"{path}: column {name!r:.40} can't be read ({error}). Write it as text."
                raise DataError(told) from error
        for row in range(batch.num_rows):
            number += 1
            yield f"{path}: row {number}", {name: cells[row] for name, cells in values.items()}


def _kinds(path: Path, schema: Any, wanted: Sequence[str]) -> dict[str, str]:
    """The names of the columns that are read, with their types."""
    from pyarrow import types

    twice = next((name for name, count in Counter(schema.names).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{path}: two columns are named {twice!r:.40}. Rename one.")
    column_types = {}
    for field in schema:
        column_type = field.type.value_type if types.is_dictionary(field.type) else field.type
        if types.is_temporal(column_type) and field.name not in wanted:
            continue  # some have no value in Python
        if types.is_decimal(column_type):
            column_types[field.name] = "decimal"
        elif (
            str(column_type) in _TEXTS
            or str(column_type) in _VIEWS
            or types.is_primitive(column_type)
            or types.is_null(column_type)
        ):
            column_types[field.name] = str(column_type)
        elif field.name in wanted:
            raise DataError(
                f"{path}: column {field.name!r} has the type {column_type!s:.60}, which is not read. Write "
                "it as text or as numbers."
            )
    return column_types


def _chunks(path: Path, about: Any) -> list[Any]:
    """What the file says about each column of each row group."""
    all_chunks = []
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        chunks = [group.column(k) for k in range(group.num_columns)]
        sizes = [chunk.total_uncompressed_size for chunk in chunks]
        size = max([group.total_byte_size, sum(sizes), *sizes])
        if size > _LARGEST_GROUP:
            raise DataError(
                f"{path}: row group {number} has {size >> 20} MiB, more than {_LARGEST_GROUP >> 20}. Write "
                "the file in smaller groups, such as with row_group_size=10000 in pandas or pyarrow."
            )
        for chunk in chunks:
            if chunk.total_uncompressed_size > max_line() * max(1, chunk.num_values):
                raise too_long(f"{path}: row group {number}", f"a cell of column {chunk.path_in_schema!r}")
        all_chunks += chunks
    return all_chunks


def _size_of(column: Any, where: str, before: int, name: str) -> int:
    """The number of bytes in a batch's texts, none of which is above the limit."""
    from pyarrow import compute

    if hasattr(column, "dictionary"):
        lengths = compute.binary_length(column.dictionary).take(column.indices)
    else:
        lengths = compute.binary_length(column)
    if (compute.max(lengths).as_py() or 0) > max_line():
        row = next(k for k, length in enumerate(lengths.to_pylist(), 1) if (length or 0) > max_line())
        raise too_long(f"{where} {before + row}", f"column {name!r}")
    return int(compute.sum(lengths).as_py() or 0) + 8 * len(column)

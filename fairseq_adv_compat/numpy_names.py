"""Names that numpy removed (1.24 and 2.0) but four modules of fairseq 0.12.2 still use.

``np.compat.long`` in ``token_block_dataset`` (every masked_lm and language_modeling run) and
``language_pair_dataset``, ``np.int`` in ``data_utils``, ``np.float`` in ``dynamic_crf_layer``.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

from .module_view import ModuleView


def apply(module: ModuleType) -> None:
    """Gives ``module`` a view of numpy that has the names again; other modules are not affected."""
    module.np = ModuleView(  # type: ignore[attr-defined]
        module.np, int=int, float=float, compat=SimpleNamespace(long=int)
    )

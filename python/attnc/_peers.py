# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks of a process group of PyTorch: what they send each other, and that all of them mean the same call.

Before tensors are sent each rank writes what it is about to do into the store of the group, or what is wrong, and reads
what the others wrote. A rank that does not come, or comes with something else, is then an error on all ranks, by name,
and nothing waits for it.
"""

from __future__ import annotations

import json
import weakref
from datetime import timedelta
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from ._errors import Error, call_error


class Message(NamedTuple):
    rank: int  # of the group
    tensor: torch.Tensor


class Peers:
    """The ranks of a group, as one of them sees them."""

    def __init__(self, group: Any) -> None:
        self.ranks = dist.get_process_group_ranks(group)  # in the world
        self.rank = dist.get_rank(group)
        store = dist.distributed_c10d._get_default_store()
        self.store = dist.PrefixStore(f"attnc/{group.group_name}", store)
        self._group = weakref.ref(group)
        self._calls = 0
        self._tag = 0
        self._agreed: set = set()

    @property
    def size(self) -> int:
        return len(self.ranks)

    def agree(self, signature: Any, problem: Optional[BaseException], timeout: float, device: torch.device) -> None:
        """Raises on all ranks unless all of them come with this signature and no problem. On a GPU a signature that was
        agreed on is not asked for again: the host would wait."""
        mine = json.dumps({"signature": signature, "problem": None if problem is None else str(problem)})
        on_gpu = device.type == "cuda"
        if on_gpu and problem is None and mine in self._agreed:
            return
        call = self._calls
        self._calls += 1
        try:
            self.store.set(f"{call}/{self.rank}", mine)
        except RuntimeError as error:
            raise self._error(f"the store of the group failed: {error}") from error
        if problem is not None:
            raise problem
        others = self._read(call, timeout)
        for rank, text in enumerate(others):
            other = json.loads(text)
            if other["problem"] is not None:
                raise self._error(f"rank {rank} failed: {other['problem']}")
        different = [rank for rank, text in enumerate(others) if text != mine]
        if different:
            listed = "; ".join(f"rank {r}: {json.loads(text)['signature']}" for r, text in enumerate(others))
            raise self._error(f"expected the same call on all ranks, got {listed}")
        if on_gpu:
            if not self._agreed:  # NCCL connects all ranks, some of which may have nothing to send each other
                self.add_up(torch.zeros(1, device=device))
            if len(self._agreed) >= 4096:
                self._agreed.clear()
            self._agreed.add(mine)
        if call >= 2:  # all ranks came to the call before this one, and had read the one before that
            self.store.delete_key(f"{call - 2}/{self.rank}")

    def _read(self, call: int, timeout: float) -> List[str]:
        keys = [f"{call}/{rank}" for rank in range(self.size)]
        try:
            self.store.wait(keys, timedelta(seconds=timeout))
            return [self.store.get(key).decode() for key in keys]
        except RuntimeError as error:
            raise self._error(self._why(keys, timeout, error)) from error

    def _why(self, keys: Sequence[str], timeout: float, error: RuntimeError) -> str:
        try:
            missing = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
        except RuntimeError:  # the process that has the store is gone
            missing = []
        if not missing:
            return f"the store of the group failed: {error}"
        return f"within {timeout:g} s no call came from rank {', '.join(map(str, missing))}"

    def _error(self, what: str) -> Error:
        return call_error(f"on rank {self.rank} of {self.size}: {what}")

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> List[Tuple[Any, str]]:
        """Begins to send and to receive; what finish() takes. Tensors are dense. Every rank calls it as often."""
        group = self._group()
        tag = self._tag
        self._tag = (self._tag + 8) % 2**20
        operations, names = [], []
        for kind, messages in ((dist.isend, sends), (dist.irecv, receives)):
            counts = [0] * self.size
            for message in messages:
                if message.tensor.numel() == 0:
                    continue
                operations.append(
                    dist.P2POp(kind, message.tensor, self.ranks[message.rank], group, tag + counts[message.rank])
                )
                counts[message.rank] += 1
                verb = "sending" if kind is dist.isend else "waiting for"
                names.append(f"{verb} {tuple(message.tensor.shape)} of rank {message.rank}")
        if not operations:
            return []
        try:
            works = dist.batch_isend_irecv(operations)
        except RuntimeError as error:
            raise self._error(f"{', '.join(names)}: {error}") from error
        # NCCL gives one for all.
        return list(zip(works, names if len(works) == len(names) else [", ".join(names)] * len(works)))

    def finish(self, pending: Sequence[Tuple[Any, str]]) -> None:
        for work, name in pending:
            try:
                work.wait()
            except RuntimeError as error:
                raise self._error(f"{name}: {error}") from error

    def add_up(self, tensor: torch.Tensor) -> torch.Tensor:
        """In place, over all ranks."""
        try:
            dist.all_reduce(tensor, group=self._group())
        except RuntimeError as error:
            raise self._error(f"adding up gradients of shape {tuple(tensor.shape)}: {error}") from error
        return tensor


_known: weakref.WeakKeyDictionary[Any, Peers] = weakref.WeakKeyDictionary()


def peers_of(group: Any) -> Peers:
    """Of a process group, or of the default one where None."""
    if not dist.is_available() or not dist.is_initialized():
        raise call_error("expected torch.distributed to be initialised: call torch.distributed.init_process_group()")
    if group is None:
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        raise call_error(f"expected group to be a process group of PyTorch that this rank is in, got {group!r}")
    if group not in _known:
        _known[group] = Peers(group)
    return _known[group]

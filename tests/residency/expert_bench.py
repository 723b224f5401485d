"""Banks of experts on disk, and caches over them whose reader is scripted."""

import os

import numpy as np
from trunk_fakes import ScriptedReader

from uringinfer.container.checksum import crc32
from uringinfer.container.manifest import Bank, TensorPart
from uringinfer.kernels.float_formats import F32
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.policies import make_policy
from uringinfer.residency.records import ExpertRecords
from uringinfer.storage.direct import Direct, StorageFile

LAYERS, EXPERTS, RECORD = 3, 12, 4096
PARTS = (
    TensorPart("gate", F32, (8, 16), 0, 8, 0, 512),
    TensorPart("up", F32, (8, 16), 0, 8, 512, 512),
    TensorPart("down", F32, (16, 8), 0, 16, 1024, 512),
    TensorPart("down_bias", F32, (16,), 0, 16, 1536, 64),
)


class Bench:
    """Banks on disk with random records, a scripted reader, and caches over both."""

    def __init__(self, directory, parts=PARTS):
        rng = np.random.default_rng(11)
        self.contents, banks, files = {}, [], {}
        for layer in range(LAYERS):
            records = rng.standard_normal((EXPERTS, RECORD // 4), np.float32)
            path = directory / f"experts-L{layer}.bin"
            path.write_bytes(records.tobytes())
            self.contents[layer] = records
            checksums = tuple(crc32(record.view(np.uint8), 0) for record in records)
            banks.append(Bank(layer, path.name, EXPERTS, RECORD, parts, checksums))
            direct = Direct(False, "a test's file", 1, 1)
            files[layer] = [StorageFile(path, os.open(path, os.O_RDONLY), path.stat().st_size, direct)]
        self.paths = {layer: file.path for layer, (file,) in files.items()}
        self.records = ExpertRecords(banks, files, lambda bank, expert: (0, expert * bank.record_bytes))
        self.reader = ScriptedReader()

    def cache(self, slots, policy="lfru", **options):
        memory = [np.zeros(RECORD, np.uint8) for _ in range(slots)]
        return ExpertCache(
            self.records, self.reader, memory, make_policy(policy, range(LAYERS), EXPERTS), **options
        )

    def is_right(self, layer, expert, weights):
        """Whether these are the weights of this expert."""
        content = self.contents[layer][expert]
        return (
            np.array_equal(weights.matrices["gate"].data.view(np.float32), content[:128])
            and np.array_equal(weights.matrices["up"].data.view(np.float32), content[128:256])
            and np.array_equal(weights.matrices["down"].data.view(np.float32), content[256:384])
            and all(np.array_equal(bias, content[384:400]) for bias in weights.biases.values())
        )

    def use(self, cache, layer, *experts):
        """Demands `experts` for one token; the order in which they came, each checked."""
        return self.use_chunk(cache, layer, [experts])

    def use_chunk(self, cache, layer, routed):
        order = []
        with cache.demand(layer, np.array(routed)) as arriving:
            for batch in arriving:
                assert all(self.is_right(layer, expert, weights) for expert, weights in batch)
                order += [expert for expert, _ in batch]
        return order

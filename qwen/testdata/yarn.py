"""Writes yarn-PAIR.safetensors: logits of the tiny targets under YaRN, computed by mlx-lm in float32 on the CPU.

    python yarn.py ../../testdata OUT
"""
import json
import pathlib
import shutil
import sys
import tempfile

import mlx.core as mx
import mlx_lm
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)
testdata, out = map(pathlib.Path, sys.argv[1:])
for pair, original, factor in [("tiny-qwen3", 32, 4.0), ("tiny-qwen3.5", 32, 4.0)]:
    with tempfile.TemporaryDirectory() as tmp:
        dir = pathlib.Path(tmp) / "model"
        shutil.copytree(testdata / pair / "target", dir)
        config = json.loads((dir / "config.json").read_text())
        rope = config.get("text_config", config)["rope_parameters"]
        rope.update(type="yarn", rope_type="yarn", factor=factor, original_max_position_embeddings=original)
        (dir / "config.json").write_text(json.dumps(config))
        weights = dir / "model.safetensors"  # float32 first: loading adds one to norms
        tensors = {k: v.astype(mx.float32) for k, v in mx.load(str(weights)).items()}
        mx.eval(tensors)
        mx.save_safetensors(str(weights), tensors, {"format": "pt"})
        model, _ = load_model(dir)
        ids = mx.array([(i * 37 + 11) % 4000 for i in range(100)])
        logits = model(ids[None])[0]
        rows = [0, 31, 64, 99]
        mx.save_safetensors(str(out / f"yarn-{pair}.safetensors"),
                            {"ids": ids.astype(mx.int32), "rows": mx.array(rows, mx.int32), "logits": logits[mx.array(rows)]},
                            {"source": "mlx-lm " + mlx_lm.__version__, "original": str(original), "factor": str(factor)})
        print(pair, logits.shape, logits[-1, :4])

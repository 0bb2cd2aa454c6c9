"""Plain decoding by mlx-lm, for comparison: reads one JSON object a line, writes one a line.

First {"dir": folder} or {"config": config.json's content, "bits": 0 or 4 or 8}, and "float32": true for
float32 weights; a model without a folder gets random weights. The answer has "versions".
Then requests {"ids": [...], "max_tokens": n, "eos": [...]}, answered by {"ids", "prefill_ms", "decode_ms",
"peak_bytes"}, or by {"error"}.
"""

import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step


def drop_absent_scale():
    """mlx-lm 0.32.2 names an argument, None but for one scheme, that MLX 0.32.2's gather_qmm does not have."""
    original = mx.gather_qmm

    def gather_qmm(*args, **kwargs):
        if kwargs.get("global_scale", 0) is None:
            del kwargs["global_scale"]
        return original(*args, **kwargs)

    mx.gather_qmm = gather_qmm


def versions():
    out = []
    for name in ("mlx-lm", "mlx"):
        try:
            out.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            out.append(f"{name} of unknown version")
    return ", ".join(out)


def build(config, bits):
    """A model of that shape. Weights are made layer by layer, so that little more is held than what stays."""
    from mlx_lm.utils import _get_classes

    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(config))

    def shrink(module):
        module.set_dtype(mx.bfloat16)
        if bits:
            nn.quantize(module, group_size=64, bits=bits)
        mx.eval(module.parameters())
        mx.clear_cache()

    for layer in model.layers:
        shrink(layer)
    if bits:
        # What is left are the embedding, the head and the norms.
        nn.quantize(model, group_size=64, bits=bits)
    mx.eval(model.parameters())
    mx.clear_cache()
    model.eval()
    return model


def load(request):
    if "dir" in request:
        from pathlib import Path

        from mlx_lm.utils import load_model

        model, _ = load_model(Path(request["dir"]))
    else:
        model = build(request["config"], request.get("bits", 0))
    if request.get("float32"):
        model.set_dtype(mx.float32)
        mx.eval(model.parameters())
    return model


def generate(model, request):
    eos = set(request.get("eos") or [])
    mx.reset_peak_memory()
    ids, begin, first, last = [], time.perf_counter(), None, None
    for token, _ in generate_step(mx.array(request["ids"]), model, max_tokens=request["max_tokens"]):
        last = time.perf_counter()
        first = first or last
        ids.append(int(token))
        if ids[-1] in eos:
            break
    return {
        "ids": ids,
        "prefill_ms": (first - begin) * 1e3,
        "decode_ms": (last - first) * 1e3,
        "peak_bytes": mx.get_peak_memory(),
    }


def main():
    drop_absent_scale()
    model = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if model is None:
                model = load(request)
                answer = {"versions": versions()}
            else:
                answer = generate(model, request)
        except Exception as e:  # told to the caller, who decides
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)


main()

"""Writes yarn.json: wavelengths and attention factor of Hugging Face transformers' own function.

Needs transformers and numpy. The function works on torch tensors, of which it uses arange, clamp and arithmetic: where
torch is not installed, NumPy's float32 arrays stand in for them.

    python generate.py > yarn.json
"""
import ast
import inspect
import json
import math
import types

import numpy as np
import transformers
from transformers import modeling_rope_utils as hf

F32 = np.float32


class Tensor:
    def __init__(self, a):
        self.a = np.asarray(a, F32)

    def to(self, *args, **kw):
        return self

    def float(self):
        return self

    def __add__(self, o):
        return Tensor(self.a + raw(o))

    def __sub__(self, o):
        return Tensor(self.a - raw(o))

    def __rsub__(self, o):
        return Tensor(raw(o) - self.a)

    def __mul__(self, o):
        return Tensor(self.a * raw(o))

    __rmul__ = __mul__

    def __truediv__(self, o):
        return Tensor(self.a / raw(o))

    def __rtruediv__(self, o):
        return Tensor(raw(o) / self.a)

    def __rpow__(self, o):
        return Tensor(np.power(raw(o), self.a))


def raw(x):
    return x.a if isinstance(x, Tensor) else F32(x)


torch = types.SimpleNamespace(
    arange=lambda *a, **kw: Tensor(np.arange(*a)),
    clamp=lambda t, low, high: Tensor(np.clip(t.a, low, high)),
    float32=None, float=None, int64=None,
)

source = inspect.getsource(hf._compute_yarn_parameters)
tree = ast.parse(source)
for a in tree.body[0].args.args:
    a.annotation = None
tree.body[0].returns = None
tree.body[0].decorator_list = []
scope = {"torch": torch, "math": math}
exec(compile(tree, "yarn", "exec"), scope)


class Config:
    hidden_size, num_attention_heads, max_position_embeddings = 4096, 32, 40960

    def __init__(self, head_dim, parameters):
        self.head_dim, self.rope_parameters = head_dim, parameters

    def standardize_rope_params(self):
        pass


def case(head_dim, theta, **parameters):
    full = {"rope_type": "yarn", **parameters}
    inv, attention = scope["_compute_yarn_parameters"](Config(head_dim, {**full, "rope_theta": theta}))
    return {"dims": int(head_dim * parameters.get("partial_rotary_factor", 1)), "theta": theta, "parameters": full, "inv_freq": [float(x) for x in inv.a], "attention": attention}


cases = [
    case(128, 1e6, factor=4.0, original_max_position_embeddings=32768),
    case(128, 1e6, factor=2.0, original_max_position_embeddings=32768),
    case(128, 1e6, factor=1.0, original_max_position_embeddings=40960),
    case(64, 1e4, factor=4.0, original_max_position_embeddings=64),
    case(64, 1e4, factor=40.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=0.8),
    case(64, 1e4, factor=40.0, original_max_position_embeddings=4096, mscale=0.7, mscale_all_dim=0.0),
    case(128, 1e6, factor=4.0, original_max_position_embeddings=32768, beta_fast=16, beta_slow=2, attention_factor=1.25),
    case(128, 5e5, factor=3.5, original_max_position_embeddings=8192, truncate=False),
    case(256, 1e7, factor=4.0, original_max_position_embeddings=262144, partial_rotary_factor=0.25),
    case(16, 1e4, factor=8.0, original_max_position_embeddings=4),
]
print(json.dumps({"source": "transformers " + transformers.__version__, "cases": cases}, indent=1))

"""Writes goldens.json: operations on small arrays with the results that MLX's own Python package gives.

    python -m venv v && v/bin/pip install "mlx[cpu]==0.32.2"
    v/bin/python generate.py

golden_test.go calls the method of mlx.Scope that a case names with the case's arguments and compares.
The file holds {"arrays": [...], "cases": [...]}. An array is [dtype, shape, base64 of its bytes] or
[index of a base array, view]. A case is [method, [arguments], [indices of results]] or, where MLX
refuses, [method, [arguments], "error"]. Arguments: {"a": index} an array, {"d": name} a type, null the
zero Array, "inf", "-inf" and "nan" numbers, objects structs by field name, the rest plain JSON.
"""

import base64
import itertools
import json
import math
import os

import mlx.core as mx

mx.set_default_device(mx.cpu)
assert mx.__version__.startswith("0.32.2"), mx.__version__

INTS = "uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
FLOATS = "float16 float32 float64 bfloat16".split()
ALL = ["bool"] + INTS + FLOATS + ["complex64"]
arrays, index, cases = [], {}, []


def dtype(name):
    return mx.bool_ if name == "bool" else getattr(mx, name)


def name_of(dt):
    return str(dt).split(".")[-1].replace("bool_", "bool")


def register(entry):
    key = json.dumps(entry)
    if key not in index:
        index[key] = len(arrays)
        arrays.append(entry)
    return index[key]


class A:
    """An argument that is an array."""

    def __init__(self, value, entry=None):
        self.value = value
        if entry is None:
            entry = [name_of(value.dtype), list(value.shape), raw(value)]
        self.index = register(entry)

    def view(self, how):
        v = {"T": lambda x: x.T, "step": lambda x: x[::2], "back": lambda x: x[::-1], "hole": lambda x: x[:, 2:, :].transpose(0, 2, 1), "stretch": lambda x: mx.broadcast_to(x, (3, 1)), "wide": lambda x: mx.broadcast_to(x[None], (2,) + x.shape)}[how]
        return A(v(self.value), [self.index, how])


def raw(x):
    x = mx.contiguous(x)
    mx.eval(x)
    if x.size == 0:
        return ""
    x = x.flatten()  # twice, as view misreads one element whose stride is 0
    b = mx.concatenate([x, x]).view(mx.uint8)[: x.nbytes]
    mx.eval(b)
    return base64.b64encode(bytes(b.tolist())).decode()


class O(dict):
    """A struct."""


def plain(v):
    if isinstance(v, A):
        return v.value
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return v


def encode(v):
    if isinstance(v, A):
        return {"a": v.index}
    if isinstance(v, mx.Dtype):
        return {"d": name_of(v)}
    if isinstance(v, dict):
        return {k: encode(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [encode(x) for x in v]
    if isinstance(v, float) and not math.isfinite(v):
        return {math.inf: "inf", -math.inf: "-inf"}.get(v, "nan")
    return v


def case(method, f, *args):
    """f gets the arguments with arrays in place of A."""
    try:
        with mx.stream(mx.cpu):
            r = f(*[plain(a) for a in args])
            r = list(r) if isinstance(r, (tuple, list)) else [r]
            mx.eval(*r)
        out = [A(x).index for x in r]
    except TypeError:
        raise  # a mistake in this script
    except Exception:
        out = "error"
    c = [method, [encode(a) for a in args], out]
    cases.append(c)


def refused(method, *args):
    """What this package refuses: MLX would end the process, read other memory, or give nonsense."""
    cases.append([method, [encode(a) for a in args], "error"])


def values(dt, shape, salt=0):
    n = math.prod(shape)
    k = [(i * 7 + salt * 3 + 1) % 11 for i in range(n)]
    if dt == "bool":
        x = mx.array([v % 2 == 1 for v in k], dtype=mx.bool_)
    elif dt.startswith("uint"):
        x = mx.array(k, dtype=dtype(dt))
    elif dt.startswith("int"):
        x = mx.array([v - 5 for v in k], dtype=dtype(dt))
    elif dt == "complex64":
        x = mx.array([complex((v - 5) / 4, ((v * 3) % 7 - 3) / 4) for v in k], dtype=mx.complex64)
    else:
        x = mx.array([(v - 5) / 4 for v in k], dtype=dtype(dt))
    return A(x.reshape(shape))


def fill(dt, v, shape):
    return A(mx.full(shape, v, dtype=dtype(dt)))


def operands(dt, salt=0):
    """One array per kind of shape; the first for every type."""
    yield values(dt, (2, 3), salt)
    if dt not in ("float32", "int32", "bool"):
        return
    yield values(dt, (), salt)
    yield values(dt, (1,), salt)
    yield values(dt, (0,), salt)
    yield values(dt, (2, 0, 3), salt)
    yield values(dt, (4, 3), salt).view("T")
    yield values(dt, (5, 2), salt).view("step")
    yield values(dt, (3, 2), salt).view("back")
    yield values(dt, (3,), salt).view("wide")


def small(dt):
    return values(dt, (2, 3))


special = A(mx.array([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-30, 3e38, 0.5, 2.5, -2.5], dtype=mx.float32))

# Elementwise, one input.
UNARY = dict(
    Neg="negative", Abs="abs", Exp="exp", Log="log", Log1p="log1p", Sqrt="sqrt", Rsqrt="rsqrt", Square="square", Sin="sin", Cos="cos",
    Tanh="tanh", Erf="erf", Sigmoid="sigmoid", Arccos="arccos", Arcsin="arcsin", Arctan="arctan", Arccosh="arccosh", Arcsinh="arcsinh",
    Arctanh="arctanh", Tan="tan", Sinh="sinh", Cosh="cosh", Degrees="degrees", Radians="radians", Ceil="ceil", Floor="floor", Trunc="trunc",
    Sign="sign", Reciprocal="reciprocal", Expm1="expm1", Log2="log2", Log10="log10", ErfInv="erfinv", Conjugate="conjugate", Real="real",
    Imag="imag", BitNot="bitwise_invert", LogicalNot="logical_not", IsNaN="isnan", IsFinite="isfinite", IsInf="isinf", IsPosInf="isposinf",
    IsNegInf="isneginf", ZerosLike="zeros_like", OnesLike="ones_like", StopGradient="stop_gradient", AtLeast1D="atleast_1d",
    AtLeast2D="atleast_2d", AtLeast3D="atleast_3d", Transpose="transpose", NaNToNum="nan_to_num", Flatten="flatten",
)
for method, f in UNARY.items():
    f = getattr(mx, f)
    if method not in ("Transpose", "Flatten", "AtLeast1D", "AtLeast2D", "AtLeast3D"):
        case(method, f, special)
    for dt in ALL:
        if method == "Conjugate" and dt != "complex64":
            pass
        for x in operands(dt):
            case(method, f, x)
for dt in ALL:
    case("Copy", lambda x: mx.array(x), small(dt))
    case("Contiguous", mx.contiguous, values(dt, (3, 2)).view("T"))
    case("SiLU", lambda x: x * mx.sigmoid(x), small(dt))
    case("Softplus", lambda x: mx.logaddexp(x, mx.array(0, x.dtype)), small(dt))
    for dt2 in ALL:
        if dt != "complex64" or dt2 == "complex64":
            if not (dt.startswith("float") or dt == "bfloat16") or not dt2.startswith("uint"):  # negative to unsigned is not defined
                case("AsType", lambda x, d: x.astype(d), small(dt), dtype(dt2))
    for dec in (0, 1, -1):
        case("Round", mx.round, small(dt), dec)
case("NaNInfToNum", lambda x, n, p, m: mx.nan_to_num(x, n, p, m), special, 1.0, 2.0, -3.0)

# Elementwise, two inputs.
BINARY = dict(
    Add="add", Sub="subtract", Mul="multiply", Div="divide", Maximum="maximum", Minimum="minimum", LogAddExp="logaddexp", Equal="equal",
    NotEqual="not_equal", Less="less", LessEqual="less_equal", Greater="greater", GreaterEqual="greater_equal", LogicalAnd="logical_and",
    LogicalOr="logical_or", LogicalXor="logical_xor", Arctan2="arctan2", BitAnd="bitwise_and", BitOr="bitwise_or", BitXor="bitwise_xor",
)
BINARY_FUNCTIONS = {}
for method, f in BINARY.items():
    BINARY_FUNCTIONS[method] = (lambda a, b: mx.logical_or(a, b) & ~mx.logical_and(a, b)) if method == "LogicalXor" and not hasattr(mx, f) else getattr(mx, f)
for method, f in BINARY_FUNCTIONS.items():
    for dt in ALL:
        for x, y in zip(operands(dt), operands(dt, 2)):
            case(method, f, x, y)
        case(method, f, values(dt, (2, 1)), values(dt, (3,), 1))
        case(method, f, values(dt, (2, 1, 2)), values(dt, (), 1))
        if dt not in ("float64", "complex64"):
            case(method, f, small(dt), values("float16", (3,), 1))
            case(method, f, small(dt), values("int32", (3,), 1))
    case(method, f, values("float32", (2, 3)), values("float32", (2,)))
    case(method, f, special, A(special.value[::-1]))
for dt in ALL:
    ones = fill(dt, 3, (2, 3))
    case("Power", mx.power, small(dt) if dt not in ("complex64",) else fill(dt, 2, (2, 3)), fill(dt, 2, ()))
    case("FloorDiv", mx.floor_divide, small(dt), ones)
    case("Remainder", mx.remainder, small(dt), ones)
    case("DivMod", lambda a, b: (mx.floor_divide(a, b), mx.remainder(a, b)), small(dt), ones)
    case("ShiftLeft", mx.left_shift, small(dt), fill(dt, 1, ()))
    case("ShiftRight", mx.right_shift, small(dt), fill(dt, 1, ()))
    case("Clip", mx.clip, small(dt), fill(dt, 1, ()), fill(dt, 2, ()))
    case("Clip", lambda a, lo, hi: mx.clip(a, None, hi), small(dt), None, fill(dt, 2, ()))
    case("Where", mx.where, values("bool", (2, 3)), small(dt), values(dt, (3,), 4))
    case("ArrayEqual", mx.array_equal, small(dt), small(dt))
    case("ArrayEqual", mx.array_equal, small(dt), values(dt, (2, 3), 1))
    if dt != "complex64":
        case("AllClose", lambda a, b, r, t, n: mx.allclose(a, b, r, t, equal_nan=n), small(dt), small(dt), 1e-5, 1e-8, False)
    case("IsClose", lambda a, b, r, t, n: mx.isclose(a, b, r, t, equal_nan=n), small(dt), values(dt, (2, 3), 1), 0.5, 0.5, False)
case("IsClose", lambda a, b, r, t, n: mx.isclose(a, b, r, t, equal_nan=n), special, special, 1e-5, 1e-8, True)

# Reductions.
REDUCE = dict(Sum="sum", Mean="mean", Max="max", Min="min", Prod="prod", All="all", Any="any", LogSumExp="logsumexp", Median="median", CountNonzero=None)


def count(x, axis=None, keepdims=False):
    return mx.sum(x != 0, axis=axis, keepdims=keepdims).astype(mx.int32)


def reduce_case(method, f, x, keep, *axes):
    axis = None if not axes else list(axes)
    case(method, lambda x, keep, *axes: f(x, axis=axis, keepdims=keep), x, keep, *axes)


for method, f in REDUCE.items():
    f = getattr(mx, f) if f else count
    for dt in ALL:
        if method == "Median" and dt == "bool":
            continue
        for x in operands(dt):
            if x.value.size == 0 and method in ("Max", "Min", "Median"):
                refused(method, x, False)
                continue
            reduce_case(method, f, x, False)
            if x.value.ndim == 2:
                for keep, axes in ((True, ()), (False, (0,)), (True, (-1,)), (False, (1, 0)), (False, (2,))):
                    reduce_case(method, f, x, keep, *axes)
    if method not in ("Max", "Min", "Median"):
        reduce_case(method, f, values("float32", (2, 0, 3)), False, 1)
    reduce_case(method, f, values("float32", (2, 3, 2, 3)), False, 1, -1)
hole = values("float32", (4, 2, 2)).view("hole")  # MLX itself hangs over this one
for method in ("Sum", "Any", "Var", "CountNonzero", "LogSumExp"):
    f = {"Var": mx.var, "CountNonzero": count}.get(method) or getattr(mx, method.lower())
    args = (False, 0, -1) if method == "Var" else (False, -1)
    case(method, lambda x, *a: f(mx.zeros((4, 2, 0)), axis=-1), hole, *args)
for method, f in (("Var", mx.var), ("Std", mx.std)):
    for dt in ALL:
        for ddof in (0, 1):
            case(method, lambda x, k, d: f(x, keepdims=k, ddof=d), small(dt), False, ddof)
            case(method, lambda x, k, d, a: f(x, axis=a, keepdims=k, ddof=d), small(dt), True, ddof, 0)
for dt in ALL:
    for x in operands(dt):
        if x.value.size == 0:
            continue
        for axis in ((-1, 0) if x.value.ndim > 1 else (0,)):
            case("Softmax", lambda x, p, a: mx.softmax(x, axis=a, precise=p), x, True, axis)
            if dt != "complex64":
                case("LogSoftmax", lambda x, a: x - mx.logsumexp(x, axis=a, keepdims=True), x, axis) if dt in FLOATS else refused("LogSoftmax", x, axis)
            for keep in (False, True):
                case("Argmax", lambda x, a, k: mx.argmax(x, axis=a, keepdims=k), x, axis, keep)
                case("Argmin", lambda x, a, k: mx.argmin(x, axis=a, keepdims=k), x, axis, keep)
            for method, f in (("CumSum", mx.cumsum), ("CumProd", mx.cumprod), ("CumMax", mx.cummax), ("CumMin", mx.cummin), ("LogCumSumExp", mx.logcumsumexp)):
                case(method, lambda x, a: f(x, axis=a), x, axis)
                case(method, lambda x, a, *fl: f(x, axis=a, reverse=True, inclusive=False), x, axis, 1, 2)
            case("Sort", lambda x, a: mx.sort(x, axis=a), x, axis)
            case("Argsort", lambda x, a: mx.argsort(x, axis=a), x, axis)
            case("Diff", lambda x, n, a: mx.diff(x, n=n, axis=a), x, 1, axis)
    line = values(dt, (7,))
    case("TopK", lambda x, k, a: mx.topk(x, k, axis=a), line, 7, 0)
    case("TopK", lambda x, k, a: mx.max(x, axis=a, keepdims=True), line, 1, 0)
    case("SearchSorted", lambda a, v, after: mx.searchsorted(a, v, side="right" if after else "left"), A(mx.sort(line.value)), small(dt), False)
    case("SearchSorted", lambda a, v, after: mx.searchsorted(a, v, side="right" if after else "left"), A(mx.sort(line.value)), small(dt), True)
for method in ("Sort", "Argsort", "CumSum", "CumProd", "CumMax", "CumMin", "LogCumSumExp"):
    refused(method, values("float32", (0,)), 0)
    refused(method, values("float32", (2, 3)), 2)
case("Softmax", lambda x, p: mx.softmax(x, precise=p), small("float32"), False)
case("TopK", lambda x, k, a: mx.topk(x, k, axis=a), small("float32"), 4, 1)
case("Diff", lambda x, n, a: mx.diff(x, n=n, axis=a), small("float32"), 2, 1)
case("Diff", lambda x, n, a: mx.diff(x, n=3, axis=a), small("float32"), 2000000000, 1)
refused("Diff", small("float32"), -1, 1)
for dt in ALL:  # partitions are not unique; these are
    case("Partition", lambda x, k, a: mx.partition(x, k, axis=a), A(mx.array([2, 1], dtype=dtype(dt))), 0, 0)
    case("Argpartition", lambda x, k, a: mx.argpartition(x, k, axis=a), A(mx.array([1, 0], dtype=dtype(dt))), 1, 0)

# Creation.
for dt in ALL:
    d = dtype(dt)
    for shape in ((), (3,), (2, 0), (2, 2)):
        case("Zeros", lambda d, *s: mx.zeros(s, dtype=d), d, *shape)
        case("Ones", lambda d, *s: mx.ones(s, dtype=d), d, *shape)
        case("Full", lambda v, d, *s: mx.full(s, v).astype(d), 3.0, d, *shape)
    case("Scalar", lambda v, d: mx.array(v, dtype=d), 1.0, d)
    case("Eye", lambda n, m, k, d: mx.eye(n, m, k, dtype=d), 2, 3, 1, d)
    case("Tri", lambda n, m, k, d: mx.tri(n, m, k, dtype=d), 2, 3, -1, d)
    case("Identity", lambda n, d: mx.identity(n, dtype=d), 2, d)
    case("FullLike", lambda a, v, d: mx.full(a.shape, v).astype(d), small("int32"), fill("float32", 2, ()), d)
    if dt not in ("bool", "complex64"):
        case("Arange", lambda a, b, c, d: mx.arange(a, b, c, dtype=d), 1.0, 8.0, 3.0, d)
        case("Linspace", lambda a, b, n, d: mx.linspace(a, b, n, dtype=d), 0.0, 8.0, 5, d)
        case("LinspaceOpen", lambda a, b, n, d: mx.linspace(a, b, n + 1, dtype=d)[:-1], 0.0, 8.0, 4, d)
    for k in (-1, 0, 1, 9):
        case("Tril", mx.tril, small(dt), k)
        case("Triu", mx.triu, small(dt), k)
    for k in (-1, 0, 1):
        case("Diag", mx.diag, values(dt, (3,)), k)
        case("Diag", mx.diag, small(dt), k)
        case("Diagonal", lambda a, k, i, j: mx.diagonal(a, k, i, j), values(dt, (2, 3, 2)), k, 0, 2)
        case("Trace", lambda a, k, i, j, d: mx.trace(a, k, i, j, dtype=d).astype(d), values(dt, (2, 3, 2)), k, 1, 2, d)
for n in (0, 1):
    case("Linspace", lambda a, b, n, d: mx.linspace(a, b, n, dtype=d), 1.0, 2.0, n, mx.float32)
for k in (3, -3, 9, -9):
    case("Trace", lambda a, k, i, j, d: mx.zeros((2,), dtype=d), values("float32", (2, 3, 2)), k, 1, 2, mx.float32)
    case("Diagonal", lambda a, k, i, j: mx.zeros((3, 0)), values("float32", (2, 3, 2)), k, 0, 2)
refused("Trace", small("float32"), 0, 1, 1, mx.float32)
refused("Eye", -1, 3, 0, mx.float32)
refused("Linspace", 0.0, 1.0, -1, mx.float32)
for method, f in (("Bartlett", mx.bartlett), ("Blackman", mx.blackman), ("Hamming", mx.hamming), ("Hanning", mx.hanning)):
    for n in (1, 2, 7):
        case(method, f, n)
    refused(method, 0)
for sparse, matrix in itertools.product((False, True), repeat=2):
    case("Meshgrid", lambda m, s, a, b: mx.meshgrid(a, b, sparse=s, indexing="ij" if m else "xy"), matrix, sparse, values("int32", (2,)), values("int32", (3,)))
case("BroadcastArrays", lambda a, b: mx.broadcast_arrays(a, b), values("int32", (2, 1)), values("float32", (3,)))
case("BroadcastArrays", lambda a, b: mx.broadcast_arrays(a, b), values("int32", (2,)), values("float32", (3,)))

# Shapes.
cube = values("float32", (2, 3, 4))
for dt in ALL:
    x = values(dt, (2, 3, 4))
    case("Reshape", lambda a, *s: mx.reshape(a, s), x, 4, -1)
    case("Reshape", lambda a, *s: mx.reshape(a, s), values(dt, (2, 3)).view("T"), 6)
    case("Transpose", lambda a, *s: mx.transpose(a, s), x, 2, 0, 1)
    case("Transpose", lambda a, *s: mx.transpose(a, s), x, -1, 0, 1)
    case("SwapAxes", mx.swapaxes, x, 0, -1)
    case("MoveAxis", mx.moveaxis, x, 0, -1)
    case("ExpandDims", lambda a, *s: mx.expand_dims(a, s), x, 0, -1)
    case("Squeeze", lambda a, *s: mx.squeeze(a, s), values(dt, (1, 3, 1)), -1)
    case("Squeeze", lambda a: mx.squeeze(a), values(dt, (1, 3, 1)))
    case("BroadcastTo", lambda a, *s: mx.broadcast_to(a, s), values(dt, (3, 1)), 2, 3, 2)
    case("Concat", lambda ax, a, b: mx.concatenate([a, b], axis=ax), -1, x, values(dt, (2, 3, 1)))
    case("Stack", lambda ax, a, b: mx.stack([a, b], axis=ax), 1, x, values(dt, (2, 3, 4), 1))
    case("Split", lambda a, n, ax: mx.split(a, n, axis=ax), x, 2, -1)
    case("SplitAt", lambda a, ax, *i: mx.split(a, list(i), axis=ax), x, -1, 1, 3)
    case("Unstack", lambda a, ax: [mx.squeeze(p, ax) for p in mx.split(a, a.shape[ax], axis=ax)], x, -2)
    case("Repeat", lambda a, n, ax: mx.repeat(a, n, axis=ax), x, 2, -1)
    case("Tile", lambda a, *r: mx.tile(a, r), small(dt), 2, 1, 2)
    case("Unflatten", lambda a, ax, *s: mx.unflatten(a, ax, s), x, -1, 2, -1)
    case("Roll", lambda a, n: mx.roll(a, n), x, 5)
    case("Roll", lambda a, n, *ax: mx.roll(a, n, axis=list(ax)), x, -1, 0, -1)
    case("Flip", lambda a: mx.flip(a) if hasattr(mx, "flip") else a[::-1, ::-1, ::-1], x)
    case("Flip", lambda a, *ax: mx.flip(a, list(ax)) if hasattr(mx, "flip") else a[:, ::-1], x, 1)
    case("Pad", lambda a, o: mx.pad(a, [(1, 2), (0, 1)], constant_values=mx.array(3, a.dtype)), small(dt), O(Low=[1, 0], High=[2, 1], Value=3.0))
    case("Pad", lambda a, o: mx.pad(a, [(0, 0), (2, 2)], mode="edge"), small(dt), O(Axes=[-1], Low=[2], Edge=True))
    case("AsStrided", lambda a, s, t, o: mx.as_strided(a, s, t, o), x, [3, 2], [2, 5], 4)
    for to in ("int8", "uint16", "int32", "float32"):
        case("View", lambda a, d: a.view(d), values(dt, (2, 4)), dtype(to))
    for to in ("int8", "uint16", "float32"):
        one = values(dt, (1, 1), 2)
        case("View", lambda a, d: mx.concatenate([a, a], axis=1).view(d)[:, : max(1, one.value.itemsize // d.size)] if d.size <= one.value.itemsize else a.view(d), one.view("stretch"), dtype(to))
    case("Slice", lambda a, s, t: a[0:1, 1:3, -3:-1], x, [0, 1, -3], [1, 3, -1])
    case("SliceAxis", lambda a, ax, s, t: a[:, 1:3], x, 1, 1, 3)
    case("SliceStrided", lambda a, s, t, st: a[::-1, 0:3:2, 1:4:3], x, [1, 0, 1], [-3, 3, 4], [-1, 2, 3])
    case("SliceDynamic", lambda a, s, ax, size: a[0:2, 1:3, 0:4], x, A(mx.array([1])), [1], [2, 2, 4])

    def updated(a, u, how):
        v = a[0:2, 1:3]
        r = mx.array(a)
        r[0:2, 1:3] = {"set": u, "add": v + u, "max": mx.maximum(v, u), "min": mx.minimum(v, u), "prod": v * u}[how].astype(a.dtype)
        return r

    for method, how in (("SliceUpdate", "set"), ("SliceUpdateAdd", "add"), ("SliceUpdateMax", "max"), ("SliceUpdateMin", "min"), ("SliceUpdateProd", "prod")):
        if dt == "bool" and how != "set" or dt == "complex64" and how in ("max", "min"):
            continue
        case(method, lambda a, u, s, t: updated(a, u, how), values(dt, (3, 4)), values(dt, (2, 2), 5), [0, 1], [2, 3])
    case("SliceUpdateDynamic", lambda a, u, s, ax: updated(a, u, "set"), values(dt, (3, 4)), values(dt, (2, 2), 5), A(mx.array([0, 1])), [0, 1])

    def every_other(a, u):
        r = mx.array(a)
        r[::2, ::-1] = u
        return r

    case("SliceUpdateStrided", lambda a, u, s, t, st: every_other(a, u), values(dt, (3, 4)), values(dt, (2, 4), 5), [0, 3], [3, -5], [2, -1])
    case("Take", lambda a, i, ax: mx.take(a, i, axis=ax), x, A(mx.array([[2, 0], [-1, 1]])), 1)
    case("TakeAlong", lambda a, i, ax: mx.take_along_axis(a, i, axis=ax), small(dt), A(mx.array([[2, 0], [-1, 1]])), 1)
    case("PutAlong", lambda a, i, v, ax: mx.put_along_axis(a, i, v, axis=ax), small(dt), A(mx.array([[2], [0]])), fill(dt, 1, (2, 1)), 1)
    if dt not in ("bool",):
        case("ScatterAddAlong", lambda a, i, v, ax: a.at[mx.arange(2)[:, None], i].add(v), small(dt), A(mx.array([[2, 2], [0, 1]])), fill(dt, 1, (2, 2)), 1)

    def scattered(a, i, u, how):
        t = a.at[i]
        return {"ScatterAdd": t.add, "ScatterMax": t.maximum, "ScatterMin": t.minimum, "ScatterProd": t.multiply}[how](u.squeeze(1))

    rows = A(mx.array([2, 0, 2]))
    for how in ("ScatterAdd", "ScatterMax", "ScatterMin", "ScatterProd"):
        if dt == "bool" or dt == "complex64" and how in ("ScatterMax", "ScatterMin"):
            continue
        case(how, lambda a, i, u, ax: scattered(a, i[0], u, how), values(dt, (3, 2)), [rows], values(dt, (3, 1, 2), 4), [0])

    def placed(a, i, u):
        r = mx.array(a)
        r[i] = u.squeeze(1)
        return r

    case("Scatter", lambda a, i, u, ax: placed(a, i[0], u), values(dt, (3, 2)), [A(mx.array([2, 0]))], values(dt, (2, 1, 2), 4), [0])
    case("Gather", lambda a, i, ax, size: mx.stack([a[1:3, 0:1], a[0:2, 2:3]]), values(dt, (3, 4)), [A(mx.array([1, 0])), A(mx.array([0, 2]))], [0, 1], [2, 1])

    def masked(a, m, v):
        r = mx.array(a)
        r[m] = v
        return r

    case("MaskedScatter", masked, small(dt), A(mx.array([[True, False, True], [False, False, True]])), values(dt, (3,), 6))

for method, f, args in (
    ("Reshape", lambda a, *s: mx.reshape(a, s), (5,)), ("Reshape", lambda a, *s: mx.reshape(a, s), (-1, -1)),
    ("Transpose", lambda a, *s: mx.transpose(a, s), (0, 0, 1)), ("Transpose", lambda a, *s: mx.transpose(a, s), (0, 1)),
    ("SwapAxes", mx.swapaxes, (0, 3)), ("MoveAxis", mx.moveaxis, (3, 0)), ("ExpandDims", lambda a, *s: mx.expand_dims(a, s), (0, 0)),
    ("Squeeze", lambda a, *s: mx.squeeze(a, s), (0,)), ("BroadcastTo", lambda a, *s: mx.broadcast_to(a, s), (2, 3, 5)),
    ("Split", lambda a, n, ax: mx.split(a, n, axis=ax), (3, 0)), ("Repeat", lambda a, n, ax: mx.repeat(a, n, axis=ax), (2, 7)),
    ("Unflatten", lambda a, ax, *s: mx.unflatten(a, ax, s), (-1, 3, -1)), ("Flip", lambda a, *x: mx.transpose(a, (9,)), (9,)),
    ("Roll", lambda a, n, *ax: mx.roll(a, n, axis=list(ax)), (1, 7)), ("Unstack", lambda a, ax: mx.transpose(a, (9,)), (7,)),
    ("Take", lambda a, i, ax: mx.take(a, i, axis=ax), (A(mx.array([0])), 7)),
    ("View", lambda a, d: a.view(d), (mx.int64,)),
):
    case(method, f, cube, *args)
refused("Unflatten", cube, 0, 0, -1)
refused("AsStrided", cube, [3, 2], [20, 1], 0)
refused("AsStrided", cube, [3], [-1], 1)
refused("Tile", cube, -1)
refused("SliceStrided", cube, [0, 0, 0], [1, 1, 1], [1, 0, 1])
refused("Pad", cube, O(Low=[1]))
refused("Gather", values("float32", (0, 3)), [A(mx.array([0]))], [0], [1, 3])
for method, f in (("Concat", lambda ax, a, b: mx.concatenate([a, b], axis=ax)), ("Stack", lambda ax, a, b: mx.stack([a, b], axis=ax))):
    case(method, f, 0, values("float32", (2, 3)), values("float32", (3, 2)))
    case(method, f, 5, values("float32", (2, 3)), values("float32", (2, 3)))
    case(method, f, 0, values("int8", (2,)), values("float16", (2,)))
    case(method, f, 0, values("float32", (0, 2)), values("float32", (0, 2)))

# Products.
eye3 = lambda dt: A(mx.array([[2, 1, 0], [1, 3, 1], [0, 1, 4]], dtype=dtype(dt)))
for dt in ALL:
    x, y = values(dt, (2, 3)), values(dt, (3, 2), 3)
    case("MatMul", mx.matmul, x, y)
    case("MatMul", mx.matmul, values(dt, (2, 3)), values(dt, (2, 3), 3).view("T"))
    case("MatMul", mx.matmul, values(dt, (3,)), y)
    case("MatMul", mx.matmul, values(dt, (2, 1, 2, 3)), values(dt, (3, 3, 2)))
    case("MatMul", mx.matmul, values(dt, (2, 0)), values(dt, (0, 3)))
    case("MatMul", mx.matmul, x, x)
    case("AddMM", lambda c, a, b, al, be: mx.addmm(c, a, b, al, be), values(dt, (2,)), x, y, 2.0, 0.5)
    case("Inner", mx.inner, x, values(dt, (4, 3), 1))
    case("Outer", mx.outer, x, values(dt, (2,), 1))
    case("Kron", mx.kron, x, values(dt, (2, 2), 1))
    case("TensorDot", lambda a, b, i, j: mx.tensordot(a, b, [i, j]), values(dt, (2, 3, 4)), values(dt, (4, 3), 1), [1, 2], [1, 0])
    case("TensorDot", lambda a, b, i, j: mx.tensordot(a, b, 0), x, values(dt, (2,), 1), [], [])
    case("Einsum", mx.einsum, "ij,jk->ik", x, y)
    case("Einsum", mx.einsum, "ij->j", x)
    case("Einsum", mx.einsum, "ii->i", values(dt, (3, 3)))
    case("Einsum", mx.einsum, "ij,jk,kl->il", x, y, x)
    case("Cross", lambda a, b, ax: mx.linalg.cross(a, b, axis=ax), x, values(dt, (2, 3), 2), -1)
    case("Hadamard", lambda a, s: mx.hadamard_transform(a, s), values(dt, (2, 4)), 0.5)
    case("Hadamard", lambda a, s: mx.hadamard_transform(a), values(dt, (2, 12)), 0.0)
    case("VecDot", lambda a, b, ax: mx.sum(mx.conjugate(a) * b if a.dtype == mx.complex64 else a * b, axis=ax) if not hasattr(mx, "vecdot") else mx.vecdot(a, b, ax), x, values(dt, (2, 3), 2), -1)
    if dt == "float32":
        case("GatherMM", lambda a, b, o: mx.gather_mm(a, b, rhs_indices=mx.array([1, 0], dtype=mx.uint32)), values(dt, (2, 2, 3)), values(dt, (2, 3, 2)), O(RHS=A(mx.array([1, 0], dtype=mx.uint32))))
    else:
        refused("GatherMM", values(dt, (2, 2, 3)), values(dt, (2, 3, 2)), O(RHS=A(mx.array([1, 0], dtype=mx.uint32))))
    if dt in ("float32", "int32", "bfloat16"):
        case("BlockMaskedMM", lambda a, b, o: mx.block_masked_mm(a, b, 32, mx.array([[True, False], [False, True]])), values(dt, (33, 3)), values(dt, (3, 34)), O(Size=32, Out=A(mx.array([[True, False], [False, True]]))))
    case("SegmentedMM", mx.segmented_mm, x, y, A(mx.array([[0, 1], [1, 3], [2, 2]], dtype=mx.uint32)))
    if dt in FLOATS:
        case("CrossEntropy", mx.fast.cross_entropy if hasattr(mx.fast, "cross_entropy") else lambda l, t: mx.logsumexp(l, axis=-1) - mx.take_along_axis(l, t[:, None], -1)[:, 0], small(dt), A(mx.array([2, 0])))
refused("SegmentedMM", values("float32", (2, 3)), values("float32", (3, 2)), A(mx.array([[0, 9]], dtype=mx.uint32)))
refused("BlockMaskedMM", values("float32", (2, 3)), values("float32", (3, 2)), O(Size=16))
refused("TensorDot", small("float32"), small("float32"), [0, 0], [0, 1])
for text in ("ij,jk->ik->x", "ij", "ij->kl", "ij,jk", "->", "i j->"):
    case("Einsum", mx.einsum, text, small("float32"))

# Linear algebra.
for dt in ALL:
    m = eye3(dt)
    L = mx.linalg
    case("Inv", L.inv, m)
    case("PInv", L.pinv, values(dt, (3, 2)))
    case("Det", L.det, m)
    case("SlogDet", lambda a: tuple(L.slogdet(a)), m)
    case("Cholesky", lambda a, u: L.cholesky(a, upper=u), m, False)
    case("Cholesky", lambda a, u: L.cholesky(a, upper=u), m, True)
    case("CholeskyInv", lambda a, u: L.cholesky_inv(L.cholesky(a) * 1 if False else a, upper=u), A(mx.tril(m.value)), False)
    case("TriInv", lambda a, u: L.tri_inv(a, upper=u), A(mx.tril(m.value)), False)
    case("Solve", L.solve, m, values(dt, (3,)))
    case("Solve", L.solve, m, values(dt, (3, 2)))
    case("SolveTriangular", lambda a, b, u: L.solve_triangular(a, b, upper=u), A(mx.triu(m.value)), values(dt, (3, 2)), True)
    case("EigValsh", lambda a, u: L.eigvalsh(a, UPLO="U" if u else "L"), m, True)
    case("EigVals", L.eigvals, m)
    case("SingularValues", lambda a: L.svd(a, compute_uv=False), m)
    case("LU", lambda a: L.lu(a), m)
    case("LUFactor", lambda a: L.lu_factor(a), m)
    for o in (0.0, 1.0, 2.0, 3.0, math.inf, -math.inf):
        case("Norm", lambda a, o, k, x: L.norm(a, o, axis=x, keepdims=k), small(dt), o, True, 1)
    for o in (1.0, -1.0, math.inf, -math.inf):
        case("Norm", lambda a, o, k, *x: L.norm(a, o, axis=list(x), keepdims=k), small(dt), o, False, 0, 1)
        case("Norm", lambda a, o, k: L.norm(a, o, keepdims=k), small(dt), o, False)
    case("NormL2", lambda a, k: L.norm(a, keepdims=k), values(dt, (2, 3, 2)), False)
    case("NormL2", lambda a, k, x: L.norm(a, axis=x, keepdims=k), small(dt), True, 0)
    case("NormFrobenius", lambda a, k: L.norm(a, "fro", keepdims=k), small(dt), False)
    case("NormNuclear", lambda a, k: L.norm(a, "nuc", keepdims=k), small(dt), True)
empty = values("float32", (0, 0))
for method in ("Inv", "PInv", "Det", "SlogDet", "EigVals", "Eig", "QR", "LU", "LUFactor", "SVD", "SingularValues"):
    refused(method, empty)
for v in (math.nan, math.inf):  # LAPACK ends the process over some of these
    x = fill("float32", v, (27, 27))
    for method in ("Eig", "EigVals", "SVD", "SingularValues", "PInv"):
        refused(method, x)
    for method in ("Eigh", "EigValsh", "NormNuclear"):
        refused(method, x, False)
    refused("Norm", x, 2.0, False)

# Convolutions.
for dt in FLOATS + ["int32", "complex64"]:
    case("Conv1d", lambda x, w, o: mx.conv1d(x, w, stride=2, padding=1), values(dt, (1, 5, 2)), values(dt, (3, 2, 2)), O(Stride=2, Padding=1))
    case("Conv2d", lambda x, w, o: mx.conv2d(x, w), values(dt, (1, 4, 3, 2)), values(dt, (3, 2, 2, 2)), O())
    case("Conv2d", lambda x, w, o: mx.conv2d(x, w, (2, 1), (1, 0), (1, 2), 2), values(dt, (1, 4, 5, 2)), values(dt, (2, 2, 2, 1)), O(Stride=[2, 1], Padding=[1, 0], Dilation=[1, 2], Groups=2))
    case("Conv3d", lambda x, w, o: mx.conv3d(x, w, padding=1), values(dt, (1, 2, 3, 2, 2)), values(dt, (1, 2, 2, 2, 2)), O(Padding=[1]))
    case("ConvTranspose1d", lambda x, w, o: mx.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1), values(dt, (1, 4, 2)), values(dt, (3, 2, 2)), O(Stride=[2], Padding=[1], OutputPadding=[1]))
    case("ConvTranspose2d", lambda x, w, o: mx.conv_transpose2d(x, w, stride=2), values(dt, (1, 3, 2, 2)), values(dt, (3, 2, 2, 2)), O(Stride=[2]))
    case("ConvTranspose3d", lambda x, w, o: mx.conv_transpose3d(x, w), values(dt, (1, 2, 1, 2, 2)), values(dt, (1, 2, 2, 2, 2)), O())
    case("ConvGeneral", lambda x, w, o: mx.conv_general(x, w, 1, ([1, 0], [2, 1]), 1, [2, 1], 1, True), values(dt, (1, 3, 3, 2)), values(dt, (2, 2, 2, 2)), O(PaddingLow=[1, 0], PaddingHigh=[2, 1], InputDilation=[2, 1], Flip=True))
for bad in (O(Stride=[0]), O(Groups=-1), O(Padding=[-1]), O(Dilation=[0]), O(Stride=[1, 1, 1]), O(Groups=3)):
    refused("Conv2d", values("float32", (1, 4, 4, 2)), values("float32", (3, 2, 2, 2)), bad)
    refused("ConvTranspose2d", values("float32", (1, 4, 4, 2)), values("float32", (3, 2, 2, 2)), bad)
for shape in ((0, 2, 2, 2), (3, 0, 2, 2), (3, 2, 2, 0), (3, 9, 9, 2)):
    refused("Conv2d", values("float32", (1, 4, 4, 2)), values("float32", shape), O())

# Fourier transforms.
NORMS = ("backward", "ortho", "forward")
for dt in ALL:
    x = values(dt, (2, 6))
    for method, f in (("FFT", mx.fft.fft), ("IFFT", mx.fft.ifft), ("RFFT", mx.fft.rfft), ("IRFFT", mx.fft.irfft)):
        if dt == "complex64" and method == "RFFT":
            continue
        case(method, lambda a, n, ax, norm: f(a, axis=ax), x, 0, -1, 0)
        case(method, lambda a, n, ax, norm: f(a, n=n, axis=ax, norm=NORMS[norm]) , x, 4, 1, 1)
        case(method, lambda a, n, ax, norm: f(a, n=n, axis=ax, norm=NORMS[norm]), x, 5, 0, 2)
    for method, f in (("FFTN", mx.fft.fftn), ("IFFTN", mx.fft.ifftn), ("RFFTN", mx.fft.rfftn), ("IRFFTN", mx.fft.irfftn)):
        if dt == "complex64" and method == "RFFTN":
            continue
        case(method, lambda a, s, ax, norm: f(a), x, None, None, 0)
        case(method, lambda a, s, ax, norm: f(a, s=[4, 3], axes=[1, 0]), x, [4, 3], [1, 0], 0)
    case("FFTShift", lambda a: mx.fft.fftshift(a), x)
    case("IFFTShift", lambda a, ax: mx.fft.ifftshift(a, axes=[ax]), x, -1)
for n in (1, 4, 5):
    case("FFTFreq", lambda n, d: mx.array([(i if i < (n + 1) // 2 else i - n) / (n * d) for i in range(n)], dtype=mx.float32), n, 0.5)
    case("RFFTFreq", lambda n, d: mx.array([i / (n * d) for i in range(n // 2 + 1)], dtype=mx.float32), n, 0.5)
refused("FFT", small("float32"), 0, 2, 0)
refused("FFT", values("float32", (0,)), 0, 0, 0)
refused("FFT", small("float32"), -1, 0, 0)
refused("IRFFT", values("float32", (1,)), 0, 0, 0)
refused("FFTN", small("float32"), [2, 2], [0, 0], 0)

# Activations, with formulas of their own where the method composes in another way.
wide = lambda dt: A(mx.array([-8, -3, -1.5, -0.5, -0.0, 0.0, 0.25, 1, 2.5, 7, 30], dtype=dtype(dt)))
ACT = dict(
    ReLU=lambda x: mx.where(x > 0, x, 0), ReLU6=lambda x: mx.clip(x, 0, 6), GELU=lambda x: x * 0.5 * (1 + mx.erf(x / math.sqrt(2))),
    GELUTanh=lambda x: 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), GELUSigmoid=lambda x: x * mx.sigmoid(1.702 * x),
    Mish=lambda x: x * mx.tanh(mx.log1p(mx.exp(x))), HardSwish=lambda x: x * mx.clip(x + 3, 0, 6) / 6, Softsign=lambda x: x / (1 + mx.abs(x)),
    LogSigmoid=lambda x: -mx.logaddexp(0.0, -x), SELU=lambda x: 1.0507009873554805 * mx.where(x > 0, x, 1.6732632423543772 * mx.expm1(x)),
)
for dt in FLOATS:
    x = wide(dt)
    as_dt = lambda f: lambda x, *a: f(x.astype(mx.float64) if dt == "float64" else x.astype(mx.float32), *a).astype(dtype(dt))
    for method, f in ACT.items():
        case(method, as_dt(f), x)
    case("LeakyReLU", as_dt(lambda x, s: mx.where(x > 0, x, s * x)), x, 0.125)
    case("ELU", as_dt(lambda x, a: mx.where(x > 0, x, a * mx.expm1(x))), x, 0.5)
    case("CELU", as_dt(lambda x, a: mx.where(x > 0, x, a * mx.expm1(x / a))), x, 0.5)
    case("GLU", as_dt(lambda x, ax: x[:, :2] * mx.sigmoid(x[:, 2:])), values(dt, (3, 4)), 1)
    case("SwiGLU", lambda g, y: (g * mx.sigmoid(g)) * y, values(dt, (3,)), values(dt, (3,), 2))
refused("GELU", small("int32"))
refused("ReLU", small("complex64"))

# Fast.
for dt in FLOATS:
    if dt == "float64":
        continue
    x = values(dt, (2, 3, 8))
    w, b = values(dt, (8,), 1), values(dt, (8,), 2)
    case("RMSNorm", mx.fast.rms_norm, x, w, 1e-5)
    case("RMSNorm", mx.fast.rms_norm, x, None, 1e-5)
    case("LayerNorm", mx.fast.layer_norm, x, w, b, 1e-5)
    case("LayerNorm", mx.fast.layer_norm, x, None, None, 1e-5)
    q = values(dt, (1, 2, 3, 8))
    k, v = values(dt, (1, 1, 5, 8), 1), values(dt, (1, 1, 5, 8), 2)
    for trad in (False, True):
        case("RoPE", lambda x, o, off: mx.fast.rope(x, 4, traditional=trad, base=100.0, scale=0.5, offset=off), q, O(Dims=4, Traditional=trad, Base=100.0, Scale=0.5), 3)
    case("RoPE", lambda x, o, off: mx.fast.rope(x, 8, traditional=False, base=None, scale=1.0, offset=off, freqs=mx.array([1.0, 2.0, 4.0, 8.0])), q, O(Dims=8, Freqs=A(mx.array([1.0, 2.0, 4.0, 8.0]))), 2)
    case("RoPEDynamic", lambda x, o, off: mx.fast.rope(x, 8, traditional=False, base=10000.0, scale=1.0, offset=off), q, O(Dims=8), A(mx.array(3)))
    sdpa = mx.fast.scaled_dot_product_attention
    mask = A(mx.array([[True, True, False, True, False]] * 3))
    bias = values(dt, (3, 5), 7)
    case("Attention", lambda q, k, v, o: sdpa(q, k, v, scale=0.25), q, k, v, O(Scale=0.25))
    case("Attention", lambda q, k, v, o: sdpa(q, k, v, scale=0.25, mask="causal"), q, k, v, O(Scale=0.25, Causal=True))
    case("Attention", lambda q, k, v, o: sdpa(q, k, v, scale=0.25, mask=mask.value), q, k, v, O(Scale=0.25, Mask=mask))
    case("Attention", lambda q, k, v, o: sdpa(q, k, v, scale=0.25, mask=bias.value), q, k, v, O(Scale=0.25, Mask=bias))
    case("Attention", lambda q, k, v, o: sdpa(q, k, v, scale=8**-0.5), q, k, v, O())
    sinks = values(dt, (2,), 3)
    case("Attention", lambda q, k, v, o: sdpa(q, k, v, scale=0.25, sinks=sinks.value), q, k, v, O(Scale=0.25, Sinks=sinks))

# Quantisation.
MODES = ("affine", "mxfp4", "mxfp8", "nvfp4")
for dt in FLOATS[:2] + ["bfloat16"]:
    w = values(dt, (3, 64))
    x = values(dt, (2, 64), 4)
    options = [(0, g, b) for g in (32, 64) for b in (2, 3, 4, 5, 6, 8)] + [(1, 32, 4), (2, 32, 8), (3, 16, 4)]
    for mode, g, b in options:
        if dt != "float32" and (mode, g) == (0, 32):
            continue
        o = O(Mode=mode, GroupSize=g, Bits=b)
        kw = dict(group_size=g, bits=b, mode=MODES[mode])
        case("Quantize", lambda w, o: mx.quantize(w, **kw), w, o)
        parts = [A(p) for p in mx.quantize(w.value, **kw)]
        q = O(W=parts[0], Scales=parts[1], Biases=parts[2] if len(parts) > 2 else None, Options=o)
        p = [p.value for p in parts]
        case("Dequantize", lambda q, d: mx.dequantize(*p, **kw, dtype=d), q, dtype(dt))
        case("QuantizedMatMul", lambda x, q, t: mx.quantized_matmul(x, *p, transpose=t, **kw), x, q, True)
        case("QuantizedMatMul", lambda x, q, t: mx.quantized_matmul(x, *p, transpose=t, **kw), values(dt, (2, 3), 1), q, False)
        stack = [A(mx.stack([v, v[::-1]])) for v in p]
        qs = O(W=stack[0], Scales=stack[1], Biases=stack[2] if len(stack) > 2 else None, Options=o)
        pick = A(mx.array([1, 0], dtype=mx.uint32))
        case("GatherQMM", lambda x, q, t, i: mx.gather_qmm(x, *[v.value for v in stack], rhs_indices=pick.value, transpose=t, **kw), values(dt, (2, 1, 64), 4), qs, True, O(RHS=pick))
short = O(W=A(mx.zeros((4, 8), dtype=mx.uint32)), Scales=A(mx.ones((3, 1))), Biases=A(mx.ones((3, 1))))  # MLX reads on behind the scales
refused("QuantizedMatMul", values("float32", (2, 64)), short, True)
refused("Dequantize", short, mx.float32)
refused("GatherQMM", values("float32", (2, 64)), short, True, O())
big = 2**31 - 1
refused("Tile", small("float32"), big, big, big)
refused("Repeat", small("float32"), big, 0)
refused("Pad", small("float32"), O(Low=[big, 0]))
refused("FFTN", small("float32"), [big, big], [0, 1], 0)
refused("IRFFTN", values("float32", (1, 4, 2)), [big, big, 3], [], 0)
refused("Tri", big, big, -1, mx.int16)
refused("Einsum", "...i->...", values("float32", (3, 0)))
refused("Quantize", values("float32", (0, 64)), O())
refused("Quantize", values("float32", (2, 64)), O(Bits=7))
refused("Quantize", values("float32", (2, 64)), O(Mode=1, Bits=8))
case("Quantize", lambda w, o: mx.quantize(w), values("float32", (2, 65)), O())
case("Quantize", lambda w, o: mx.quantize(w), values("int32", (2, 64)), O())
for dt in ALL:
    case("ToFP8", mx.to_fp8, small(dt))
    case("FromFP8", lambda x, d: mx.from_fp8(x, mx.float32).astype(d) if d == mx.float64 else mx.from_fp8(x, d), A(mx.array([0, 1, 56, 126, 184, 200], dtype=mx.uint8)), dtype(dt))

# Random numbers: the same key gives the same ones everywhere.
key = A(mx.random.key(7))
case("Key", mx.random.key, 7)
case("SplitKey", lambda k, n: mx.random.split(k, n), key, 3)
R = mx.random
for dt in ALL:
    d = dtype(dt)
    lo, hi = fill("float32", -1, ()), fill("float32", 2, (3,))
    case("Uniform", lambda k, l, h, d, *s: R.uniform(l, h, s, dtype=d, key=k), key, lo, hi, d, 2, 3)
    case("Normal", lambda k, m, v, d, *s: R.normal(s, dtype=d, loc=m, scale=v, key=k), key, 1.0, 2.0, d, 5)
    case("Laplace", lambda k, m, v, d, *s: R.laplace(s, dtype=d, loc=m, scale=v, key=k), key, 1.0, 2.0, d, 5)
    case("Gumbel", lambda k, d, *s: R.gumbel(s, dtype=d, key=k), key, d, 5)
    case("TruncatedNormal", lambda k, l, h, d, *s: R.truncated_normal(l, h, s, dtype=d, key=k), key, lo, fill("float32", 1, ()), d, 5)
    if not dt.startswith("u"):
        case("RandInt", lambda k, l, h, d, *s: R.randint(l, h, s, dtype=d, key=k), key, fill("int32", -3, ()), fill("int32", 9, ()), d, 5)
for bits, d in ((8, mx.uint8), (16, mx.uint16), (32, mx.uint32)):
    pass
case("Bernoulli", lambda k, p, *s: R.bernoulli(p, s, key=k), key, fill("float32", 0.5, ()), 8)
case("Categorical", lambda k, l, ax: R.categorical(l, axis=ax, key=k), key, values("float32", (4, 3)), -1)
case("CategoricalShape", lambda k, l, ax, *s: R.categorical(l, axis=ax, shape=s, key=k), key, values("float32", (3,)), -1, 6)
case("Permutation", lambda k, a, ax: R.permutation(a, axis=ax, key=k), key, values("int32", (5, 2)), 0)
case("PermutationN", lambda k, n: R.permutation(n, key=k), key, 7)
case("MultivariateNormal", lambda k, m, c, *s: R.multivariate_normal(m, c, s, key=k), key, values("float32", (2,)), A(mx.array([[1.0, 0.0], [0.0, 1.0]])), 4)
refused("PermutationN", key, 0)
refused("Permutation", key, values("float32", (0,)), 0)
refused("SplitKey", key, 0)
refused("Uniform", fill("float32", 0, (2,)), lo, hi, mx.float32, 3)

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens.json")
with open(path, "w") as f:
    f.write('{"mlx": %s,\n"arrays": [\n' % json.dumps(mx.__version__))
    f.write(",\n".join(json.dumps(a, separators=(",", ":")) for a in arrays))
    f.write('\n],\n"cases": [\n')
    f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
    f.write("\n]}\n")
print(len(arrays), "arrays,", len(cases), "cases,", sum(c[2] == "error" for c in cases), "errors,", os.path.getsize(path), "bytes")

"""Runs llama.cpp with a control vector: `python -m tests.conditioning.llama_cpp MODEL OUT PROMPT [VECTOR:SCALE]`.

xllamacpp's `CommonParams` has no field for control vectors, but the library it ships exports llama.cpp's own command
line parser. This script lets that parser fill in the C++ structure inside a `CommonParams` object, and so has
llama.cpp load the file by its own loader. It runs in a process of its own, because it reaches into memory.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

PARSER = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
MARK = 0x1234567
UNSUPPORTED = 77


def main(model: str, out: str, prompt: str, *vectors: str) -> int:
    """Write the completion, with the log-probabilities of the likeliest tokens at each place, to `out`."""
    from xllamacpp import xllamacpp

    parse = getattr(ctypes.CDLL(xllamacpp.__file__), PARSER, None)
    params = xllamacpp.CommonParams()
    params.n_predict = MARK
    address = id(params) + object.__basicsize__  # the structure follows the object's head; n_predict is its first field
    if parse is None or ctypes.c_int.from_address(address).value != MARK:
        return UNSUPPORTED
    arguments = ["llama", "-m", model, "-c", "512", "-t", "1"]
    for vector in vectors:
        arguments += ["--control-vector-scaled", vector]
    strings = (ctypes.c_char_p * len(arguments))(*[argument.encode() for argument in arguments])
    parse.restype = ctypes.c_bool
    if not parse(ctypes.c_int(len(arguments)), strings, ctypes.c_void_p(address), ctypes.c_int(0), None):
        return 1
    params.n_parallel, params.warmup = 1, False
    reply = xllamacpp.Server(params).handle_completions(
        {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 40}
    )
    Path(out).write_text(json.dumps(reply if isinstance(reply, dict) else json.loads(reply)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

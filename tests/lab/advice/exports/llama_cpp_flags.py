"""llama.cpp's own parser of flags, from the library in the wheel `xllamacpp`.

The wheel binds no parser, but its library exports llama.cpp's (`common_params_parse` in common/arg.h), and a
`CommonParams` holds the C++ struct right after the object's header.
"""

from __future__ import annotations

import ctypes
import shlex
from pathlib import Path
from typing import Any

import xllamacpp

# The mangled C++ name of `common_params_parse`.
PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
# LLAMA_EXAMPLE_SERVER in common/common.h, as in build 11549.
SERVER = 12
# The bytes of a Python object's header, in front of the C++ struct.
HEADER_SIZE = object.__basicsize__


def parse_flags(flags: str, params: Any = None) -> Any:
    """The parameters that llama-server takes from a command line, set in `params` (None: its defaults).

    Raises ValueError if llama.cpp refuses the command line.
    """
    params = xllamacpp.CommonParams() if params is None else params
    struct = id(params) + HEADER_SIZE
    assert ctypes.c_int32.from_address(struct).value == params.n_predict, "the struct lies elsewhere in this wheel"
    arguments = [b"llama-server", *(word.encode() for word in shlex.split(flags))]
    library = ctypes.CDLL(str(Path(xllamacpp.xllamacpp.__file__)))
    parse = getattr(library, PARSE)
    parse.restype = ctypes.c_bool
    argv = (ctypes.c_char_p * len(arguments))(*arguments)
    if not parse(len(arguments), argv, ctypes.c_void_p(struct), ctypes.c_int(SERVER), None):
        raise ValueError(f"llama.cpp refuses {flags}")
    return params

"""The parts of pyghostty that Tether uses; its C declarations are made at run time and have no types."""

from typing import Any

__version__: str

class _Ffi:
    NULL: Any
    def new(self, cdecl: str, init: object = ..., /) -> Any: ...
    def buffer(self, pointer: Any, size: int = ..., /) -> bytes: ...
    def callback(self, cdecl: str, function: object, /) -> Any: ...
    def gc(self, pointer: Any, destructor: object, /) -> Any: ...

ffi: _Ffi
lib: Any

"""One watched training step of a raw capture as values: its storages and its ops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from superneurons.files import BadInput
from superneurons.raw import RawReader, counts, integer, text
from superneurons.traces import PHASES, ROLES

# A tensor looks at other memory from now on: none is read or written. Captures of old have it as a
# call that writes all of that memory.
_LOOKS_ELSEWHERE = "aten::set_"


@dataclass(eq=False, slots=True)
class Storage:
    """What is known of one storage object."""

    serial: int
    bytes: int
    dtype: str = "f32"
    shape: list[int] = field(default_factory=list)
    maker: tuple[int, int, int] | None = None  # step, call and place among its new storages
    alive_at_start: bool = False
    born: int = -1  # op of the step that made it
    freed_before: int | None = None
    layer: str = ""
    role: str | None = None
    start_names: list[tuple[str, str]] = field(default_factory=list)  # role and name
    end_names: list[tuple[str, str]] = field(default_factory=list)


Range = tuple[Storage, int, int]  # offset and length in bytes


@dataclass(eq=False, slots=True)
class SeenOp:
    """One op of the step."""

    kind: str
    phase: str
    layer: str
    call: int
    reads: list[Range]
    writes: list[Range]
    once: list[Storage]
    makes: list[Storage]
    random: bool = False
    sync: bool = False
    micro_batch: int = 0
    workspace: int = 0
    host_ns: int = 0
    before_ns: int = 0  # in calls that are no ops, since the op before
    before_calls: int = 0
    group: int = -1
    share: int = 1  # ops among which the time of the launch is divided


@dataclass
class Step:
    """A training step, and what stands around it."""

    number: int
    ops: list[SeenOp] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    allocated: int = 0  # by the allocator, when it began
    died_inside: int = 0  # storages that are freed before the call that has them
    whole: bool = False


class StepReader:
    """Builds step `number` from the records of a raw capture."""

    def __init__(self, reader: RawReader, number: int) -> None:
        self.reader = reader
        self.step = Step(number)
        self.by_serial: dict[int, Storage] = {}  # alive
        self.layers: dict[int, str] = {}
        self.rooted: list[tuple[int, int, str, bool]] = []  # module, root, path, weights
        self.classes: dict[int, str] = {}  # of roots
        self.now = -1  # step that runs
        self.between = True
        self.over = False
        self.groups = 0
        self.by_call: dict[int, SeenOp] = {}
        self.died: dict[int, Storage] = {}  # since the last call
        self.late: dict[int, Storage] = {}  # of these, those that the next call has
        self.passed = (0, 0)  # ns and number of calls that are no ops, since the last that is one

    def read(self) -> Step:
        """A file that ends early gives what is there."""
        readers = {
            "module": self._module,
            "storage": self._storage,
            "state": self._state,
            "step": self._step,
            "call": self._call,
            "make": self._make,
            "free": self._free,
            "memory": self._memory,
            "step_end": self._step_end,
        }
        for record in self.reader.records():
            kind = record.get("r")
            if kind in ("untouched", "end") or (kind == "step" and self.over):
                break
            read = readers.get(kind) if isinstance(kind, str) else None
            if read is not None:
                read(record)
        self.step.whole = self.over
        self.step.storages.sort(key=lambda storage: storage.serial)
        return self.step

    def _wrong(self, message: str) -> BadInput:
        return BadInput(message, self.reader.path, self.reader.line)

    def _watching(self) -> bool:
        return self.now == self.step.number and not self.over

    def _module(self, record: dict[str, Any]) -> None:
        number, root = integer(record, "id", self.reader), integer(record, "root", self.reader)
        path = text(record, "path", self.reader)
        if path == "":
            self.classes[root] = text(record, "class", self.reader)
            if record.get("weights"):
                self.rooted.append((number, root, path, True))
        self.layers[number] = f"{root}:{path}"

    def prefixes(self) -> dict[str, str]:
        """What names of modules begin with, by root: nothing for the model, if there is one only;
        else the class, with a number where that is not enough."""
        models = {root for _, root, _, _ in self.rooted}
        result: dict[str, str] = {}
        taken: dict[str, int] = {}
        for root, name in sorted(self.classes.items()):
            if models == {root}:
                result[str(root)] = ""
                continue
            taken[name] = taken.get(name, 0) + 1
            result[str(root)] = name if taken[name] == 1 else f"{name}{taken[name]}"
        return result

    def _storage(self, record: dict[str, Any]) -> None:
        serial = integer(record, "s", self.reader)
        size = integer(record, "bytes", self.reader)
        known = self.by_serial.get(serial)
        if known is not None:
            known.bytes = max(known.bytes, size)  # it has grown
            return
        shape = record.get("shape", [])
        if not isinstance(shape, list) or not all(map(counts, shape)):
            raise self._wrong('"shape" is no list of sizes')
        storage = Storage(serial, size, text(record, "dtype", self.reader), shape)
        storage.alive_at_start = True  # until a call or a make says otherwise
        self.by_serial[serial] = storage
        if self._watching():
            self.step.storages.append(storage)

    def _get(self, serial: Any) -> Storage:
        storage = self.by_serial.get(serial) if type(serial) is int else None
        if storage is None:
            raise self._wrong(f"storage {str(serial)[:40]} is not known, or was freed")
        return storage

    def _state(self, record: dict[str, Any]) -> None:
        storage = self._get(record.get("s"))
        role, name = text(record, "role", self.reader), text(record, "name", self.reader)
        if role not in ROLES:
            raise self._wrong(f"the role {role!r} is none")
        if self.now < self.step.number or self.over:
            names = storage.end_names if self.over else storage.start_names
            if not self.over and self.now != self.step.number - 1:
                return
            names.append((role, name))
            storage.role = role
            storage.layer = self.layers.get(integer(record, "m", self.reader, -1), "")

    def _step(self, record: dict[str, Any]) -> None:
        self.now = integer(record, "step", self.reader)
        for storage in self.by_serial.values():
            storage.alive_at_start = True
            storage.born = -1
            if not self._watching():
                storage.start_names.clear()
        if self._watching():
            self.step.allocated = integer(record, "allocated", self.reader)
            self.step.storages = list(self.by_serial.values())

    def _free(self, record: dict[str, Any]) -> None:
        storage = self.by_serial.pop(integer(record, "s", self.reader), None)
        if storage is None:
            raise self._wrong("frees a storage that is not there")
        self.died[storage.serial] = storage
        if self._watching():
            storage.freed_before = len(self.step.ops)

    def _make(self, record: dict[str, Any]) -> None:
        storage = self._get(record.get("s"))
        storage.alive_at_start = False
        storage.born = len(self.step.ops) if self._watching() else -1

    def _range(self, value: Any) -> Range:
        if not isinstance(value, list) or len(value) != 3 or any(type(n) is not int for n in value):
            raise self._wrong("an access is not [storage, offset, length]")
        if value[0] in self.died:  # captures of old say the death of a storage in a call before it
            storage = self.late[value[0]] = self.died[value[0]]
        else:
            storage = self._get(value[0])
        offset, length = value[1], value[2]
        if offset < 0 or length < 0 or offset + length > storage.bytes:
            raise self._wrong(f"an access leaves storage {value[0]} of {storage.bytes} bytes")
        return storage, offset, length

    def _ranges(self, value: Any) -> list[Range]:
        if not isinstance(value, list):
            raise self._wrong("accesses are no list")
        return [self._range(each) for each in value]

    def _call(self, record: dict[str, Any]) -> None:
        self._read_call(record)
        for storage in self.late.values():
            storage.freed_before = len(self.step.ops)
        self.step.died_inside += len(self.late)
        self.died.clear()
        self.late.clear()

    def _read_call(self, record: dict[str, Any]) -> None:
        call = integer(record, "c", self.reader)
        makes = [self._get(serial) for serial in self._list(record, "makes")]
        for place, storage in enumerate(makes):
            storage.alive_at_start = False
            storage.maker = (self.now, call, place)
        if not self._watching():
            return
        phase = text(record, "phase", self.reader)
        if phase not in PHASES:
            raise self._wrong(f"the phase {phase!r} is none")
        before = self._list(record, "before") or [0, 0]
        if len(before) != 2 or any(type(n) is not int or n < 0 for n in before):
            raise self._wrong('"before" is not [ns, calls]')
        host, passed = integer(record, "host", self.reader), self.passed
        self.passed = (0, 0)
        if record.get("kind") == _LOOKS_ELSEWHERE:
            self.passed = (passed[0] + before[0] + host, passed[1] + before[1] + 1)
            return
        op = SeenOp(
            kind=text(record, "kind", self.reader),
            phase=phase,
            layer=self.layers.get(integer(record, "m", self.reader, -1), ""),
            call=call,
            reads=self._ranges(record.get("in")),
            writes=self._ranges(record.get("out")),
            once=[self._get(serial) for serial in self._list(record, "once")],
            makes=makes,
            random=record.get("random") is True,
            sync=record.get("sync") is True,
            micro_batch=min(integer({"mb": 0, **record}, "mb", self.reader), (1 << 31) - 1),
            host_ns=host,
            before_ns=before[0] + passed[0],
            before_calls=before[1] + passed[1],
        )
        for storage in makes:
            storage.born = len(self.step.ops)
        lists = [self._ranges(each) for each in self._list(record, "lists")]
        self.step.ops += self._split(op, lists)

    def _list(self, record: dict[str, Any], key: str) -> list[Any]:
        value = record.get(key, [])
        if not isinstance(value, list):
            raise self._wrong(f'"{key}" is no list')
        return value

    def _split(self, op: SeenOp, lists: list[list[Range]]) -> list[SeenOp]:
        """A multi-tensor op as one per tensor: the i-th of every list, with all that is no list."""
        lengths = {len(each) for each in lists}
        if len(lengths) != 1 or lengths == {0, 1} or len(lists[0]) < 2:
            return [op]
        count = lengths.pop()
        if op.makes and len(op.makes) % count != 0:
            return [op]
        listed = {id(storage) for each in lists for storage, _, _ in each}
        written = {id(storage) for storage, _, _ in op.writes}
        made = {id(storage) for storage in op.makes}
        reading = {(id(storage), offset) for storage, offset, _ in op.reads}
        shared = [r for r in op.reads if id(r[0]) not in listed]
        shared_writes = [w for w in op.writes if id(w[0]) not in listed and id(w[0]) not in made]
        fresh = [w for w in op.writes if id(w[0]) in made]
        parts = []
        for i in range(count):
            mine = [each[i] for each in lists]
            part = SeenOp(
                kind=op.kind,
                phase=op.phase,
                layer=op.layer or mine[0][0].layer,
                call=op.call,
                reads=[r for r in mine if (id(r[0]), r[1]) in reading] + shared,
                writes=[r for r in mine if id(r[0]) in written] + shared_writes + fresh[i::count],
                once=op.once if i == 0 else [],
                makes=[w[0] for w in fresh[i::count]],
                random=op.random,
                micro_batch=op.micro_batch,
                host_ns=op.host_ns // count,
                before_ns=op.before_ns if i == 0 else 0,
                before_calls=op.before_calls if i == 0 else 0,
                group=self.groups,
                share=count,
            )
            for storage in part.makes:
                storage.born = len(self.step.ops) + i
            parts.append(part)
        self.groups += 1
        return parts

    def _memory(self, record: dict[str, Any]) -> None:
        if not self._watching():
            return
        if not self.by_call:
            self.by_call = {op.call: op for op in reversed(self.step.ops)}
        found = self.by_call.get(integer(record, "c", self.reader))
        if found is not None:
            found.workspace = integer(record, "workspace", self.reader)

    def _step_end(self, record: dict[str, Any]) -> None:
        if self._watching():
            self.over = True
            self.by_call = {}

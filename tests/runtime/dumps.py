#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports on dumps of PyTorch's flight recorder: real ones, in dumps/, and pickles made here."""

import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

REPORT = os.path.abspath(os.path.join(os.environ["top_builddir"], "tests/runtime/report"))
REAL = pathlib.Path(os.environ["top_srcdir"], "tests/runtime/dumps")
PYTHON = os.path.dirname(os.path.realpath(sys.executable))
DONE, WAITS = "0 default_pg {} nccl:all_reduce 1000 completed", "0 default_pg {} nccl:all_reduce 1000 started"
ALL = {"0": "[0, 1, 2, 3]"}


def entry(line):
    """"1 pair 17 nccl:all_reduce 1000 started retired": group, sequence, operation, elements or -, state, retired or p2p."""
    group, description, sequence, name, elements, state, *more = line.split()
    return {"frames": [{"name": "main", "line": 1795517061116693985}], "record_id": 3,
            "process_group": (group, description), "collective_seq_id": int(sequence), "profiling_name": name,
            "duration_ms": 2.0, "input_sizes": [] if elements == "-" else [[int(elements) // 2, 2]],
            "input_dtypes": [] if elements == "-" else ["Float"], "state": state, "time_discovered_started_ns": None,
            "retired": "retired" in more, "is_p2p": "p2p" in more}


def dump(*lines, groups=ALL, protocol=2):
    return pickle.dumps({"version": "2.10", "pg_config": {name: {"ranks": ranks} for name, ranks in groups.items()},
                         "pg_status": {}, "entries": [entry(line) for line in lines]}, protocol)


def done(sequence, *more, **options):
    return dump(DONE.format(sequence), *more, **options)


def waits(sequence, *more, **options):
    return dump(WAITS.format(sequence), *more, **options)


def pair(*ranks):
    return {**ALL, "1": str(list(ranks))}


HALVES = [{"1": "[0, 1]"}, {"1": "[0, 1]"}, {"2": "[2, 3]"}, {"2": "[2, 3]"}]
LEFT, LEFT_BEFORE = "1 left 4 nccl:all_reduce 8 started", "1 left 3 nccl:all_reduce 8 completed"
RIGHT, RIGHT_BEFORE = "2 right 4 nccl:all_reduce 8 started", "2 right 3 nccl:all_reduce 8 completed"
PAIR, PAIR_BEFORE = "1 pair 9 nccl:all_gather 8 started", "1 pair 8 nccl:all_gather 8 completed"

# Dumps of ranks 0 to 3 (None: the rank wrote no dump), and the report's line about collectives.
ROWS = {
    "a rank that is behind":
        ([waits(301), waits(301), done(300), waits(301)],
         "did not arrive in #301 nccl:all_reduce 1000 Float: rank 2"),
    "collectives enqueued after the one that waits":
        ([waits(5, WAITS.format(6), WAITS.format(7)), done(4, WAITS.format(5)), done(4), waits(5)],
         "did not arrive in #5 nccl:all_reduce 1000 Float: rank 2"),
    "a rank without a dump":
        ([done(1, WAITS.format(2)), None, waits(2), waits(2)],
         "did not arrive in #2 nccl:all_reduce 1000 Float: rank 1"),
    "a rank that was in no collective":
        ([waits(1), waits(1), waits(1), dump(groups={})],
         "did not arrive in #1 nccl:all_reduce 1000 Float: rank 3"),
    "all ranks in one collective":
        ([waits(9)] * 4, "all ranks are in #9 nccl:all_reduce 1000 Float"),
    "no rank waits":
        ([done(9), done(9), done(9), done(8)], None),
    "operations that do not match":
        ([waits(9), waits(9), dump("0 default_pg 9 nccl:broadcast 70000 started"), waits(9)],
         "ranks differ: rank 0 is in #9 nccl:all_reduce 1000 Float, and rank 2 in #9 nccl:broadcast 70000 Float"),
    "a collective without tensors, of a group that no dump describes":
        ([dump("0 default_pg 9 gloo:barrier - scheduled", groups={})] * 2 + [dump(groups={})] * 2,
         "did not arrive in #9 gloo:barrier: ranks 2, 3"),
    "point-to-point operations do not concern all ranks":
        ([dump("0 default_pg 9 nccl:send 8 started p2p"), done(3), waits(4), done(3)],
         "did not arrive in #4 nccl:all_reduce 1000 Float: ranks 0, 1, 3"),
    "retired collectives have ended with gloo, not with NCCL":
        ([dump("0 default_pg 3 gloo:all_reduce 8 scheduled retired", "0 default_pg 4 gloo:all_reduce 8 scheduled"),
          dump("0 default_pg 3 gloo:all_reduce 8 scheduled retired"),
          dump("0 default_pg 4 nccl:all_reduce 8 scheduled retired"),
          dump("0 default_pg 4 nccl:all_reduce 8 scheduled")],
         "did not arrive in #4 gloo:all_reduce 8 Float: rank 1"),
    "parts of coalesced operations never end":
        ([dump("0 default_pg 8 nccl:all_gather 8 scheduled", DONE.format(8))] + [done(8, WAITS.format(9))] * 3,
         "did not arrive in #9 nccl:all_reduce 1000 Float: rank 0"),
    "a group of two":
        ([done(3, PAIR, groups=pair(0, 1)), done(3, PAIR_BEFORE, groups=pair(0, 1)), done(3), done(3)],
         "did not arrive in #9 nccl:all_gather 8 Float of group pair: rank 1"),
    "a group without a description":
        ([dump(PAIR.replace("pair", "undefined"), groups=pair(0, 1)),
          dump(PAIR_BEFORE.replace("pair", "undefined"), groups=pair(0, 1)), dump(), dump()],
         "did not arrive in #9 nccl:all_gather 8 Float of group 1: rank 1"),
    "a missing rank that waits in another group":
        ([waits(4), done(3, PAIR, groups=pair(1, 2)), done(3, PAIR_BEFORE, groups=pair(1, 2)), waits(4)],
         "did not arrive in #9 nccl:all_gather 8 Float of group pair: rank 2"),
    "a missing rank that waits for one other rank":
        ([dump(LEFT, groups=HALVES[0]),
          dump(LEFT_BEFORE, "0 default_pg 0 nccl:recv 8 started p2p", groups=HALVES[1]),
          dump(RIGHT, groups=HALVES[2]), dump(RIGHT_BEFORE, groups=HALVES[3])],
         "did not arrive in #4 nccl:all_reduce 8 Float of group right: rank 3"),
    "the last point-to-point operation decides":
        ([dump(LEFT, groups=HALVES[0]),
          dump(LEFT_BEFORE, "0 default_pg 0 nccl:recv 8 scheduled p2p", "0 default_pg 0 nccl:coalesced - completed p2p",
               groups=HALVES[1]),
          dump(RIGHT, groups=HALVES[2]),
          dump(RIGHT_BEFORE, "0 default_pg 0 nccl:recv 8 started p2p", groups=HALVES[3])],
         "did not arrive in #4 nccl:all_reduce 8 Float of group left: rank 1"),
    "a missing rank that waits in a later group":
        ([dump(LEFT, groups={"1": "[0, 1]"}),
          dump(LEFT_BEFORE, PAIR.replace("1 ", "2 ", 1), groups={"1": "[0, 1]", "2": "[1, 2]"}),
          dump(PAIR_BEFORE.replace("1 ", "2 ", 1), groups={"2": "[1, 2]"}), dump(groups={})],
         "did not arrive in #9 nccl:all_gather 8 Float of group pair: rank 2"),
    "groups of one name with different ranks":
        ([dump("1 mesh 9 nccl:all_gather 8 started", groups={"1": "[0, 1]"})] * 2
         + [dump("1 mesh 7 nccl:all_gather 8 started", groups={"1": "[2, 3]"}),
            dump("1 mesh 6 nccl:all_gather 8 completed", groups={"1": "[2, 3]"})],
         "did not arrive in #7 nccl:all_gather 8 Float of group mesh: rank 3"),
    "pickles of all protocols":
        ([waits(5, protocol=1), waits(5, protocol=4), waits(5, protocol=5), done(4)],
         "did not arrive in #5 nccl:all_reduce 1000 Float: rank 3"),
    "a list that torch writes as a call":
        ([waits(5).replace(b"X\x0c\0\0\0input_dtypes", b"X\x01\0\0\0xctorch.jit._pickle\nbuild_intlist\n(](K\1etRX\x0c\0\0\0input_dtypes", 1),
          waits(5), waits(5), done(4)],
         "did not arrive in #5 nccl:all_reduce 1000 Float: rank 3"),
    "control characters, quotes and surrogates in names":
        ([dump('0 g\x1b"\udc80\\ 9 nccl:x\x00\u202e 8 started', groups={}), dump(groups={}), dump(groups={}), dump(groups={})],
         'all ranks are in #9 nccl:x?? 8 Float of group g?"?\\'),
}

# Pickles that the decoder must reject. The report counts each as a missing dump.
BAD = [
    b"", b"dump", b".", b"].", b"}.", b"}\x8c\7entriesK\1s.", b"}\x8c\7entries]K\1as.", b"}\x8c\7entries]s",
    b"}\x8c\7entries]s}.", b"}(\x8c\7entriesu.", b"K\1(K\2e.", b"](K\1K\2u.", b"}\x8c\7entries]u.", b"(e.", b"K\1\x86.",
    b"t.", b"X\377\377\377\377x.", b"\x8d" + 8 * b"\377" + b"x.", b"\x96" + 7 * b"\377" + b"\x7fx.", b"\x8a\x08\1\2",
    b"h\0.", b"j\377\377\377\377.", b"}r\377\377\377\177.", b"q\0.", b"cos\nsystem", b"R.", b"}\x8c\7entries]s\377.",
    b"\x82\1.", b"P1\n.", b"(" * 1000000 + b".", b"]" * 1000000 + b".", b"(]" * 1000000 + b"t.",
    b"]" + b"\x85" * 1000000 + b".", b"}" * 1000000 + b".", b"N" * 10000000 + b".", b"I" + b"9" * 1000000 + b"\n.",
    b"}]" + b"\x85" * 1000000 + b"K\1s.",  # a key whose hash needs recursion, which overflows the stack
]


class Dumps(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.TemporaryDirectory()
        self.addCleanup(self.top.cleanup)
        self.path = pathlib.Path(self.top.name)
        self.path.joinpath("failed").mkdir()
        self.path.joinpath("python3").symlink_to(os.path.join(PYTHON, "python3"))

    def put(self, dumps):
        """Creates the files of an attempt that hung, with these dumps."""
        failed = self.path / "failed"
        self.ranks = str(len(dumps))
        for rank, data in enumerate(dumps):
            if data is not None:
                failed.joinpath(f"fr-{rank}").write_bytes(data)

    def explain(self):
        """Returns the report's lines about collectives (None: no line) and about dumps."""
        environment = {**os.environ, "PATH": f"{self.path}:/usr/bin:/bin", "PYTHONPATH": str(self.path)}
        said = subprocess.run([REPORT, "failed", self.ranks], cwd=self.path, stdin=subprocess.DEVNULL, check=True,
                              stdout=subprocess.PIPE, env=environment).stdout.decode()
        lines = dict(line.partition(": ")[::2] for line in said.splitlines())
        about = [key for key in lines if key.startswith("PyTorch's flight recorder left ")]
        self.assertEqual(lines[about[0]], "torchfrtrace --prefix fr- failed")
        return lines.get("collectives"), about[0][len("PyTorch's flight recorder left "):].removesuffix(". Print them")

    def test_rows(self):
        for name, (dumps, said) in ROWS.items():
            with self.subTest(name):
                for old in self.path.glob("failed/fr-*"):
                    old.unlink()
                self.put(dumps)
                self.assertEqual(self.explain()[0], said)

    def test_real(self):
        """Of three ranks with gloo, rank 2 does not arrive in the fifth all-reduce. Two of the ranks form another group."""
        self.put([REAL.joinpath(f"gloo-{rank}").read_bytes() for rank in range(3)])
        self.assertEqual(self.explain(), ("did not arrive in #5 gloo:all_reduce 100 Float: rank 2", "3 dumps"))

    def check_bad(self, count):
        ranks = f"rank{'s' if count > 1 else ''} {', '.join(map(str, range(1, min(count, 16) + 1)))}"
        more = f" and {count - 16} more" if count > 16 else ""
        self.assertEqual(self.explain(), (f"did not arrive in #9 nccl:all_reduce 1000 Float: {ranks}{more}",
                                          f"{count + 1} dumps"))

    def test_bad_dumps_count_as_absent(self):
        self.put([waits(9, groups={}), *BAD])
        self.check_bad(len(BAD))

    def test_a_dump_that_takes_too_long_counts_as_absent(self):
        """A pickle with a key whose hash takes 2^60 steps."""
        self.put([waits(9, groups={}), b"}K\1" + b"2\x86" * 60 + b"K\1s."])
        self.check_bad(1)

    def test_a_dump_that_is_cut_off_counts_as_absent(self):
        whole = waits(9)
        self.put([waits(9, groups={}), *(whole[:size] for size in range(0, len(whole), 7))])
        self.check_bad(len(range(0, len(whole), 7)))

    def test_files_that_are_no_plain_files_count_as_absent(self):
        self.put([waits(9, groups={}), *[None] * 5])
        failed = self.path / "failed"
        os.mkfifo(failed / "fr-1")
        failed.joinpath("fr-2").symlink_to("/dev/zero")
        failed.joinpath("fr-3").mkdir()
        with open(failed / "fr-4", "wb") as large:
            large.truncate(1 << 40)
        failed.joinpath("fr-5").symlink_to("/nowhere")
        self.check_bad(5)

    def test_nothing_that_a_pickle_names_is_called(self):
        ran = self.path / "ran"
        call = f"(X{chr(len(f'touch {ran}'))}\0\0\0touch {ran}tR".encode()
        self.put([waits(9, groups={}), b"cos\nsystem\n" + call + b".", b"cposix\nsystem\n" + call + b".",
                  b"cbuiltins\neval\n" + call + b".", b"\x8c\2os\x8c\6system\x93" + call + b".",
                  b"(X\1\0\0\0xios\nsystem\n.", b"ctorch.jit._pickle\nbuild_os.system\n" + call + b"."])
        self.check_bad(6)
        self.assertFalse(ran.exists())

    def put_python(self, script):
        self.path.joinpath("python3").unlink()
        self.path.joinpath("python3").write_text(f"#!/bin/sh\n{script}\n")
        self.path.joinpath("python3").chmod(0o755)

    def test_the_report_says_why_dumps_were_not_decoded(self):
        self.put([waits(9), done(8)])
        for script, why in (("kill -9 $$", "python3 was killed by SIGKILL"), ("exit 3", "python3 ended with exit status 3"),
                            ("exit 127", "no python3 on this host"), ("echo '[{\"rank\":0,\"there\":1'", "the output of python3 is not valid"),
                            ("yes '[[[['| head -c 100000000", "the output of python3 is not valid"), ("true", "the output of python3 is not valid"),
                            ("sleep 300 & wait", "python3 took more than 20 s")):
            with self.subTest(script):
                self.put_python(script)
                self.assertEqual(self.explain(), (None, f"2 dumps, which were not decoded ({why})"))

    def test_decoding_ignores_modules_of_the_user(self):
        self.put([waits(9)] * 2)
        for place in (self.path, self.path / "failed"):
            place.joinpath("json.py").write_text("raise SystemExit(7)")
        self.assertEqual(self.explain()[1], "2 dumps")


unittest.main(verbosity=2)

"""Helion's traces: a real one, and events put together by hand."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from llamea_gpu.errors import SpaceFormatError
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.recording import STATUSES


def event(kind="trial", warps=4, status="ok", perf=1.5, at=10.0, compile_s=0.25, **changed):
    return {
        "schema_version": 1,
        "run_id": "run",
        "event": kind,
        "elapsed_s": at,
        "config": {"num_warps": warps, "block_sizes": [64, 32], "loop_orders": [[0, 1]]},
        "status": status,
        "perf_ms": perf if status in ("ok", "deduplicated") else None,
        "objective_unit": "ms",
        "compile_time_s": compile_s,
        **changed,
    }


def lines(*events):
    return "".join(json.dumps(e) + "\n" for e in events)


@pytest.fixture
def read(write):
    def read(*events, name="run.trace.jsonl"):
        return import_recording(write(lines(*events), name))[0]

    return read


OTHER = event(warps=8, perf=9.0)


# -- real traces --------------------------------------------------------------------------------


def test_a_real_trace(data):
    path = data / "softmax.trace.jsonl.gz"
    recording, warnings = import_recording(path)
    events = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    trials = [e for e in events if e["event"] == "trial"]
    assert warnings == ()
    assert recording.space.size == len({e["config_id"] for e in trials}) == 158
    assert recording.ok.all()
    assert not recording.info.exhaustive
    assert recording.compile_s.sum() == pytest.approx(sum(e["compile_time_s"] for e in trials))


def test_the_sidecar_of_a_real_trace_says_what_was_tuned(data):
    info = import_recording(data / "softmax.trace.jsonl.gz")[0].info
    assert (info.kernel, info.device, info.parallel_workers) == ("softmax", "NVIDIA H200", 16)
    assert info.kernel_source.startswith("@helion.kernel")
    assert info.arguments == ({"shapes": "[(2048, 2048)]", "dtypes": "['torch.bfloat16']"},)


def test_a_real_rebenchmark_replaces_the_first_reading(data):
    path = data / "softmax.trace.jsonl.gz"
    recording, _ = import_recording(path)
    last = {}
    for line in gzip.decompress(path.read_bytes()).splitlines():
        e = json.loads(line)
        if e["event"] in ("trial", "rebenchmark"):
            last[json.dumps(e["config"], sort_keys=True)] = e["perf_ms"]
    assert sorted(recording.time_ms) == sorted(last.values())


def test_real_benchmarks_take_about_as_long_as_helion_says(data):
    recording, _ = import_recording(data / "softmax.trace.jsonl.gz")
    assert 0.05 < np.median(recording.benchmark_s) < 0.1


def test_real_runs_in_which_nothing_worked(data):
    recording, warnings = import_recording(data / "three_runs.trace.jsonl")
    assert warnings == ("3 runs are merged: they must have tuned the same kernel",)
    assert recording.space.size == 2
    assert not recording.ok.any()


# -- configurations -----------------------------------------------------------------------------


def test_lists_become_parameters_and_constants_become_provenance(read):
    recording = read(
        event(config={"block_sizes": [64, 32], "num_warps": 4, "order": [[0, 1]], "none": []}),
        event(config={"block_sizes": [64, 16], "num_warps": 4, "order": [[1, 0]], "none": []}),
    )
    assert recording.space.names == ("block_sizes[1]", "order[0]")
    assert recording.space.values == ((16, 32), ("[0, 1]", "[1, 0]"))
    constants = json.loads(recording.info.provenance["constants"])
    assert constants == {"block_sizes[0]": 64, "num_warps": 4, "none": "[]"}


def test_an_entry_left_out_has_the_value_none(read):
    recording = read(event(config={"num_warps": 4}), event(config={"num_warps": 4, "maxnreg": 32}))
    assert recording.space.names == ("maxnreg",)
    assert recording.space.values == ((None, 32),)


# -- timings ------------------------------------------------------------------------------------


def test_the_last_finite_timing_counts(read):
    recording = read(
        event(perf=1.5),
        OTHER,
        event("rebenchmark", perf=1.25, compile_s=None),
        event("rebenchmark", status="error", compile_s=None),
    )
    assert recording.time_ms.tolist() == [1.25, 9.0]
    assert "1 configurations were timed more than once" in recording.info.provenance["time_ms"]


def test_a_repaired_failure_is_no_failure(read):
    recording = read(event(status="timeout"), OTHER, event(status="deduplicated", perf=2.0))
    assert recording.time_ms.tolist() == [2.0, 9.0]


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("error", "error"),
        ("timeout", "timeout"),
        ("peer_compilation_fail", "compile_error"),
        ("accuracy_error", "incorrect"),
        ("source_rejected", "incorrect"),
    ],
)
def test_every_kind_of_failure_is_kept_apart(read, word, status):
    recording = read(event(status=word), OTHER)
    assert STATUSES[recording.status[0]] == status
    assert recording.time_ms[0] == np.inf


def test_what_was_filtered_never_was_a_candidate(read):
    assert read(event(), OTHER, event(warps=16, status="filtered")).space.size == 2


def test_a_trial_that_never_ended_is_left_out(read):
    assert read(event(), OTHER, event("trial_start", warps=16, status="started")).space.size == 2


def test_other_events_are_ignored(read):
    meta = {"schema_version": 1, "run_id": "run", "event": "llm_request", "anything": [1]}
    assert read(meta, event(), OTHER, event("selected", status=None)).space.size == 2


def test_benchmark_seconds_run_from_the_start_of_timing_to_the_trial(read):
    recording = read(
        event("trial_start", status="started", at=10.0),
        event(at=10.07),
        event(warps=8, status="error", at=12.0),
    )
    assert recording.benchmark_s.tolist() == pytest.approx([0.07, 0.0])


def test_compile_seconds_are_the_first_given(read):
    recording = read(
        event(compile_s=None),
        event(compile_s=0.5),
        event(compile_s=3.0),
        event(warps=8, compile_s=None),
    )
    assert recording.compile_s.tolist() == [0.5, 0.0]


def test_without_a_sidecar_the_clock_is_sequential_and_says_so(read):
    info = read(event(), OTHER).info
    assert info.parallel_workers == 1
    assert "taken as 1" in info.provenance["parallel_workers"]


# -- damage -------------------------------------------------------------------------------------


def test_a_last_line_cut_short_is_left_out_with_a_warning(write):
    text = lines(event(), OTHER, event(warps=16))[:-30]
    recording, warnings = import_recording(write(text, "run.trace.jsonl"))
    assert recording.space.size == 2
    assert warnings == ("line 3 is cut short (a killed run): left out",)


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(write):
    text = lines(event()) + "{oops\n" + lines(OTHER)
    with pytest.raises(SpaceFormatError, match="line 2 column 2: malformed JSON"):
        import_recording(write(text, "run.trace.jsonl"))


BAD_EVENTS = {
    "another schema": (event(schema_version=2), "line 2: schema_version must be 1, but is 2"),
    "no config": (event(config=None), "'config' must be a JSON object"),
    "an empty config": (event(config={}), "'config' is empty"),
    "unknown status": (event(status="odd"), "but is 'odd'"),
    "no status": (event(status=None), "'status' must be a string"),
    "ok without a time": (event(perf=None), "'perf_ms' must be a number > 0 when ok"),
    "time zero": (event(perf=0.0), "'perf_ms' must be a number > 0"),
    "time negative": (event(perf=-1), "'perf_ms' must be a number > 0"),
    "time a text": (event(perf="1"), "'perf_ms' must be a number > 0"),
    "another unit": (event(objective_unit="us"), "must be in ms, but are in 'us'"),
    "negative compile time": (event(compile_s=-1), "compile_time_s must be a finite"),
    "a list": ([1], "line 2: must be a JSON object"),
}


@pytest.mark.parametrize("case", BAD_EVENTS)
def test_bad_events_are_refused_with_their_line(read, case):
    bad, complaint = BAD_EVENTS[case]
    with pytest.raises(SpaceFormatError, match=complaint):
        read(event(warps=2), bad, OTHER)


def test_a_trace_of_one_configuration_is_no_space(read):
    with pytest.raises(SpaceFormatError, match="only one configuration"):
        read(event(), event())


def test_a_trace_without_trials_is_no_space(read):
    with pytest.raises(SpaceFormatError, match="no trial ended"):
        read(event("run_start"), event("trial_start", status="started"))


def test_a_damaged_sidecar_is_refused_by_name(write):
    path = write(lines(event(), OTHER), "run.trace.jsonl")
    sidecar = write("{oops", "run.meta.jsonl")
    with pytest.raises(SpaceFormatError) as caught:
        import_recording(path)
    assert caught.value.path == sidecar


def test_an_empty_sidecar_is_like_none(write):
    path = write(lines(event(), OTHER), "run.trace.jsonl")
    write("\n", "run.meta.jsonl")
    assert import_recording(path)[0].info.device == "unknown"


def test_a_t1_file_makes_no_sense_with_it(write):
    path = write(lines(event(), OTHER), "run.trace.jsonl")
    with pytest.raises(SpaceFormatError, match="no T1 file"):
        import_recording(path, t1=path)

"""T4 with and without its T1 file: real files, and files made to harm."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from llamea_gpu.errors import SpaceFormatError
from llamea_gpu.spaces.formats import export_recording, import_recording
from llamea_gpu.spaces.recording import STATUSES


def result(**changed):
    """One correct result of the space a in {1, 2, 4} x b in {x, y}."""
    return {
        "configuration": {"a": 1, "b": "x"},
        "times": {
            "compilation": 1000.0,
            "framework": 20.0,
            "search_algorithm": 3.0,
            "validation": 400.0,
            "runtimes": [2.0, 4.0],
        },
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [{"name": "time", "value": 3.0, "unit": "ms"}],
        "objectives": ["time"],
        **changed,
    }


def other(a=2, b="x", **changed):
    return result(configuration={"a": a, "b": b}, **changed)


def t4(*results, **changed):
    document = {"metadata": {"timeunit": "miliseconds"}, "schema_version": "1.0.0"}
    return {**document, "results": list(results), **changed}


def t1(values="[1, 2, 4]", conditions=()):
    return {
        "General": {"BenchmarkName": "toy"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": "b", "Type": "string", "Values": "['y', 'x']", "Default": "x"},
                {"Name": "a", "Type": "int", "Values": values, "Default": 16},
            ],
            "Conditions": [{"Expression": e, "Parameters": []} for e in conditions],
        },
        "KernelSpecification": {
            "Language": "CUDA",
            "KernelName": "toy_kernel",
            "Arguments": [{"Name": "x", "Type": "float"}],
        },
    }


# -- real files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "failing"),
    [
        ("convolution/A100", 4362, 161),
        ("convolution/MI250X", 4362, 0),
        ("dedispersion/A100", 11130, 0),
    ],
)
def test_the_hubs_files_are_exhaustive_for_their_t1(shared_spaces, name, size, failing):
    path = shared_spaces / "kernel_tuner" / f"{name}_T4.json.gz"
    recording, warnings = import_recording(path, t1=path.parent / "T1.json")
    assert warnings == ()
    assert recording.info.exhaustive
    assert recording.space.size == size
    assert (~recording.ok).sum() == failing
    assert recording.info.name == name.replace("/", "-")
    assert recording.info.kernel == name.split("/")[0] + "_kernel"
    assert recording.info.device == name.split("/")[1]


def test_without_t1_the_same_space_comes_out_but_nothing_says_that_it_is_whole(shared_spaces):
    path = shared_spaces / "kernel_tuner/convolution/A100_T4.json.gz"
    bare, _ = import_recording(path)
    described, _ = import_recording(path, t1=path.parent / "T1.json")
    assert bare.space.fingerprint == described.space.fingerprint
    assert np.array_equal(bare.time_ms, described.time_ms)
    assert not bare.info.exhaustive


def test_the_cache_of_the_same_run_gives_the_same_space_and_times(shared_spaces):
    folder = shared_spaces / "kernel_tuner/convolution"
    results, _ = import_recording(folder / "A100_T4.json.gz")
    cache, _ = import_recording(folder / "A100.json.gz")
    assert results.space.fingerprint == cache.space.fingerprint
    assert np.array_equal(results.time_ms, cache.time_ms)
    assert np.array_equal(results.status, cache.status)
    assert np.array_equal(results.compile_s, cache.compile_s)


def test_the_t1_of_another_kernel_is_refused(shared_spaces):
    folder = shared_spaces / "kernel_tuner"
    with pytest.raises(SpaceFormatError, match=r"results\[0\]: the parameter 'block_size_z'"):
        import_recording(folder / "convolution/A100_T4.json.gz", t1=folder / "dedispersion/T1.json")


def test_a_truncated_gzip_names_position_and_remedy(shared_spaces):
    path = shared_spaces / "broken/truncated_T4.json.gz"
    with pytest.raises(SpaceFormatError) as caught:
        import_recording(path)
    assert caught.value.path == path
    assert caught.value.position == "compressed byte 3523584, text byte 18986441"
    assert "truncated" in str(caught.value)
    assert "Get the whole file again" in str(caught.value)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.999])
def test_a_real_file_cut_anywhere_is_an_error_with_a_line(shared_spaces, tmp_path, share):
    text = gzip.decompress(
        (shared_spaces / "kernel_tuner/convolution/MI250X_T4.json.gz").read_bytes()
    )
    path = tmp_path / "cut.json"
    path.write_bytes(text[: int(len(text) * share)])
    with pytest.raises(SpaceFormatError, match=r"line \d+ column \d+: .*Get the whole file again"):
        import_recording(path)


# -- what is charged ----------------------------------------------------------------------------


def test_seconds_are_what_the_methodology_charges(write):
    recording, _ = import_recording(write(t4(result())))
    assert recording.compile_s.tolist() == [1.0]
    assert recording.benchmark_s.tolist() == pytest.approx([0.429])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["convolution/A100"])
def test_the_methodology_package_charges_the_same(shared_spaces, tmp_path, name):
    statistics = pytest.importorskip("autotuning_methodology.searchspace_statistics")
    keys = ["compilation", "runtimes", "framework", "search_algorithm", "validation"]
    source = shared_spaces / "kernel_tuner" / f"{name}_T4.json.gz"
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(source.read_bytes()))
    recording, _ = import_recording(source)
    theirs = statistics.SearchspaceStatistics("k", "d", True, keys, ["time"], plain)
    ours_s, theirs_s = np.sort(recording.evaluation_s), np.sort(theirs.objective_times_total)
    np.testing.assert_allclose(ours_s, theirs_s, rtol=1e-14)
    exported = tmp_path / "exported.json"
    export_recording(recording, exported, "t4")
    theirs = statistics.SearchspaceStatistics("k", "d", True, keys, ["time"], exported)
    assert np.array_equal(theirs.objective_times_total, recording.evaluation_s)
    times = theirs.objective_performances_total
    assert np.array_equal(np.where(np.isnan(times), np.inf, times), recording.time_ms)


@pytest.mark.filterwarnings("ignore")
def test_an_export_fits_the_published_schema(awkward, tmp_path):
    validators = pytest.importorskip("autotuning_methodology.validators")
    path = tmp_path / "x.json"
    export_recording(awkward, path, "t4")
    validators.validate_T4(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [("seconds", 1000), ("s", 1000), ("Milliseconds", 1), ("ms", 1), ("ns", 1e-6), (None, 1000)],
)
def test_the_time_unit_is_honoured_and_missing_means_seconds(write, unit, seconds):
    recording, _ = import_recording(
        write(t4(result(), metadata={"timeunit": unit} if unit else {}))
    )
    assert recording.compile_s.tolist() == pytest.approx([seconds])


def test_kernel_tuners_benchmark_time_stands_in_for_missing_runtimes(write):
    times = {"compilation": 1000.0, "benchmark": 70.0, "runtimes": []}
    recording, _ = import_recording(write(t4(result(times=times))))
    assert recording.benchmark_s.tolist() == [0.07]


def test_the_mean_of_runtimes_stands_in_for_a_missing_measurement(write):
    recording, _ = import_recording(write(t4(result(measurements=[]))))
    assert recording.time_ms.tolist() == [3.0]


def test_a_measurement_in_seconds_is_converted(write):
    measurements = [{"name": "GFLOP/s", "value": 9}, {"name": "time", "value": 3, "unit": "s"}]
    recording, _ = import_recording(write(t4(result(measurements=measurements))))
    assert recording.time_ms.tolist() == [3000.0]


# -- status -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("invalidity", "value", "status"),
    [
        ("correct", 3.0, "ok"),
        ("compile", "CompilationFailedConfig", "compile_error"),
        ("runtime", "RuntimeFailedConfig", "runtime_error"),
        ("correctness", 3.0, "incorrect"),
        ("timeout", "", "timeout"),
        ("correct", "RuntimeFailedConfig", "runtime_error"),
        ("correct", "CompilationFailedConfig", "compile_error"),
        ("correct", 1e20, "error"),
    ],
)
def test_every_kind_of_failure_is_kept_apart(write, invalidity, value, status):
    measurements = [{"name": "time", "value": value, "unit": ""}]
    one = result(invalidity=invalidity, measurements=measurements)
    recording, _ = import_recording(write(t4(one)))
    assert STATUSES[recording.status[0]] == status
    assert np.isfinite(recording.time_ms[0]) == (status == "ok")


def test_configurations_that_break_constraints_are_left_out_with_a_warning(write):
    document = t4(result(), other(invalidity="constraints"))
    recording, warnings = import_recording(write(document))
    assert recording.space.size == 1
    assert warnings[0] == "1 configurations that break constraints were left out"


def test_without_t1_it_is_said_what_is_unknown_and_how_to_add_it(write):
    (warning,) = import_recording(write(t4(result(), other())))[1]
    assert "--t1 T1.json" in warning


# -- with a T1 file -----------------------------------------------------------------------------


def test_values_and_their_order_come_from_t1(write):
    document = t4(result(), other(4, "y"))
    recording, _ = import_recording(write(document), t1=write(t1(), "T1.json"))
    assert recording.space.names == ("b", "a")
    assert recording.space.values == (("y", "x"), (1, 2, 4))
    assert recording.info.default_configuration == {"b": "x", "a": 16}
    assert recording.info.framework == "CUDA"
    assert recording.info.arguments == ({"Name": "x", "Type": "float"},)


def test_missing_valid_configurations_are_counted(write):
    description = write(t1(conditions=["a < 4 or b == 'x'"]), "T1.json")
    recording, warnings = import_recording(write(t4(result(), other())), t1=description)
    assert not recording.info.exhaustive
    assert warnings == ("3 of 5 valid configurations were not measured",)


def test_exhaustive_when_every_valid_configuration_was_measured(write):
    description = write(t1(conditions=["a * 2 <= 4", "b == 'x'"]), "T1.json")
    recording, warnings = import_recording(write(t4(result(), other())), t1=description)
    assert recording.info.exhaustive
    assert warnings == ()


def test_a_row_that_breaks_a_constraint_is_an_error_that_names_both(write):
    description = write(t1(conditions=["a < 4", "a != 2"]), "T1.json")
    with pytest.raises(SpaceFormatError, match=r"results\[1\]: breaks the constraint 'a != 2'"):
        import_recording(write(t4(result(), other())), t1=description)


def test_a_value_that_t1_lacks_is_an_error(write):
    with pytest.raises(SpaceFormatError, match=r"results\[1\]: a = 3 is not among the declared"):
        import_recording(write(t4(result(), other(3))), t1=write(t1(), "T1.json"))


def test_an_astronomic_product_is_counted_where_constraints_leave_it_free(write):
    names = [f"p{i}" for i in range(40)]
    description = {
        "ConfigurationSpace": {
            "TuningParameters": [{"Name": n, "Values": "range(1000)"} for n in names],
            "Conditions": [{"Expression": "p0 < 3"}],
        }
    }
    one = result(configuration=dict.fromkeys(names, 0))
    recording, warnings = import_recording(write(t4(one)), t1=write(description, "T1.json"))
    assert not recording.info.exhaustive
    assert "of 3,000,000," in warnings[0]


def test_too_many_combinations_to_count_is_a_warning_and_not_a_hang(write):
    names = [f"p{i}" for i in range(40)]
    description = {
        "ConfigurationSpace": {
            "TuningParameters": [{"Name": n, "Values": "range(1000)"} for n in names],
            "Conditions": [{"Expression": " + ".join(names) + " < 40"}],
        }
    }
    one = result(configuration=dict.fromkeys(names, 0))
    _, warnings = import_recording(write(t4(one)), t1=write(description, "T1.json"))
    assert warnings == ("too many combinations to tell whether all valid ones were measured",)


BAD_T1 = {
    "no space": ({}, "'ConfigurationSpace' is missing"),
    "values evaluated": (t1("__import__('os')"), r"TuningParameters\[1\]: values must be a list"),
    "values a number": (t1(7), "'Values' must be a list"),
    "values empty": (t1([]), "at least one value"),
    "a nested value": (t1([[1]]), "list or an object"),
    "values repeated": (t1("[1, 1]"), "all distinct"),
    "an attack": (t1(conditions=["__import__('os').system('true')"]), r"Conditions\[0\]"),
    "an unknown name": (t1(conditions=["d > 1"]), "mentions 'd'"),
    "a bomb": (t1(conditions=["9**9**9 > a"]), "Conditions: the constraint .* must be computable"),
    "no expression": (
        {**t1(), "ConfigurationSpace": {**t1()["ConfigurationSpace"], "Conditions": [{}]}},
        "'Expression' is missing",
    ),
    "conditions a text": (
        {**t1(), "ConfigurationSpace": {**t1()["ConfigurationSpace"], "Conditions": "x"}},
        "Conditions: must be an array",
    ),
    "no parameters": ({"ConfigurationSpace": {"TuningParameters": []}}, "at least one parameter"),
    "a list": ([], "must be a JSON object"),
}


@pytest.mark.parametrize("case", BAD_T1)
def test_bad_t1_files_are_refused_by_name(write, case):
    document, complaint = BAD_T1[case]
    description = write(document, "T1.json")
    with pytest.raises(SpaceFormatError, match=complaint) as caught:
        import_recording(write(t4(result())), t1=description)
    assert caught.value.path == description


# -- files made to harm -------------------------------------------------------------------------

TIMES = result()["times"]
BAD_RESULTS = {
    "duplicate": ([result(), result()], r"results\[1\]: the same configuration as results\[0\]"),
    "equal values": ([result(), other(1.0)], r"results\[1\]: the same configuration"),
    "another parameter": ([result(), result(configuration={"a": 1, "c": 2})], "'b' has no value"),
    "one too many": (
        [result(), result(configuration={"a": 1, "b": "x", "c": 2})],
        r"parameters that the space does not have: \['c'\]",
    ),
    "a list value": ([result(configuration={"a": [1], "b": 2})], "list or an object"),
    "no configuration": ([result(configuration=None)], "'configuration' must be a JSON object"),
    "an empty configuration": ([result(configuration={})], "at least one parameter"),
    "not an object": ([7], r"results\[0\]: must be a JSON object, but is int 7"),
    "no validity": ([result(invalidity=None)], "'invalidity' must be a string"),
    "unknown validity": ([result(invalidity="odd")], "must be one of .* but is 'odd'"),
    "no times": ([result(times=None)], "'times' must be a JSON object"),
    "negative seconds": (
        [result(times={**TIMES, "compilation": -1})],
        r"results\[0\].times: compilation must be a finite number >= 0, but is int -1",
    ),
    "seconds a text": ([result(times={**TIMES, "framework": "1"})], "framework must be a finite"),
    "seconds a bool": ([result(times={**TIMES, "framework": True})], "framework must be a finite"),
    "a negative runtime": ([result(times={**TIMES, "runtimes": [1, -2]})], "a runtime must be"),
    "runtimes a number": ([result(times={**TIMES, "runtimes": 5})], "'runtimes' must be an array"),
    "time zero": ([result(measurements=[{"name": "time", "value": 0}])], "must be a number > 0"),
    "time negative": ([result(measurements=[{"name": "time", "value": -3}])], "number > 0"),
    "time an array": ([result(measurements=[{"name": "time", "value": [3]}])], "number > 0"),
    "time a bool": ([result(measurements=[{"name": "time", "value": True}])], "number > 0"),
    "unknown unit": (
        [result(measurements=[{"name": "time", "value": 3, "unit": "GFLOP/s"}])],
        "in ms or s, but is 3 'GFLOP/s'",
    ),
    "neither time nor runtimes": (
        [result(measurements=[], times={"compilation": 1})],
        "neither a measurement 'time' nor runtimes",
    ),
    "an overflowing number": (
        [result(times={**TIMES, "compilation": 10**400})],
        "compilation must be a finite",
    ),
    "a contradicting status": ([result(llamea_gpu_status="timeout")], "fits 'ok'"),
    "nothing": ([], "no configuration was measured"),
    "nothing valid": ([result(invalidity="constraints")], "no configuration was measured"),
}


@pytest.mark.parametrize("case", BAD_RESULTS)
def test_bad_results_are_refused_with_their_place(write, case):
    results, complaint = BAD_RESULTS[case]
    with pytest.raises(SpaceFormatError, match=complaint):
        import_recording(write(t4(*results)))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("place", ["1000.0", "2.0", "3.0"])
def test_numbers_beyond_json_are_refused(write, number, place):
    text = json.dumps(t4(result())).replace(place, number, 1)
    with pytest.raises(SpaceFormatError, match="number"):
        import_recording(write(text))


@pytest.mark.parametrize(
    ("metadata", "complaint"),
    [
        ({"timeunit": "fortnights"}, "'fortnights'"),
        ({"timeunit": 3}, "must be a string"),
        ([1], "must be a JSON object"),
        ({"llamea_gpu": {}}, "'parameters' is missing"),
        ({"llamea_gpu": 7}, "must be a JSON object"),
    ],
)
def test_bad_metadata_are_refused(write, metadata, complaint):
    with pytest.raises(SpaceFormatError, match=complaint):
        import_recording(write(t4(result(), metadata=metadata)))


BAD_TEXTS = {
    "a repeated key": ('{"results": [], "results": []}', "key 'results': appears twice"),
    "deep nesting": ('{"results": ' + "[" * 100_000, "nested too deeply"),
    "a huge number": ('{"results": [' + "9" * 5000 + "]}", "digits"),
    "garbage in the middle": ('{"results": [{}, x]}', r"line 1 column 18: malformed JSON"),
    "a list": ('[{"results": 1}]', "must be a JSON object"),
    "results an object": ('{"results": {}}', "'results' must be a JSON array"),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_bad_json_is_refused_with_its_place(write, case):
    text, complaint = BAD_TEXTS[case]
    with pytest.raises(SpaceFormatError, match=complaint):
        import_recording(write(text))


@pytest.mark.parametrize(
    "text", ["", "{}", "hello", "\x00\x01", "[]", '{"ConfigurationSpace": {}}', "PAR"]
)
def test_files_of_no_known_format_are_refused(write, text):
    with pytest.raises(SpaceFormatError, match="looks like none of"):
        import_recording(write(text))


def test_text_that_is_not_utf8_is_refused_with_its_place(tmp_path):
    path = tmp_path / "latin1.json"
    path.write_bytes('{"results": "é"}'.encode("latin-1"))
    with pytest.raises(SpaceFormatError, match="byte 13: not UTF-8"):
        import_recording(path)


def test_damaged_gzip_is_refused_with_its_place(write):
    path = write(json.dumps(t4(result())) * 50, "x.json.gz")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(SpaceFormatError, match=r"compressed byte \d+, text byte \d+: damaged gzip"):
        import_recording(path)


def test_gzip_of_several_members_is_read_whole(write):
    path = write("", "x.json.gz")
    text = json.dumps(t4(result())).encode()
    path.write_bytes(gzip.compress(text[:100]) + gzip.compress(text[100:]))
    assert import_recording(path)[0].space.size == 1


def test_what_follows_a_gzip_member_is_one_or_an_error(write):
    path = write(json.dumps(t4(result())), "x.json.gz")
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 10)  # as tapes pad
    assert import_recording(path)[0].space.size == 1
    for more, problem in ((b"<html>", "damaged gzip"), (whole[:-9], "truncated")):
        path.write_bytes(whole + more)
        with pytest.raises(SpaceFormatError, match=problem):
            import_recording(path)


def test_a_gzip_bomb_stops_at_the_limit(tmp_path, monkeypatch):
    from llamea_gpu.spaces.formats import _files

    monkeypatch.setattr(_files, "MAX_TEXT_BYTES", 1 << 22)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"results": [' + b" " * (1 << 27)))
    with pytest.raises(SpaceFormatError, match="at most 4194304 bytes of text"):
        import_recording(path)


def test_too_many_rows_are_refused(write, monkeypatch):
    from llamea_gpu.spaces.formats import _base

    monkeypatch.setattr(_base, "MAX_ROWS", 2)
    with pytest.raises(SpaceFormatError, match=r"results\[2\]: more than 2 configurations"):
        import_recording(write(t4(result(), other(2), other(4))))

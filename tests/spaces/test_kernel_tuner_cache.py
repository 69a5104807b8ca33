"""Kernel Tuner caches: real, interrupted and malformed ones, and Kernel Tuner reading ours."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from llamea_gpu.errors import SpaceError, SpaceFormatError
from llamea_gpu.resources import resource_dir
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.formats import export_recording, import_recording
from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo

SECONDS = {"compile_time": 500.0, "verification_time": 20.0, "benchmark_time": 80.0}


def entry(a=1, b=0, time=2.5, **changed):
    return {"a": a, "b": b, "time": time, **SECONDS, **changed}


def cache(*entries, **changed):
    header = {
        "device_name": "GPU 1",
        "kernel_name": "toy",
        "problem_size": [64, 64],
        "tune_params_keys": ["a", "b"],
        "tune_params": {"a": [4, 1, 2], "b": [0, 1]},
        "objective": "time",
    }
    keyed = {f"{e['a']},{e['b']}": e for e in entries}
    return {**header, **changed, "cache": keyed}


def unclosed(*entries, tail=","):
    """The text that Kernel Tuner leaves when it is killed: one entry a line, nothing closed."""
    text = json.dumps(cache(), indent="")[:-3]
    lines = [json.dumps({f"{e['a']},{e['b']}": e})[1:-1] for e in entries]
    return text + "".join(f"\n{line}," for line in lines)[:-1] + tail


# -- real files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "failing", "device", "exhaustive"),
    [
        ("convolution/A100", 4362, 161, "NVIDIA A100-PCIE-40GB", False),
        ("convolution_2020/RTX_3090", 6768, 1548, "NVIDIA GeForce RTX 3090", False),
        ("pnpoly/RTX_3090", 4092, 318, "NVIDIA GeForce RTX 3090", True),
        ("pnpoly/RTX_3060_laptop", 4092, 318, "NVIDIA GeForce RTX 3060 Laptop GPU", True),
    ],
)
def test_real_caches_are_read_whole(shared_spaces, name, size, failing, device, exhaustive):
    recording, warnings = import_recording(shared_spaces / "kernel_tuner" / f"{name}.json.gz")
    assert warnings == ()
    assert recording.space.size == size
    assert (~recording.ok).sum() == failing
    assert recording.info.device == device
    assert recording.info.name == name.replace("/", "-")
    # Only where the whole product was measured does a cache alone say that nothing is missing.
    assert recording.info.exhaustive == exhaustive


def test_a_t1_file_says_whether_a_cache_is_whole(shared_spaces):
    folder = shared_spaces / "kernel_tuner/convolution"
    recording, warnings = import_recording(folder / "A100.json.gz", t1=folder / "T1.json")
    assert recording.info.exhaustive
    assert warnings == ()


def test_an_interrupted_run_is_salvaged_and_counted(shared_spaces):
    path = shared_spaces / "broken/interrupted_run_unclosed.json.gz"
    recording, warnings = import_recording(path)
    # What Kernel Tuner itself would go on from: the text closed by hand.
    text = gzip.decompress(path.read_bytes()).decode().rstrip().rstrip(",") + "}}"
    expected = json.loads(text)["cache"]
    assert recording.space.size == len(expected) == 4214
    assert sorted(recording.time_ms) == sorted(e["time"] for e in expected.values())
    assert warnings == (
        "the cache was never closed (an interrupted run): 4,214 configurations kept",
    )
    assert not recording.info.exhaustive


def test_a_real_cache_cut_in_the_middle_of_an_entry_keeps_what_came_before(shared_spaces, write):
    path = shared_spaces / "kernel_tuner/pnpoly/RTX_3090.json.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    whole, _ = import_recording(path)
    place = text.index('"2,512,8,1": {') + 500
    recording, warnings = import_recording(write(text[:place]))
    kept = list(json.loads(text)["cache"]).index("2,512,8,1")
    assert recording.space.size == kept
    assert f"{kept:,} configurations kept, an incomplete one of" in warnings[0]
    rows = whole.space.rows(recording.space.configurations)
    assert np.array_equal(whole.time_ms[rows], recording.time_ms)


# -- what is charged, and status ----------------------------------------------------------------


def test_seconds_are_what_kernel_tuner_charges(write):
    recording, _ = import_recording(write(cache(entry())))
    assert recording.compile_s.tolist() == [0.5]
    assert recording.benchmark_s.tolist() == [0.1]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, "ok"),
        ({"time": "CompilationFailedConfig"}, "compile_error"),
        ({"time": "RuntimeFailedConfig"}, "runtime_error"),
        ({"time": "ErrorConfig"}, "error"),
        ({"time": 1e20}, "error"),
        ({"time": None, "__error__": "RuntimeFailedConfig"}, "runtime_error"),
    ],
)
def test_every_kind_of_failure_is_kept_apart(write, changed, status):
    recording, _ = import_recording(write(cache(entry(**changed))))
    assert STATUSES[recording.status[0]] == status


def test_invalid_configurations_are_left_out_with_a_warning(write):
    document = cache(entry(), entry(a=2, time="InvalidConfig"))
    recording, warnings = import_recording(write(document))
    assert recording.space.size == 1
    assert warnings == ("1 configurations that break constraints were left out",)


def test_values_keep_the_order_of_the_file(write):
    recording, _ = import_recording(write(cache(entry())))
    assert recording.space.values == ((4, 1, 2), (0, 1))


def test_values_are_derived_where_an_old_file_does_not_list_them(write):
    document = cache(entry(), entry(a=4))
    del document["tune_params"]
    recording, _ = import_recording(write(document))
    assert recording.space.values == ((1, 4), (0,))
    assert not recording.info.exhaustive


def test_the_whole_product_is_known_to_be_everything(write):
    entries = [entry(a=a, b=b) for a in (1, 2, 4) for b in (0, 1)]
    assert import_recording(write(cache(*entries)))[0].info.exhaustive
    assert not import_recording(write(cache(*entries[1:])))[0].info.exhaustive


# -- interrupted runs ---------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [",", "", ",\n", "}", "}\n", ",\n\n  "])
def test_every_complete_entry_of_an_unclosed_cache_is_kept(write, tail):
    recording, warnings = import_recording(write(unclosed(entry(), entry(a=2), tail=tail)))
    assert recording.space.size == 2
    assert "2 configurations kept" in warnings[0]
    assert "incomplete" not in warnings[0]


@pytest.mark.parametrize("kept", range(1, 60, 7))
def test_an_entry_cut_short_is_left_out_and_mentioned(write, kept):
    text = unclosed(entry(), entry(a=2), tail=",\n")
    half = json.dumps({"4,1": entry(a=4, b=1)})[1 : 1 + kept]
    recording, warnings = import_recording(write(text + half))
    assert recording.space.size == 2
    assert f"an incomplete one of {len(half.strip())} characters left out" in warnings[0]


def test_the_product_of_values_of_a_salvaged_cache_stays_whole(write):
    recording, _ = import_recording(write(unclosed(entry())))
    assert recording.space.cardinalities == (3, 2)


BAD_TEXTS = {
    "nothing complete": (unclosed(tail='\n"1,0": {"a": 1,'), "ends early"),
    "cut in the header": (unclosed(entry())[:100], "ends early"),
    "garbage in the middle": (
        unclosed(entry(), tail=',\n"2,0": {"a": oops},\n"4,0": {"a": 4,'),
        r"line \d+ column \d+: malformed JSON",
    ),
    "garbage, then closed": (json.dumps(cache(entry()))[:-2] + "x}}", "malformed JSON"),
    "garbage in the last entry, then closed": (
        unclosed(entry(), tail=',\n"2,0": {"a": oops}}}'),
        "malformed JSON",
    ),
    "text after the end": (json.dumps(cache(entry())) + "{}", "malformed JSON"),
    "the same key twice": (unclosed(entry(), entry()), r"cache\['1,0'\]: appears twice"),
    "the same key twice, closed": (
        unclosed(entry(), entry(), tail="}}"),
        "key '1,0': appears twice",
    ),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_what_is_not_an_interrupted_run_is_an_error(write, case):
    text, complaint = BAD_TEXTS[case]
    with pytest.raises(SpaceFormatError, match=complaint):
        import_recording(write(text))


def test_an_interrupted_run_in_a_truncated_gzip_is_an_error(write):
    path = write(unclosed(*[entry(a=a) for a in (1, 2, 4)]), "x.json.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SpaceFormatError, match="truncated"):
        import_recording(path)


# -- malformed entries --------------------------------------------------------------------------

BAD_ENTRIES = {
    "no time": (entry(time=None), r"cache\['1,0'\]: 'time' must be a number > 0"),
    "time zero": (entry(time=0), "number > 0"),
    "time negative": (entry(time=-1.0), "number > 0"),
    "time a list": (entry(time=[1]), "number > 0"),
    "time a bool": (entry(time=True), "number > 0"),
    "time an unknown word": (entry(time="Oops"), "not 'Oops'"),
    "no compile time": (entry(compile_time=None), "compile_time must be a finite number"),
    "no benchmark time": (entry(benchmark_time=None), "benchmark_time must be a finite number"),
    "negative seconds": (entry(verification_time=-1), "verification_time must be a finite"),
    "seconds a text": (entry(compile_time="1"), "compile_time must be a finite"),
    "an unknown status": (entry(time="ErrorConfig", llamea_gpu_status="odd"), "not 'odd'"),
    "a value not declared": (entry(a=3), "a = 3 is not among the declared values"),
}


@pytest.mark.parametrize("case", BAD_ENTRIES)
def test_bad_entries_are_refused_with_their_key(write, case):
    bad, complaint = BAD_ENTRIES[case]
    with pytest.raises(SpaceFormatError, match=complaint):
        import_recording(write(cache(bad)))


def test_a_parameter_without_a_value_is_refused(write):
    bad = entry()
    document = cache(bad)
    del bad["b"]
    with pytest.raises(SpaceFormatError, match=r"cache\['1,0'\]: the parameter 'b' has no value"):
        import_recording(write(document))


def test_a_list_as_a_value_is_refused(write):
    with pytest.raises(SpaceFormatError, match="list or an object"):
        import_recording(write(cache(entry(a=[1]))))


def test_the_same_configuration_under_two_keys_is_refused(write):
    document = cache(entry())
    document["cache"]["again"] = entry()
    with pytest.raises(SpaceFormatError, match=r"cache\['again'\]: the same configuration as"):
        import_recording(write(document))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"tune_params_keys": "ab"}, "'tune_params_keys' must be a JSON array"),
        ({"tune_params_keys": [1]}, "array of strings"),
        ({"tune_params_keys": ["a", "c"]}, "the parameter 'c' has no value"),
        ({"tune_params": {"a": [1]}}, r"tune_params\['b'\] must be an array"),
        ({"tune_params": {"a": 1, "b": [0]}}, r"tune_params\['a'\] must be an array"),
        ({"tune_params": {"a": [[1]], "b": [0]}}, r"tune_params\['a'\] must be an array"),
        ({"tune_params": {"a": [1, 1], "b": [0]}}, "all distinct"),
        ({"kernel_name": None}, "'kernel_name' must be a string"),
        ({"device_name": 7}, "'device_name' must be a string"),
        ({"llamea_gpu": {"name": "x"}}, "'arguments' is missing"),
        ({"llamea_gpu": 3}, "must be a JSON object"),
    ],
)
def test_bad_headers_are_refused(write, changed, complaint):
    with pytest.raises(SpaceFormatError, match=complaint):
        import_recording(write(cache(entry(), **changed)))


def test_a_cache_without_entries_is_refused(write):
    with pytest.raises(SpaceFormatError, match="no configuration was measured"):
        import_recording(write(cache()))


# -- Kernel Tuner reads what we write -----------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["softmax-4096x4096.parquet", "kernel_tuner/pnpoly/RTX_3090.json.gz"]
)
def test_kernel_tuner_simulates_from_an_export(shared_spaces, tmp_path, name):
    kernel_tuner = pytest.importorskip("kernel_tuner")
    folder = resource_dir("tuning_spaces") if name.endswith(".parquet") else shared_spaces
    recording, _ = import_recording(folder / name)
    space, path = recording.space, tmp_path / "cache.json"
    export_recording(recording, path, "kernel-tuner")
    before = path.read_bytes()
    results, environment = kernel_tuner.tune_kernel(
        recording.info.kernel,
        "",
        json.loads(recording.info.provenance.get("problem_size", "[1]")),
        [],
        dict(zip(space.names, map(list, space.values), strict=True)),
        cache=str(path),
        simulation_mode=True,
        strategy="brute_force",
        quiet=True,
    )
    assert path.read_bytes() == before  # it took the file for closed
    assert len(results) == space.size
    rows = {tuple(space.value_dict(space.configuration(i)).values()): i for i in range(space.size)}
    for result in results:
        row = rows[tuple(result[n] for n in space.names)]
        if recording.ok[row]:
            assert result["time"] == recording.time_ms[row]
        else:
            assert "__error__" in result
    charged_s = environment["simulated_time"] / 1e3
    assert charged_s == pytest.approx(recording.evaluation_s.sum(), rel=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_kernel_tuners_searchers_run_on_an_export(tmp_path):
    interface = pytest.importorskip("kernel_tuner.interface")
    recording = load_space("softmax-4096x4096")
    path = tmp_path / "cache.json"
    export_recording(recording, path, "kernel-tuner")
    results, _ = interface.tune_cache(
        str(path), strategy="random_sample", strategy_options={"max_fevals": 25}, quiet=True
    )
    assert len(results) == 25


def handmade(names, values, configurations):
    n = len(configurations)
    info = RecordingInfo(name="x", kernel="k", device="d", framework="f")
    return Recording.from_rows(
        names, values, configurations, np.ones(n), np.ones(n), np.ones(n), np.zeros(n, int), info
    )


@pytest.mark.parametrize("name", ["time", "grid_size_x", "compile_time"])
def test_names_that_kernel_tuner_forbids_are_refused(tmp_path, name):
    with pytest.raises(SpaceError, match=name):
        export_recording(handmade([name], [(1, 2)], [[0]]), tmp_path / "x.json", "kernel-tuner")
    assert list(tmp_path.iterdir()) == []


def test_configurations_that_collide_as_text_are_refused(tmp_path):
    recording = handmade(["a"], [(1, "1")], [[0], [1]])
    with pytest.raises(SpaceError, match="differ as text"):
        export_recording(recording, tmp_path / "x.json", "kernel-tuner")

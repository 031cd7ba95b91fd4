"""The typed classes of scenarios."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import tandem
from tandem.scenario import Guest, Policy, Process, Program, Scenario, Vm

PACKAGE = Path(__file__).parents[1]


def test_the_classes_are_those_of_the_schema() -> None:
    spec = importlib.util.spec_from_file_location("generate_classes", PACKAGE / "generate_classes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    generated = module.generate(tandem.schema("scenario"))
    is_same = generated == (PACKAGE / "tandem/scenario.py").read_text()
    assert is_same, "run `tandem schema scenario | python python/generate_classes.py > python/tandem/scenario.py`"


def typed_hogs() -> Scenario:
    return Scenario(
        length="20ms",
        machine="1x2x1",
        policy=Policy(host="linux"),
        programs={
            "hog": Program(ops=[{"forever": [{"compute": "1ms"}, {"count": "rounds"}]}]),
            "light": Program(ops=[{"forever": [{"compute": {"exponential": "100us"}}, {"sleep": "1ms"}]}]),
        },
        vm=[
            Vm(group="hogs", vcpus=2, memory="1GiB", programs=["hog"]),
            Vm(group="light", vcpus=1, memory="1GiB", programs=["light"]),
        ],
    )


def test_a_scenario_of_classes_is_that_of_its_dictionary(hogs: dict[str, Any]) -> None:
    assert typed_hogs().to_dict() == hogs
    assert tandem.to_toml(typed_hogs()) == tandem.to_toml(hogs)
    assert tandem.simulate(typed_hogs())[0].json == tandem.simulate(hogs)[0].json


def test_classes_nest_and_may_stand_in_dictionaries() -> None:
    guest = Guest(process=[Process(program="p", copies=2)])
    scenario = {
        "length": "5ms",
        "machine": "1x2x1",
        "programs": {"p": Program(ops=[{"forever": [{"compute": "1ms"}]}])},
        "vm": [Vm(group="g", vcpus=2, memory="1GiB", guest=guest)],
    }
    [run] = tandem.simulate(scenario)
    assert run.data["groups"][0]["group"] == "g"


def test_errors_of_classes_have_their_line() -> None:
    scenario = typed_hogs()
    assert scenario.vm is not None
    scenario.vm[0].memory = "much"
    with pytest.raises(tandem.ScenarioError) as caught:
        tandem.simulate(scenario)
    assert caught.value.excerpt == 'memory = "much"'
    with pytest.raises(TypeError, match="vpcus"):
        Vm(group="hogs", vpcus=2)  # type: ignore[call-arg]

"""The worked examples in the docstrings of core, ngrams and drafters run, and every drafter has one."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import specrace.core
import specrace.drafters
import specrace.ngrams
from specrace.drafters import METHODS

MODULES = sorted(
    module.name
    for package in (specrace.core, specrace.drafters, specrace.ngrams)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert not results.failed, "the captured output shows what the example gave"


@pytest.mark.parametrize("name", METHODS)
def test_every_drafter_has_an_example(name: str) -> None:
    """The class's own docstring, not an inherited one, shows a context and the draft."""
    drafter = METHODS[name].build
    assert isinstance(drafter, type)
    examples = doctest.DocTestParser().get_examples(drafter.__doc__ or "")
    assert any(".propose(" in example.source for example in examples)
    assert any("(" in example.want for example in examples)

"""The error tree: what a person, a program and IPython get to see of one error."""

from __future__ import annotations

import json

import pytest

from kernel_launcher.errors import Fault, InvalidRequest, JobFailed, JobNotFound, LaunchFailed, VeriError

ONE = Fault("method.lora_rank", "'8'", "must be a whole number.", "Write 8.")
TWO = Fault("model.base", "", "no base model.", "Name one.", "model_load_error")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (VeriError("x", "wrong"), 500, "x"),
        (InvalidRequest([ONE]), 400, "invalid_request"),
        (JobNotFound("none"), 404, "job_not_found"),
        (JobFailed("oom", "rank 1 failed"), 500, "oom"),
        (LaunchFailed("silent", log_tail="last words"), 500, "launch_failed"),
    ],
)
def test_every_error_is_one_tree(error, status, code):
    """One root catches all; each has a code, a status as of HTTP, and a form for JSON."""
    assert isinstance(error, VeriError)
    assert (status, code) == (error.status, error.code)
    assert {"code", "message", "hint", "details"} == set(json.loads(json.dumps(error.to_json())))


def test_an_error_reads_as_what_why_and_what_to_do():
    """In text the hint is on its own line; in IPython the class and code stand above it, and no frames."""
    error = VeriError("x", "it is broken.", "Mend it.")
    assert "it is broken.\n  Mend it." == str(error)
    assert "it is broken." == str(VeriError("x", "it is broken."))
    assert ["VeriError (x)", "it is broken.", "  Mend it."] == error._render_traceback_()


def test_a_fault_reads_as_key_value_reason_fix():
    """What was given is shown; where nothing was, only the key is."""
    assert "method.lora_rank = '8': must be a whole number. Write 8." == str(ONE)
    assert "model.base: no base model. Name one." == str(TWO)
    assert "x: wrong." == str(Fault("x", "", "wrong.", ""))


def test_one_fault_is_the_message_and_several_are_a_list():
    """The code is that of the faults where they agree."""
    assert str(ONE) == InvalidRequest([ONE]).message
    assert "model_load_error" == InvalidRequest([TWO, TWO]).code
    both = InvalidRequest([ONE, TWO])
    assert "invalid_request" == both.code
    assert ["2 things are wrong with this request:", f"  {ONE}", f"  {TWO}"] == both.message.splitlines()
    assert ["method.lora_rank", "model.base"] == [fault["key"] for fault in both.details["faults"]]


def test_no_error_repeats_a_token(monkeypatch):
    """Whoever raises it, and wherever the token stands: message, hint, details, each part of a fault."""
    token = "hf_abcdefghijklmnop1234"
    monkeypatch.setenv("SOME_SECRET", "correct horse battery")
    error = VeriError("code", f"a {token}", f"b {token}", {"c": [{"d": f"{token} correct horse battery"}]})
    refusal = InvalidRequest([Fault(f"k.{token}", token, f"no {token}", f"fix {token}")])
    for text in (
        str(error),
        repr(error),
        str(error.to_json()),
        str(refusal),
        str(refusal.to_json()),
        repr(refusal.faults),
    ):
        assert token not in text
        assert "correct horse" not in text

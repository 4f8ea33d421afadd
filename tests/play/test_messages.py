"""What a page may ask for: every other text is an error that says what is wrong."""

from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbf.errors import InputError
from nbf.play.access import KEY_BYTES, VALID, Access, Rate, user_key
from nbf.play.messages import FIELDS, LONGEST, parsed
from nbf.play.problems import PROBLEMS

GOOD = [
    {"type": "hello", "pass": "x", "recipe": None},
    {"type": "new", "problem": "gridworld", "seed": 3},
    {"type": "act", "action": "up"},
    {"type": "change", "settings": {"error": 0.2}},
    {"type": "go", "step": 0},
    {"type": "export", "kind": "gif"},
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def test_every_type_has_a_good_message():
    assert [message["type"] for message in GOOD] == list(FIELDS)
    for message in GOOD:
        found = parsed(json.dumps(message))
        assert {"type": found.type} | found.fields == message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[" * 50_000, "JSON"),
        ('{"type": "go", "step": NaN}', "JSON"),
        ("[]", "has a type"),
        ('{"type": "stop"}', "has a type"),
        ('{"type": ["go"]}', "has a type"),
        ('{"type": "go"}', "has 'step'"),
        ('{"type": "go", "step": 1, "more": 1}', "nothing else"),
        ('{"type": "go", "step": true}', "another type"),
        ('{"type": "go", "step": 1.0}', "another type"),
        (b"{}", "text"),
        ('"' + "x" * LONGEST + '"', "up to"),
    ],
)
def test_a_bad_message_is_an_input_error(text: str | bytes, told: str):
    with pytest.raises(InputError, match=told):
        parsed(text)


@given(st.text(max_size=40) | VALUES.map(json.dumps))
def test_no_text_raises_anything_else(text: str):
    with pytest.raises(InputError):
        parsed(text)


@hypothesis.settings(max_examples=40)
@given(st.sampled_from(list(PROBLEMS)), st.data())
def test_settings_are_taken_or_refused_and_then_in_full(name: str, data: st.DataObject):
    problem = PROBLEMS[name]
    settings = data.draw(st.dictionaries(st.sampled_from([*problem.defaults(), "more"]), VALUES, max_size=3))
    try:
        found = problem.checked(settings)
    except InputError:
        return
    assert set(found) == set(problem.defaults())
    assert problem.checked(found) == found


def test_a_token_is_good_once_and_a_pass_for_long(monkeypatch: pytest.MonkeyPatch):
    now = [1000.0]
    monkeypatch.setattr("nbf.play.access.time.time", lambda: now[0])
    key = bytes(KEY_BYTES)
    access = Access(key)
    token = access.token
    granted = access.admit(token)
    assert granted is not None
    assert access.token != token
    assert access.admit(token) is None
    assert access.admit(granted) == granted
    assert Access(key).admit(granted) == granted  # a server that was started again
    assert Access(b"1" * KEY_BYTES).admit(granted) is None  # another user's
    until, _, signature = granted.partition(".")
    for forged in (
        "",
        ".",
        until,
        f"{int(until) + 1}.{signature}",
        f"{until}.",
        f"{granted}0",
        "9" * 5000,
        "é.x",
        "\ud800",
    ):
        assert access.admit(forged) is None, forged
    now[0] += VALID + 1
    assert access.admit(granted) is None


def test_the_key_is_kept_for_its_user_alone(tmp_path):
    path = tmp_path / "state" / "play.key"
    key = user_key(path)
    assert (len(key), path.stat().st_mode & 0o777, user_key(path)) == (KEY_BYTES, 0o600, key)
    path.chmod(0o644)
    assert user_key(path) != key  # others could have read it
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert len(user_key(blocked / "play.key")) == KEY_BYTES  # for this process


def test_the_rate_is_bounded():
    rate, taken = Rate(10.0, 5.0), 0
    for tick in range(1000):  # ten seconds, a hundred messages a second
        taken += rate.take(1.0 + tick / 100)
    assert 5 + 10 * 9.9 <= taken <= 5 + 10 * 10 + 1

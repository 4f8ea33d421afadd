"""The playground's server: who may connect, what it answers, and that nothing that a page sends ends a session."""

from __future__ import annotations

import http.client
import socket

import pytest
from playing import KEY, joined, opened, running
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from nbf.play.access import Access
from nbf.play.messages import LONGEST
from nbf.play.pages import FILES
from nbf.play.server import ADDRESS, SESSIONS


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbf.play.session.carried", lambda key, filter, state, environment: state)


def get(port: int, path: str, host: str | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=30)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", host or f"{ADDRESS}:{port}")
    connection.endheaders()
    return connection.getresponse()


def test_the_files_of_the_page_and_nothing_else():
    with running() as server:
        for path in [*FILES, "/?token=x"]:
            answer = get(server.port, path)
            assert answer.status == 200
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; ")
            assert answer.headers["Cache-Control"] == "no-store"
            body = answer.read().decode()
            assert "http://" not in body.replace("http://www.w3.org/2000/svg", "")  # nothing is fetched from elsewhere
            assert "https://" not in body
            assert server.playground.access.token not in body
        for path in ("/../server.py", "/play.css/", "/static/play.js", "//", "/nothing"):
            assert get(server.port, path).status == 404
        for host in ("evil.example", f"evil.example:{server.port}", f"{ADDRESS}:1"):
            assert get(server.port, "/", host).status == 421
        with socket.create_connection((ADDRESS, server.port)) as plain:
            assert plain.getpeername()[0] == "127.0.0.1"


def test_only_the_own_origin_may_connect():
    with running() as server:
        for origin in ("http://evil.example", f"https://{ADDRESS}:{server.port}", f"http://{ADDRESS}:1", "null"):
            with pytest.raises(InvalidStatus, match="403"), opened(server, origin):
                pass
        with pytest.raises(InvalidStatus, match="403"), connect(f"ws://{ADDRESS}:{server.port}/socket"):
            pass  # without an origin
        with opened(server, f"http://localhost:{server.port}"):
            pass


def test_without_a_token_or_a_pass_nothing_is_answered():
    with running() as server:
        token = server.playground.access.token
        for first in (
            {"type": "hello", "pass": "", "recipe": None},
            {"type": "hello", "pass": token[:-1], "recipe": None},
            {"type": "hello", "pass": Access(bytes(32)).admit("x") or "1.2", "recipe": None},
            {"type": "act", "action": "up"},
            {"type": "nonsense"},
        ):
            with opened(server) as page:
                assert page.ask(**first)["type"] == "refused"
                with pytest.raises(ConnectionClosed) as closed:
                    page.read()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 4001
        assert server.playground.access.token == token  # nobody took it
        with joined(server) as (page, frame):
            assert frame["type"] == "frame"
        with opened(server) as page:
            assert page.ask(type="hello", **{"pass": token}, recipe=None)["type"] == "refused"
        with joined(server, page.granted or server.playground.access.token):
            pass
        assert len([line for line in server.said if "for another browser" in line]) == 2


def test_a_session_lives_on_after_anything_bad():
    with running() as server, joined(server) as (page, frame):
        bad = ["", "[]", "{}", '{"type": "act", "action": "fly"}', '{"type": "go", "step": 99}', "x" * (LONGEST + 1),
               '{"type": "change", "settings": {"walls": [[[]]]}}', '{"type": "export", "kind": "exe"}',
               '{"type": "export", "kind": "gif"}', '{"type": "new", "problem": "__class__", "seed": 0}',
               '{"type": "hello", "pass": "", "recipe": null}',
               '{"type": "new", "problem": "lake", "seed": 1e9}']  # fmt: skip
        for text in bad:
            page.socket.send(text)
            answer = page.read()
            assert answer["type"] == "error", text[:40]
            assert len(answer["text"]) > 10
        page.socket.send(b"\x00\x01")
        assert page.read()["type"] == "error"
        after = page.ask(type="go", step=0)
        assert after == frame
        assert page.ask(type="act", action="up")["step"] == 1


def test_a_mistake_of_the_server_is_told_and_the_session_lives_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with running() as server, joined(server) as (page, _):
        with monkeypatch.context() as broken:
            broken.setattr("nbf.play.session.Session.act", lambda session, action: 1 // 0)
            answer = page.ask(type="act", action="up")
        assert (answer["type"], "ZeroDivisionError" in answer["text"]) == ("error", True)
        assert page.ask(type="act", action="up")["step"] == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_messages_beyond_the_rate_are_not_done(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("nbf.play.server.PER_SECOND", 0.001)  # so that a slow machine is none too slow
    monkeypatch.setattr("nbf.play.server.AT_ONCE", 5.0)
    with running() as server, joined(server) as (page, _):
        for _ in range(100):
            page.send(type="act", action="stay")
        page.send(type="new", problem="chess", seed=0)
        answers = [page.read() for _ in range(6)]
        assert [answer["type"] for answer in answers] == ["error"] * 6
        assert all("no action 'stay'" in answer["text"] for answer in answers[:5])
        assert "Too many messages" in answers[5]["text"]
        with joined(server, page.granted) as (other, _):  # whose rate is its own, and who waits for nobody
            assert other.ask(type="act", action="up")["step"] == 1


def test_ten_pages_at_once_and_no_more():
    with running() as server:
        pages = [joined(server) for _ in range(SESSIONS)]
        frames = [page.__enter__() for page in pages]
        for number, (page, _) in enumerate(frames):
            page.send(type="act", action="auto")
            assert page.read()["step"] == 1, number
        with opened(server) as one_more:
            answer = one_more.ask(type="hello", **{"pass": server.playground.access.token}, recipe=None)
            assert (answer["type"], "10 pages" in answer["text"]) == ("refused", True)
        pages[0].__exit__(None, None, None)
        for _ in range(100):
            if server.playground._open < SESSIONS:
                break
            TimeoutError(0.01)
        with joined(server, frames[1][0].granted):
            pass
        for page in pages[1:]:
            page.__exit__(None, None, None)


def test_a_page_goes_on_with_a_server_that_was_started_again():
    with running() as server, joined(server) as (page, _):
        page.ask(type="act", action="up")
        page.ask(type="change", settings={"error": 0.3})
        before = page.ask(type="act", action="left")
        granted, port = page.granted, server.port
    with running(key=KEY, port=port) as server, joined(server, granted, before["recipe"]) as (page, after):
        assert server.port == port
        assert after == before
        assert page.ask(type="act", action="up")["step"] == 3


def test_a_port_in_use_is_left_to_whoever_has_it():
    with running() as first, running(port=first.port) as second:
        assert first.port < second.port <= first.port + 20
        with joined(first), joined(second):
            pass

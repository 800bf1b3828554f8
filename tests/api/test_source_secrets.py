"""Secrets of sources over time: rotated by sender and by key, lost, named, kept for another scheme, and never shown."""

import base64
import json
import logging
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import structlog
from pydantic import SecretStr

from activity_core.settings import Settings
from tests.api.conftest import Api, application
from tests.api.webhooks import BY_NAME, document, post, reason, receipts, signed, source

Json = dict[str, Any]
CANARY = "canary-5f0e-never-to-be-seen"
NEW_KEY = base64.b64encode(bytes(range(32))).decode()
SENDER = BY_NAME["github"]
BEARER = BY_NAME["bearer"]


def slug() -> str:
    return f"s-{uuid4().hex[:10]}"


def with_keys(settings: Settings, *keys: str) -> Settings:
    return settings.model_copy(update={"encryption_keys": SecretStr(",".join(keys))})


def key_of(settings: Settings) -> str:
    assert settings.encryption_keys is not None
    return settings.encryption_keys.get_secret_value()


async def shown(api: Api, name: str) -> Json:
    answer = await api.http.get(f"/v1/sources/{name}")
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def apply(api: Api, value: Json) -> str:
    answer = await api.http.post("/v1/apply", json={"documents": [value]})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["documents"][0]["change"])


async def send(api: Api, name: str, secret: str | None = None) -> httpx.Response:
    return await post(api, name, signed(SENDER, secret=secret), SENDER.body)


@pytest.mark.parametrize("again", [False, True], ids=["as exported", "with its secrets"])
async def test_a_key_goes_once_every_source_was_applied_again(api: Api, api_settings: Settings, again: bool) -> None:
    name, old = slug(), key_of(api_settings)
    given = {"kind": "Source", **document(SENDER, name, secrets=[SENDER.secrets[0], "another"])}
    assert await apply(api, given) == "created"
    before = await shown(api, name)
    async with application(with_keys(api_settings, NEW_KEY, old)) as both:
        assert await apply(both, given if again else (await shown(both, name))["spec"]) == "unchanged"
        after = await shown(both, name)
    assert [secret["id"] for secret in after["secrets"]] == [secret["id"] for secret in before["secrets"]]
    assert after["revision"] == before["revision"]
    async with application(with_keys(api_settings, NEW_KEY)) as without:
        assert (await shown(without, name))["trouble"] == []
        assert [(await send(without, name, secret)).status_code for secret in (None, "another")] == [202, 200]
    async with application(with_keys(api_settings, old)) as outdated:
        assert len((await shown(outdated, name))["trouble"]) == 2


async def test_a_dry_run_seals_nothing_anew(api: Api, api_settings: Settings) -> None:
    name = slug()
    await source(api, document(SENDER, name))
    async with application(with_keys(api_settings, NEW_KEY, key_of(api_settings))) as both:
        body = {"documents": [{"kind": "Source", **document(SENDER, name)}], "dry_run": True}
        assert (await both.http.post("/v1/apply", json=body)).json()["documents"][0]["change"] == "unchanged"
    assert (await shown(api, name))["trouble"] == []


async def test_a_sender_changes_its_secret_without_a_request_lost(api: Api) -> None:
    name = slug()
    old, new = SENDER.secrets
    await source(api, document(SENDER, name, secrets=[old]))
    made = await source(api, document(SENDER, name, secrets=[new, old]))
    assert [(await send(api, name, secret)).status_code for secret in (old, new)] == [202, 200]
    [by_new, by_old] = await receipts(api, name)
    ids = [secret["id"] for secret in made["secrets"]]
    assert [by_new["secret_id"], by_old["secret_id"]] == ids
    left = await source(api, document(SENDER, name, secrets=[new]))
    assert [secret["id"] for secret in left["secrets"]] == ids[:1]
    refused = await send(api, name, old)
    assert (refused.status_code, reason(refused)) == (401, "bad_signature")
    assert (await send(api, name, new)).status_code == 200


async def test_what_a_lost_secret_may_vouch_for_is_a_503_and_what_none_can_a_401(
    api: Api, api_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 401 would be the end of it for many senders; and what another secret vouches for is accepted meanwhile."""
    name = slug()
    lost, there = SENDER.secrets
    monkeypatch.setenv("ACTIVITY_CORE_SECRET_THERE", there)
    await source(api, document(SENDER, name, secrets=[lost, "${ secret.THERE }"]))
    unsigned = [item for item in signed(SENDER) if item[0] != "X-Hub-Signature-256"]
    async with application(with_keys(api_settings, NEW_KEY)) as other:
        assert (await send(other, name, there)).status_code == 202
        answer = await send(other, name, lost)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert f"GET /v1/sources/{name}" in answer.json()["detail"]
        assert (await post(other, name, unsigned, SENDER.body)).status_code == 401
        consent = {"WebHook-Request-Origin": "events.example.org"}
        assert (await other.http.options(f"/v1/webhooks/{name}", headers=consent)).status_code == 200
        kept = [(item["result"], item["reason_code"], item["status"]) for item in await receipts(other, name)]
        assert kept == [
            ("rejected", "missing_signature", 401),
            ("rejected", "unavailable", 503),
            ("accepted", None, 202),
        ]
    assert (await send(api, name, lost)).status_code == 200


async def test_a_named_secret_is_looked_up_at_each_use_and_never_stored(
    api: Api, api_settings: Settings, tmp_path: Path
) -> None:
    file, name = tmp_path / "HUB", slug()
    file.write_text(f"{SENDER.secrets[0]}\n")
    async with application(api_settings.model_copy(update={"secrets_dir": tmp_path})) as named:
        await source(named, document(SENDER, name, secrets=["${ secret.HUB }"]))

        def two_seconds_later() -> None:
            live = named.app.state.services.sources._live
            at, found = live[name]
            live[name] = (at - 2.1, found)

        assert (await send(named, name)).status_code == 202
        file.write_text("another")
        two_seconds_later()
        assert [(await send(named, name, secret)).status_code for secret in ("another", None)] == [200, 401]
        for now in (None, "", " \n", b"\xff\xfe"):
            file.unlink(missing_ok=True)
            if now is not None:
                file.write_bytes(now if isinstance(now, bytes) else now.encode())
            two_seconds_later()
            assert (await send(named, name)).status_code == 503, now
            assert (await shown(named, name))["trouble"] == [
                f"secret {(await shown(named, name))['secrets'][0]['fingerprint']}: ACTIVITY_CORE_SECRET_HUB is not set"
            ]
        file.write_text(SENDER.secrets[0])
        two_seconds_later()
        assert (await send(named, name)).status_code == 200
    assert (await shown(api, name))["trouble"] != []  # this process has no such directory
    [row] = await api.sql("SELECT sealed, name FROM source_secrets WHERE name = 'HUB'")
    assert tuple(row) == (None, "HUB")


async def test_a_named_secret_that_its_scheme_can_not_use_is_told_when_saved_and_when_it_became_so(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, name = BY_NAME["standard_webhooks"], slug()
    wanted = document(sender, name, secrets=["${ secret.SVIX }"])
    monkeypatch.setenv("ACTIVITY_CORE_SECRET_SVIX", "too-short-canary")
    refused = await api.http.put(f"/v1/sources/{name}", json=wanted)
    [fault] = refused.json()["errors"]
    assert (refused.status_code, fault["pointer"]) == (422, "/secrets/0")
    assert fault["message"].startswith("what is set as SVIX: ") and "canary" not in refused.text
    monkeypatch.setenv("ACTIVITY_CORE_SECRET_SVIX", sender.secrets[0])
    await source(api, wanted)
    assert (await post(api, name, signed(sender), sender.body)).status_code == 202
    monkeypatch.setenv("ACTIVITY_CORE_SECRET_SVIX", "too-short-canary")
    api.app.state.services.sources._live.clear()
    assert (await post(api, name, signed(sender), sender.body)).status_code == 503
    [trouble] = (await shown(api, name))["trouble"]
    assert "what is set as SVIX" in trouble and "canary" not in trouble


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scheme": "standard_webhooks"}, "not what its scheme wants"),
        ({"scheme": "basic"}, "user:password"),
        ({"scheme": "none"}, "without signatures has no secrets"),
        ({"scheme": "sns", "topics": ["arn:aws:sns:eu-west-1:123456789012:orders"]}, "SNS signs with a certificate"),
        ({"scheme": "hmac", "signature": {"key": "hex"}}, "not what its scheme wants"),
    ],
    ids=lambda value: value["scheme"] if isinstance(value, dict) else "",
)
async def test_secrets_that_would_stay_must_suit_the_new_scheme(api: Api, change: Json, told: str) -> None:
    name = slug()
    await source(api, document(SENDER, name, secrets=[CANARY]))
    path, wanted = f"/v1/sources/{name}", {"slug": name, **change}
    refused = await api.http.put(path, json=wanted)
    [fault] = refused.json()["errors"]
    assert (refused.status_code, fault["pointer"]) == (422, "/secrets"), refused.text
    assert told in fault["message"] and "[] for none" in fault["message"]
    assert (await api.http.put(path, json={**wanted, "secrets": []})).json()["secrets"] == []


async def test_i12_a_secret_is_in_no_log(
    api: Api, api_settings: Settings, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither when it is set, used, or can't be had, nor when the request that holds it is refused."""
    name = slug()
    given = document(BEARER, name, secrets=[CANARY])
    with caplog.at_level(logging.DEBUG), structlog.testing.capture_logs() as lines:
        await source(api, given)
        await apply(api, {"kind": "Source", **given})
        await api.http.post("/v1/sources", json={**given, "secretz": CANARY, "secrets": {"a": CANARY}})
        for secret in (CANARY, f"{CANARY}-wrong"):
            await post(api, name, signed(BEARER, secret=secret), BEARER.body)
        async with application(with_keys(api_settings, NEW_KEY)) as other:
            assert (await post(other, name, signed(BEARER, secret=CANARY), BEARER.body)).status_code == 503
            live = await api.app.state.services.sources.live(name)
            assert live.secrets == (CANARY,)
            logging.getLogger("test").warning("%r", live)
    written = " ".join([caplog.text, json.dumps(lines, default=str), *capfd.readouterr()])
    assert "source.secret_unavailable" in written and name in written
    assert CANARY not in written and NEW_KEY not in written


@pytest.mark.parametrize("place", ["id", "type"])
async def test_i12_a_credential_gets_into_no_event(api: Api, place: str) -> None:
    """Though the document asks for it: ids and types are stored and shown."""
    name = slug()
    given = document(BEARER, name, secrets=[CANARY], credential={"header": "X-Token", "prefix": ""})
    for header in ("Authorization", "x-token", "Cookie"):
        refused = await api.http.put(f"/v1/sources/{name}", json={**given, place: {"header": header}})
        [fault] = refused.json()["errors"]
        assert (refused.status_code, fault["pointer"]) == (422, f"/{place}") and "holds a secret" in fault["message"]
    template = {"template": "a.${ header['x-token'] }.${ header.authorization }"}
    await source(api, {**given, place: [template, {"header": "X-Other"}]})
    headers = [("X-Token", CANARY), ("Authorization", CANARY), ("X-Other", "there"), ("X-Event-Type", "t")]
    accepted = await post(api, name, headers, b"{}")
    assert accepted.status_code == 202, accepted.text
    kept = (await api.http.get(f"/v1/events/{accepted.json()['id']}")).text
    assert "there" in kept and CANARY not in kept


@pytest.mark.parametrize(
    "secrets",
    [
        ["\ud800"],
        ["a\u0000b"],
        ["x" * 4_096],
        ["x" * 4_097],
        ["ä" * 4_096],
        [""],
        [" a"],
        [None],
        [7],
        [{"a": CANARY}],
        {"a": CANARY},
        CANARY,
        [[CANARY]],
    ],
    ids=lambda value: str(value)[:12].encode("ascii", "replace").decode(),
)
async def test_no_secret_whatever_is_a_server_error_or_quoted(api: Api, secrets: Any) -> None:
    name = slug()
    for method, path in (("PUT", f"/v1/sources/{name}"), ("POST", "/v1/sources")):
        body = json.dumps({"slug": name, "scheme": "github", "secrets": secrets})
        answer = await api.http.request(
            method, path, content=body, headers={"Content-Type": "application/json", "Idempotency-Key": name}
        )
        assert answer.status_code in (201, 409, 422), answer.text
        assert CANARY not in answer.text
        if answer.status_code == 201:
            assert (await send(api, name, secrets[0])).status_code in (200, 202)
            await api.http.delete(f"/v1/sources/{name}")

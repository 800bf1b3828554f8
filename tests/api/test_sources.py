"""/v1/sources: documents, and secrets that are taken and never shown."""

import base64
import json
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from activity_core.services.secrets import Secrets
from activity_core.services.sources import Sources
from activity_core.settings import Settings
from tests.api.conftest import Api, application
from tests.api.webhooks import BY_NAME, document, post, signed, source

Json = dict[str, Any]
CANARY = "canary-5f0e-never-to-be-seen"
SENDER = BY_NAME["github"]


def slug() -> str:
    return f"s-{uuid4().hex[:10]}"


def hub(slug_: str, **more: Any) -> Json:
    return {"slug": slug_, "scheme": "github", "secrets": [CANARY], **more}


async def test_a_source_is_created_read_replaced_listed_and_deleted(api: Api) -> None:
    name = slug()
    path = f"/v1/sources/{name}"
    assert (await api.http.get(path)).status_code == 404
    created = await api.http.post("/v1/sources", json=hub(name), headers={"Idempotency-Key": name})
    assert (created.status_code, created.headers["ETag"], created.headers["Location"]) == (201, '"1"', path)
    again = await api.http.post("/v1/sources", json=hub(name), headers={"Idempotency-Key": name})
    assert (again.status_code, again.json()["id"]) == (201, created.json()["id"])
    other = await api.http.post("/v1/sources", json=hub(name, secrets=["x"]), headers={"Idempotency-Key": name})
    assert other.json()["code"] == "idempotency_key_reused"
    assert (await api.http.post("/v1/sources", json=hub(name))).json()["code"] == "slug_taken"
    assert (await api.http.put(path, json=hub(name))).json()["revision"] == 1
    assert (await api.http.put(path, json=hub(name, name="Hub"), headers={"If-Match": '"9"'})).status_code == 412
    assert (await api.http.put(path, json=hub(name, name="Hub"), headers={"If-Match": '"1"'})).json()["revision"] == 2
    assert (await api.http.put(path, json=hub(slug()))).json()["errors"][0]["pointer"] == "/slug"
    assert name in {item["slug"] for item in (await api.http.get("/v1/sources")).json()["items"]}
    assert (await api.http.delete(path)).status_code == 204
    assert (await api.http.delete(path)).status_code == 404
    assert await api.sql("SELECT 1 FROM source_secrets WHERE source_id = $1::uuid", created.json()["id"]) == []


async def test_secrets_left_out_stay_and_an_empty_list_removes_them(api: Api) -> None:
    name = slug()
    first = await source(api, hub(name))
    kept = await source(api, {"slug": name, "scheme": "github", "name": "Hub"})
    assert (kept["revision"], kept["secrets"]) == (2, first["secrets"])
    more = await source(api, hub(name, name="Hub", secrets=["another", CANARY]))
    assert more["revision"] == 3 and more["secrets"][1] == first["secrets"][0]
    turned = await source(api, hub(name, name="Hub", secrets=[CANARY, "another"]))
    assert [s["id"] for s in turned["secrets"]] == [s["id"] for s in more["secrets"]][::-1]
    assert (await source(api, hub(name, name="Hub", secrets=[])))["secrets"] == []
    refused = await post(api, name, signed(SENDER), SENDER.body)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (401, "no_secret")


async def test_i12_a_secret_is_in_no_answer_and_no_table(api: Api) -> None:
    name = slug()
    answers = [
        await api.http.post("/v1/sources", json=hub(name), headers={"Idempotency-Key": name}),
        await api.http.put(f"/v1/sources/{name}", json=hub(name, bad=1)),
        await api.http.put(f"/v1/sources/{name}", json=hub(name, secrets=[CANARY, f" {CANARY}"])),
        await api.http.put(f"/v1/sources/{name}", json=hub(name, scheme="none")),
        await api.http.post("/v1/apply", json={"documents": [{"kind": "Source", **hub(name)}]}),
        await api.http.get(f"/v1/sources/{name}"),
        await api.http.get("/v1/sources"),
        await post(api, name, signed(SENDER, secret=CANARY), SENDER.body),
        await api.http.get(f"/v1/sources/{name}/requests"),
    ]
    assert [answer.status_code for answer in answers] == [201, 422, 422, 422, 200, 200, 200, 202, 200]
    assert all(CANARY not in answer.text for answer in answers)
    tables = await api.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    encoded = [CANARY, base64.b64encode(CANARY.encode()).decode(), CANARY.encode().hex()]
    for (table,) in tables:
        dump = " ".join(row[0] for row in await api.sql(f'SELECT t::text FROM "{table}" t'))
        assert not any(text in dump for text in encoded), table


@pytest.mark.parametrize(
    ("change", "pointer", "told"),
    [
        ({"scheme": None}, "/scheme", "write 'standard_webhooks'"),
        ({"scheme": "githup"}, "/scheme", "'github'"),
        ({"secretz": ["a"]}, "/secretz", "did you mean 'secrets'"),
        ({"secrets": [""]}, "/secrets/0", "must not be empty"),
        ({"secrets": "a"}, "/secrets", "write a list"),
        ({"secrets": ["${ secret.not_so }"]}, "/secrets/0", "capital letters"),
        ({"secrets": ["${ secret.NOT_SET_ANYWHERE }"]}, "/secrets/0", "ACTIVITY_CORE_SECRET_NOT_SET_ANYWHERE"),
        ({"secrets": ["a"] * 6}, "/secrets", "5 at most"),
        ({"topics": ["a"]}, "/topics", "only a source of scheme sns"),
        ({"tolerance_seconds": 10}, "/tolerance_seconds", "only a source of scheme"),
        ({"scheme": "sns", "secrets": []}, "/topics", "name the topics"),
        ({"scheme": "none"}, "/secrets/0", "without signatures has no secrets"),
        ({"scheme": "standard_webhooks"}, "/secrets/0", "this secret is not what its scheme wants"),
        ({"scheme": "basic", "secrets": ["nocolon"]}, "/secrets/0", "user:password"),
        ({"scheme": "hmac", "signature": {"signed": "{timestamp}"}}, "/signature", "{body}"),
        ({"scheme": "hmac", "signature": {"hedr": "x"}}, "/signature/hedr", "did you mean 'header'"),
        ({"id": {"header": "X", "pointer": "/x"}}, "/id", "exactly one of"),
        ({"id": [{"header": "X"}, {"pointer": "x"}]}, "/id/1", "JSON pointer"),
        ({"id": {"constant": "x"}}, "/id", "exactly one of header, pointer, template"),
        ({"type": {"template": "${ event.x }"}}, "/type", "there is no `event` here"),
        ({"type": []}, "/type", "at least one"),
        ({"slug": "default"}, "/slug", "choose another"),
        ({"slug": "ce-0123456789abcdef"}, "/slug", "kept for CloudEvents"),
        ({"rate_per_second": 0}, "/rate_per_second", "1 or more"),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_what_can_not_work_is_refused_where_it_stands(api: Api, change: Json, pointer: str, told: str) -> None:
    wrong = {name: value for name, value in {**hub(slug()), **change}.items() if value is not None}
    if change.get("scheme", "") is None:
        told = "is required"
    answer = await api.http.put(f"/v1/sources/{wrong['slug']}", json=wrong)
    assert answer.status_code == 422, answer.text
    found = {error["pointer"]: error["message"] for error in answer.json()["errors"]}
    assert told in found[pointer], found


async def test_a_given_secret_needs_a_key_and_a_named_one_does_not(
    api_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    keyless = api_settings.model_copy(update={"encryption_keys": None, "secrets_dir": tmp_path})
    async with application(keyless) as api:
        refused = await api.http.put("/v1/sources/keyless", json=hub("keyless"))
        assert refused.status_code == 422 and "ACTIVITY_CORE_ENCRYPTION_KEYS" in refused.text
        (tmp_path / "FROM_FILE").write_text(f"{SENDER.secrets[0]}\n")
        monkeypatch.setenv("ACTIVITY_CORE_SECRET_FROM_ENV", "other")
        names = ["${ secret.FROM_ENV }", "${secret.FROM_FILE}"]
        made = await source(api, hub("keyless", secrets=names))
        assert [secret["name"] for secret in made["secrets"]] == ["FROM_ENV", "FROM_FILE"]
        assert (await post(api, "keyless", signed(SENDER), SENDER.body)).status_code == 202


async def test_keys_are_rotated_and_a_lost_one_is_told(api: Api, api_settings: Settings) -> None:
    name = slug()
    await source(api, document(SENDER, name))
    old = api_settings.encryption_keys
    assert old is not None
    new = base64.b64encode(bytes(range(32))).decode()
    both = api_settings.model_copy(update={"encryption_keys": SecretStr(f"{new},{old.get_secret_value()}")})
    async with application(both) as rotating:
        assert (await post(rotating, name, signed(SENDER), SENDER.body)).status_code == 202
    lost = api_settings.model_copy(update={"encryption_keys": SecretStr(new)})
    async with application(lost) as without:
        answer = await post(without, name, signed(SENDER), SENDER.body)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        shown = (await without.http.get(f"/v1/sources/{name}")).json()
        assert "ENCRYPTION_KEYS opens this secret" in shown["trouble"][0]
        await source(without, document(SENDER, name))  # set anew
        assert (await post(without, name, signed(SENDER), SENDER.body)).status_code == 200


async def test_a_sealed_secret_opens_for_its_own_source_alone(api: Api) -> None:
    secrets = Secrets([bytes(32)])
    sealed = secrets.seal("x", "one")
    assert secrets.open(sealed, "one") == "x"
    for wrong, owner in ((sealed, "two"), (sealed[:-1], "one"), (b"", "one"), (b"\x02" + sealed[1:], "one")):
        with pytest.raises(Exception, match="opens this secret"):
            secrets.open(wrong, owner)


async def test_sources_are_applied_with_the_rest_or_not_at_all(api: Api) -> None:
    name = slug()
    good = {"kind": "Source", **hub(name)}
    bad = {"kind": "Source", "slug": slug(), "scheme": "nope"}
    refused = await api.http.post("/v1/apply", json={"documents": [good, bad]})
    assert refused.json()["errors"][0]["pointer"] == "/documents/1/scheme"
    assert (await api.http.get(f"/v1/sources/{name}")).status_code == 404
    applied = await api.http.post("/v1/apply", json={"documents": [good]})
    assert applied.json()["documents"][0]["change"] == "created"
    exported = (await api.http.get(f"/v1/sources/{name}")).json()["spec"]
    assert "secrets" not in exported
    again = await api.http.post("/v1/apply", json={"documents": [exported]})
    assert again.json()["documents"][0]["change"] == "unchanged"


async def test_a_change_is_seen_by_another_process_within_seconds(api: Api, api_settings: Settings) -> None:
    name = slug()
    await source(api, document(SENDER, name))
    async with application(api_settings) as other:
        assert (await post(other, name, signed(SENDER), SENDER.body)).status_code == 202
        await source(api, document(SENDER, name, secrets=["changed"]))
        sources: Sources = other.app.state.services.sources
        at, live = sources._live[name]
        sources._live[name] = (at - 2.1, live)  # two seconds later
        assert (await post(other, name, signed(SENDER), SENDER.body)).status_code == 401


async def test_a_new_source_and_a_new_secret_are_taken_by_another_process_at_once(
    api: Api, api_settings: Settings
) -> None:
    name = slug()
    async with application(api_settings) as other:
        assert (await post(other, name, signed(SENDER), SENDER.body)).status_code == 404
        sources: Sources = other.app.state.services.sources

        def a_moment_later() -> None:
            at, live = sources._live[name]
            sources._live[name] = (at - 0.3, live)

        a_moment_later()
        await api.http.post("/v1/apply", json={"documents": [{"kind": "Source", **document(SENDER, name)}]})
        assert (await post(other, name, signed(SENDER), SENDER.body)).status_code == 202
        a_moment_later()
        new = document(SENDER, name, secrets=["brand-new"])
        await api.http.post("/v1/apply", json={"documents": [{"kind": "Source", **new}]})
        assert (await post(other, name, signed(SENDER, secret="brand-new"), SENDER.body)).status_code == 200


async def test_the_description_has_the_document(api: Api) -> None:
    schemas = (await api.http.get("/openapi.json")).json()["components"]["schemas"]
    assert {"slug", "scheme"} == set(schemas["Source"]["required"])
    assert "secrets" not in json.dumps(schemas["SourceOut"]["properties"]["spec"])

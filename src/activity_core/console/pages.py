"""The pages for people: the console and the API's documentation. All of it is served from here: no CDN, no inline script."""

from functools import lru_cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Response

_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_STRICT: Final = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
# Swagger UI writes style attributes and shows its icons as data
_SWAGGER: Final = f"{_STRICT}; style-src 'self' 'unsafe-inline'; img-src 'self' data:"

router = APIRouter(include_in_schema=False)


@router.get("/console")
async def console() -> Response:
    return _page(_own("console.html"), "html", _STRICT)


@router.get("/console/console.css")
async def console_style() -> Response:
    return _page(_own("console.css"), "css", _STRICT)


@router.get("/console/console.js")
async def console_script() -> Response:
    return _page(_own("console.js"), "js", _STRICT)


@router.get("/docs")
async def docs() -> Response:
    return _page(_own("docs.html"), "html", _SWAGGER)


@router.get("/docs/docs.js")
async def docs_script() -> Response:
    return _page(_own("docs.js"), "js", _SWAGGER)


@router.get("/docs/swagger-ui.css")
async def swagger_style() -> Response:
    return _page(_swagger("swagger-ui.css"), "css", _SWAGGER)


@router.get("/docs/swagger-ui-bundle.js")
async def swagger_script() -> Response:
    return _page(_swagger("swagger-ui-bundle.js"), "js", _SWAGGER)


def _own(name: str) -> bytes:
    return _read("activity_core.console", name)


def _swagger(name: str) -> bytes:
    # of this package only the files are used: a Swagger UI that needs no CDN
    return _read("fastapi_offline", name)


@lru_cache(maxsize=16)
def _read(package: str, name: str) -> bytes:
    return files(package).joinpath("static", name).read_bytes()


def _page(content: bytes, kind: str, policy: str) -> Response:
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Response(content, headers=headers, media_type=_TYPES[kind])

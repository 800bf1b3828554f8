# One image for every process: `api` (the default), `router`, `worker`, `migrate`. It holds no secret and no setting;
# those come as ACTIVITY_CORE_* variables. Postgres and Temporal are elsewhere: see docker-compose.yml.

FROM python:3.13-slim AS build
RUN python -m venv /opt/activity-core
ENV PATH=/opt/activity-core/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY requirements/image.txt requirements/
RUN pip install --require-hashes --only-binary :all: -r requirements/image.txt
COPY pyproject.toml README.md ./
COPY migrations migrations/
COPY src src/
RUN pip install --no-deps --no-build-isolation .

FROM python:3.13-slim
RUN groupadd --gid 10001 activity-core \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin activity-core
COPY --from=build /opt/activity-core /opt/activity-core
ENV PATH=/opt/activity-core/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
USER 10001:10001
EXPOSE 8080
# Of the API. The other processes serve no port: turn it off for them, as docker-compose.yml does.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('ACTIVITY_CORE_API_PORT', '8080') + '/healthz', timeout=4)"]
ENTRYPOINT ["activity-core"]
CMD ["api"]

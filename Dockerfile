# docker build --build-arg DEVICE=cpu|cuda -t specrace .
ARG DEVICE=cpu

FROM python:3.12-slim AS cpu
# PyPI's own wheels of torch for Linux are for CUDA. This index links to each wheel with its hash, which pip checks.
ENV TORCH="--index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu"

FROM python:3.12-slim AS cuda
ENV TORCH="--require-hashes -r requirements/container-cuda.txt"

# hadolint ignore=DL3006
FROM ${DEVICE}
RUN useradd --create-home --uid 1000 specrace && install --directory --owner=1000 --group=1000 /app /home/specrace/.cache
USER 1000
WORKDIR /app
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
COPY --chown=1000 requirements ./requirements
# What requirements.txt installs, with the hash of every file.
# hadolint ignore=SC2086
RUN python3 -m venv .venv \
    && .venv/bin/pip install --no-deps ${TORCH} \
    && .venv/bin/pip install --no-deps --require-hashes -r requirements/container.txt
COPY --chown=1000 . ./
EXPOSE 7860
HEALTHCHECK --start-period=2m --timeout=10s CMD [".venv/bin/python", "-c", "import json, sys, urllib.request as web; sys.exit(json.load(web.build_opener(web.ProxyHandler({})).open('http://127.0.0.1:7860/healthz'))['status'] == 'failed')"]
ENTRYPOINT [".venv/bin/python", "app.py", "--host", "0.0.0.0", "--port", "7860", "--device", "auto"]

